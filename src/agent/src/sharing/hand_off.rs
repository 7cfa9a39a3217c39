//! Delegation to NVIDIA's device plugin, which is configured with a key of its `ConfigMap` and a label of the Node.
//!
//! The configuration is computed from the devices and the layout, written to the `ConfigMap` by the aggregator, and
//! compared with what the Node offers until both agree. Nothing here waits.

use std::collections::BTreeMap;
use std::future::pending;

use octavo_files::plugin_config;
use octavo_kube::nvidia_plugin::DevicePluginHandle;
use octavo_model::inventory::NvmlState;
use octavo_model::reason::Reason;
use octavo_model::sharing_status::{
    DeviceProvider, HandOffConfig, Health, ResourceStatus, SharingStatus, UnitStatus,
};
use octavo_node::mig_strategy::MigStrategy;
use octavo_node::node_object::node_diff::SHARING_FIELD_MANAGER;
use octavo_node::node_object::operands::PLUGIN_CONFIG_LABEL;
use octavo_node::node_object::{ObservedNode, PluginLabel};
use octavo_node::sharing::hand_off::rollout::{
    ApiQueries, Limits, Rollout, RolloutInput, RolloutState, RolloutStep,
};
use octavo_node::sharing::hand_off::{check_no_slice_length, render};
use octavo_node::sharing::offer::compile;
use octavo_node::sharing::{Offers, diagnosis};
use octavo_planner::layout::{DeviceTarget, Targets, TimeSlicing};
use octavo_planner::reconcile::NodeLayoutStatus;

use super::{Observation, SharingBackend, SharingOutcome};
use crate::observation_log::log_by_severity;

/// Backend that delegates to NVIDIA's device plugin.
#[derive(Debug)]
pub struct HandOffBackend {
    settings: HandOffSettings,
    watch: Option<DevicePluginHandle>,
    rollout: Rollout,
    /// The agent-set key in the Node's label when the Node was read last.
    named: Option<String>,
    /// The offers that the Node was last verified to make, and the key that requests them.
    verified: Option<(String, Offers)>,
    /// The status logged last.
    logged: Option<(Reason, String)>,
}

/// Settings of the delegation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandOffSettings {
    /// The `ConfigMap`, such as `gpu-operator/plugin-config`; `None` if it is not set.
    pub config_map: Option<String>,
    /// Timeouts.
    pub limits: Limits,
    /// Resource names of partitions.
    pub strategy: MigStrategy,
    /// Whether NVIDIA's plugin is known to run on the node; otherwise it is detected.
    pub is_certain: bool,
}

/// Desired offers of a layout, with the configuration that requests them from the plugin.
struct DesiredConfig {
    offers: Offers,
    configuration: HandOffConfig,
}

impl HandOffBackend {
    /// Creates the backend, with the handle of the watcher of the plugin; without one, the status requests that the
    /// `ConfigMap` be configured.
    pub fn new(settings: HandOffSettings, watch: Option<DevicePluginHandle>) -> Self {
        Self {
            settings,
            watch,
            rollout: Rollout::default(),
            named: None,
            verified: None,
            logged: None,
        }
    }

    /// Computes the desired offers. `Err` is an outcome that needs no further observation.
    fn desired_config(
        &self,
        observation: &Observation<'_>,
    ) -> Result<DesiredConfig, Box<SharingOutcome>> {
        let leave = |status| {
            Err(Box::new(SharingOutcome {
                status,
                plugin_label: PluginLabel::Unchanged,
                ..SharingOutcome::default()
            }))
        };
        let (NvmlState::Ready(_), Some(status)) = (&observation.inventory.nvml, observation.status)
        else {
            // The devices are not known, so the existing configuration remains.
            return leave(None);
        };
        if observation.view.is_none() {
            return leave(None);
        }
        let Some(layout) = &status.layout else {
            return Err(Box::default());
        };
        let Some(targets) = status.targets.as_ref() else {
            // The layout cannot be used here, or was not resolved yet.
            return leave(None);
        };
        let compiled = compile(observation.inventory, targets, self.settings.strategy);
        let offers = compiled.offers;
        if !shares_anything(targets) {
            return Err(Box::default());
        }
        if let Some(words) = before(status, targets) {
            return leave(Some(unapplied_status(
                Reason::SharingPending,
                words,
                &offers,
                observation,
            )));
        }
        let refused = |why: String| {
            leave(Some(unapplied_status(Reason::SharingRefused, why, &offers, observation)))
        };
        if self.settings.config_map.is_none() {
            return refused(
                "--plugin-config-map does not name the ConfigMap of NVIDIA's device plugin: set it (chart: handOff.configMap), or \
                 use --sharing embedded"
                    .to_owned(),
            );
        }
        let config =
            check_no_slice_length(targets).and_then(|()| render(&offers, self.settings.strategy));
        let config = match config {
            // A lost device may come back: the existing configuration remains until then.
            Ok(config) if config.resources.is_empty() => {
                let nothing = "no device that the layout shares can be allocated".to_owned();
                let why = [vec![nothing], compiled.warnings].concat();
                return refused(why.join("; "));
            }
            Ok(config) => plugin_config::text(&config),
            Err(error) => return refused(error.to_string()),
        };
        if config.len() > plugin_config::MAX_CONFIG_BYTES {
            return refused(format!(
                "the plugin configuration has {} bytes, more than the limit of {}",
                config.len(),
                plugin_config::MAX_CONFIG_BYTES
            ));
        }
        let key = plugin_config::key(layout, &config);
        Ok(DesiredConfig { offers, configuration: HandOffConfig { key, config } })
    }

    fn step(
        &mut self,
        observation: &Observation<'_>,
        desired: &DesiredConfig,
    ) -> Option<RolloutStep> {
        let answers = self.watch.as_mut().map(|watch| watch.observed.borrow_and_update().clone());
        let answers = answers.unwrap_or_default();
        let facts = RolloutInput {
            desired: &desired.configuration,
            wanted: &counts(&desired.offers),
            strategy: self.settings.strategy,
            view: observation.view?,
            config_map: self.settings.config_map.as_deref()?,
            answers: &answers,
            is_plugin_configured: self.settings.is_certain,
        };
        Some(self.rollout.evaluate(observation.now, self.settings.limits, &facts))
    }

    /// Always keeps the key that the label names configured: the plugin does not start without it.
    fn retain_named_key(&self, outcome: &mut SharingOutcome) {
        let Some(key) = &self.named else { return };
        if outcome.status.is_none() && outcome.plugin_label == PluginLabel::Unchanged {
            outcome.status = Some(SharingStatus {
                mode: DeviceProvider::HandOff.into(),
                state: Reason::SharingPending.into(),
                message: Some(format!(
                    "the layout cannot be resolved for this node now; NVIDIA's device plugin keeps using the key {key}"
                )),
                ..SharingStatus::default()
            });
        }
        if let Some(status) = &mut outcome.status {
            status.named = Some(key.clone());
        }
    }

    /// Records verified offers. They count as current until the Node's key or its capacity shows otherwise, regardless
    /// of the desired offers. The allocatable count does not matter: it changes with every unhealthy device.
    fn update_verified(&mut self, outcome: &mut SharingOutcome, view: Option<&ObservedNode>) {
        if let Some(offers) = &outcome.current_offers {
            let key = view.and_then(|view| view.labels.get(PLUGIN_CONFIG_LABEL));
            self.verified = key.map(|key| (key.clone(), offers.clone()));
            return;
        }
        self.verified = self.verified.take().filter(|(key, offers)| {
            let Some(view) = view else { return true };
            let has = |(name, count): (&String, &u64)| view.capacity.get(name) == Some(count);
            view.labels.get(PLUGIN_CONFIG_LABEL) == Some(key) && counts(offers).iter().all(has)
        });
        outcome.current_offers = self.verified.as_ref().map(|(_, offers)| offers.clone());
    }

    fn set_queries(&self, orders: ApiQueries) {
        if let Some(watch) = &self.watch {
            watch.set(orders);
        }
    }

    /// Logs each status once; the Node's events derive from the status. `summary` is its part that does not change
    /// every minute.
    fn log(&mut self, status: Option<&SharingStatus>, summary: String) {
        let now = status.and_then(|status| Some((status.state.known()?, summary)));
        if now == self.logged {
            return;
        }
        self.logged.clone_from(&now);
        let Some((status, (reason, _))) = status.zip(now) else {
            return;
        };
        let message = if reason == Reason::SharingInForce {
            in_force(status)
        } else {
            status.message.clone().unwrap_or_default()
        };
        log_by_severity(reason, &format!("sharing: {message}"));
    }
}

#[tonic::async_trait]
impl SharingBackend for HandOffBackend {
    fn reconcile(&mut self, observation: Observation<'_>) -> SharingOutcome {
        if let Some(view) = observation.view {
            self.named = named(view);
        }
        let (mut outcome, summary) = match self.desired_config(&observation) {
            Err(outcome) => {
                self.set_queries(ApiQueries::default());
                (*outcome, None)
            }
            Ok(desired) => match self.step(&observation, &desired) {
                None => {
                    let outcome = SharingOutcome {
                        plugin_label: PluginLabel::Unchanged,
                        ..SharingOutcome::default()
                    };
                    (outcome, None)
                }
                Some(step) => {
                    self.set_queries(step.orders.clone());
                    let summary = causes(&step.state);
                    (outcome(step, desired, &observation), summary)
                }
            },
        };
        self.retain_named_key(&mut outcome);
        self.update_verified(&mut outcome, observation.view);
        let status = outcome.status.as_ref();
        let message = || status.and_then(|status| status.message.clone());
        let summary = summary.or_else(message).unwrap_or_default();
        self.log(status, summary);
        outcome
    }

    async fn changed(&mut self) {
        let Some(watch) = &mut self.watch else {
            return pending().await;
        };
        if watch.observed.changed().await.is_err() {
            // The plugin watcher has ended, so no change will ever arrive.
            pending::<()>().await;
        }
    }
}

/// Returns the key in the Node's label, if an agent set it.
fn named(view: &ObservedNode) -> Option<String> {
    let key = view.labels.get(PLUGIN_CONFIG_LABEL)?;
    let owners = view.owners.labels.get(PLUGIN_CONFIG_LABEL);
    let is_ours = owners.is_some_and(|all| all.contains(SHARING_FIELD_MANAGER));
    (is_ours || key.starts_with(plugin_config::KEY_PREFIX)).then(|| key.clone())
}

/// Returns the causes without their messages, which contain times.
fn causes(state: &RolloutState) -> Option<String> {
    let RolloutState::Failed(found) = state else {
        return None;
    };
    let causes: Vec<String> = found.iter().map(|one| format!("{:?}", one.cause)).collect();
    Some(causes.join(" "))
}

fn outcome(
    step: RolloutStep,
    desired: DesiredConfig,
    observation: &Observation<'_>,
) -> SharingOutcome {
    let (reason, message) = match step.state {
        RolloutState::Pending(words) => (Reason::SharingPending, words),
        RolloutState::Applied => (Reason::SharingInForce, String::new()),
        RolloutState::Failed(found) => (Reason::SharingNotInForce, diagnosis::summarize(&found)),
        RolloutState::Refused(finding) => (Reason::SharingRefused, finding.to_string()),
    };
    let status = SharingStatus {
        hand_off: (reason != Reason::SharingRefused).then_some(desired.configuration),
        ..unapplied_status(reason, message, &desired.offers, observation)
    };
    SharingOutcome {
        status: Some(status),
        current_offers: (reason == Reason::SharingInForce).then_some(desired.offers),
        plugin_label: step.label,
        events: Vec::new(),
        again: step.again,
    }
}

fn shares_anything(targets: &Targets) -> bool {
    let mut all = targets.devices.iter();
    all.any(|device| {
        let sharing = device.time_slicing.as_ref();
        sharing.is_some_and(TimeSlicing::is_sharing)
    })
}

/// Returns what must happen first while the current state is not the desired one.
fn before(status: &NodeLayoutStatus, targets: &Targets) -> Option<String> {
    let state = status.state.as_ref()?;
    // A device that cannot be read does not affect the others.
    let is_applied = |target: &DeviceTarget| {
        let mut devices = status.devices.iter();
        devices.any(|one| one.pci == target.pci && one.state == Reason::Applied)
    };
    let has_ended = matches!(state.known(), Some(Reason::Failed | Reason::Blocked));
    let is_unverified = !targets.unverified.is_empty() && has_ended;
    if is_unverified && targets.devices.iter().all(is_applied) {
        return None;
    }
    match state.known() {
        Some(Reason::Applied) => None,
        Some(Reason::Pending | Reason::Applying) => {
            Some("waiting for the partitions of the layout".to_owned())
        }
        _ => Some(format!(
            "waiting for the layout, whose state is {state}; the previous sharing stays until the layout is applied"
        )),
    }
}

fn unapplied_status(
    reason: Reason,
    message: String,
    offers: &Offers,
    observation: &Observation<'_>,
) -> SharingStatus {
    let allocatable = observation.view.map(|view| &view.allocatable);
    let resources = counts(offers);
    let count =
        |name: &str, all: &BTreeMap<String, u64>| all.get(name).copied().unwrap_or_default();
    let resources = offers.resources.iter().map(|offer| ResourceStatus {
        name: offer.name.clone(),
        wanted: count(offer.name.as_str(), &resources),
        allocatable: allocatable.map(|all| count(offer.name.as_str(), all)),
        units: offer
            .units
            .iter()
            .map(|unit| UnitStatus {
                uuid: unit.uuid.clone(),
                replicas: unit.replicas,
                // The plugin reports health only to kubelet.
                health: Health::Healthy,
            })
            .collect(),
    });
    SharingStatus {
        mode: DeviceProvider::HandOff.into(),
        state: reason.into(),
        message: (!message.is_empty()).then_some(message),
        resources: resources.collect(),
        ..SharingStatus::default()
    }
}

fn counts(offers: &Offers) -> BTreeMap<String, u64> {
    let all = offers.resources.iter();
    all.map(|offer| {
        let count = u64::try_from(offer.count()).unwrap_or(u64::MAX);
        (offer.name.to_string(), count)
    })
    .collect()
}

fn in_force(status: &SharingStatus) -> String {
    let resources = status.resources.iter();
    let resources: Vec<String> =
        resources.map(|one| format!("{} {}", one.wanted, one.name)).collect();
    format!("the Node advertises {}", resources.join(", "))
}

#[cfg(test)]
mod tests;
