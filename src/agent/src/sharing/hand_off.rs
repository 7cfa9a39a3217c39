//! Delegation to NVIDIA's device plugin, which is configured with a key of its `ConfigMap` and a label of the Node.
//!
//! The configuration is computed from the devices and the layout, written to the `ConfigMap` by the aggregator, and
//! compared with what the Node offers until both agree. Nothing here waits.

use std::collections::BTreeMap;
use std::future::pending;

use octavo_files::plugin_config;
use octavo_kube::nvidia_plugin::DevicePluginStatus;
use octavo_model::inventory::NvmlState;
use octavo_model::reason::{Reason, Severity};
use octavo_model::sharing_status::{
    HandOff as Told, Health, ResourceStatus, SharingMode, SharingStatus, UnitStatus,
};
use octavo_node::mig_strategy::MigStrategy;
use octavo_node::node::node_diff::SHARING_FIELD_MANAGER;
use octavo_node::node::operands::PLUGIN_CONFIG_LABEL;
use octavo_node::node::{PluginLabel, View};
use octavo_node::sharing::hand_off::rollout::{
    ApiQueries, Limits, Rollout, RolloutInput, RolloutState, RolloutStep,
};
use octavo_node::sharing::hand_off::{check_no_slice_length, render};
use octavo_node::sharing::offer::compile;
use octavo_node::sharing::{Offers, diagnosis};
use octavo_planner::layout::{DeviceTarget, Targets, TimeSlicing};
use octavo_planner::reconcile::NodeLayoutStatus;
use tracing::{info, warn};

use super::{Changed, Observation, SharingBackend, SharingOutcome};

/// Backend that delegates to NVIDIA's device plugin.
#[derive(Debug)]
pub struct HandOffBackend {
    terms: HandOffSettings,
    watch: Option<DevicePluginStatus>,
    course: Rollout,
    /// The agent-set key in the Node's label when the Node was read last.
    named: Option<String>,
    /// The offers that the Node was last verified to make, and the key that requests them.
    verified: Option<(String, Offers)>,
    /// The status logged last.
    said: Option<(Reason, String)>,
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
    told: Told,
}

impl HandOffBackend {
    /// Creates the backend, with the handle of the watcher of the plugin; without one, the status requests that the
    /// `ConfigMap` be configured.
    pub fn new(terms: HandOffSettings, watch: Option<DevicePluginStatus>) -> Self {
        Self {
            terms,
            watch,
            course: Rollout::default(),
            named: None,
            verified: None,
            said: None,
        }
    }

    /// Computes the desired offers. `Err` is an outcome that needs no further observation.
    fn desired_config(
        &self,
        scene: &Observation<'_>,
    ) -> Result<DesiredConfig, Box<SharingOutcome>> {
        let leave = |status| {
            Err(Box::new(SharingOutcome {
                status,
                plugin_label: PluginLabel::Unchanged,
                ..SharingOutcome::default()
            }))
        };
        let (NvmlState::Ready(_), Some(status)) = (&scene.inventory.nvml, scene.status) else {
            // The devices are not known, so the existing configuration remains.
            return leave(None);
        };
        if scene.view.is_none() {
            return leave(None);
        }
        let Some(layout) = &status.layout else {
            return Err(Box::default());
        };
        let Some(asked) = status.targets.as_ref() else {
            // The layout cannot be used here, or was not resolved yet.
            return leave(None);
        };
        let compiled = compile(scene.inventory, asked, self.terms.strategy);
        let offers = compiled.offers;
        if !shares_anything(asked) {
            return Err(Box::default());
        }
        if let Some(words) = before(status, asked) {
            return leave(Some(said(Reason::SharingPending, words, &offers, scene)));
        }
        let refused = |why: String| leave(Some(said(Reason::SharingRefused, why, &offers, scene)));
        if self.terms.config_map.is_none() {
            return refused(
                "--plugin-config-map does not say where NVIDIA's device plugin has its configuration: name its ConfigMap (the \
                 chart: handOff.configMap), or use --sharing embedded"
                    .to_owned(),
            );
        }
        let config =
            check_no_slice_length(asked).and_then(|()| render(&offers, self.terms.strategy));
        let config = match config {
            // A lost device may come back: the existing configuration remains until then.
            Ok(config) if config.resources.is_empty() => {
                let nothing = "nothing that the layout shares can be given out".to_owned();
                let why = [vec![nothing], compiled.warnings].concat();
                return refused(why.join("; "));
            }
            Ok(config) => plugin_config::text(&config),
            Err(error) => return refused(error.to_string()),
        };
        if config.len() > plugin_config::MAX_CONFIG_BYTES {
            return refused(format!(
                "its configuration has {} bytes, and {} is the most",
                config.len(),
                plugin_config::MAX_CONFIG_BYTES
            ));
        }
        let key = plugin_config::key(layout, &config);
        Ok(DesiredConfig {
            offers,
            told: Told { key, config },
        })
    }

    fn step(&mut self, scene: &Observation<'_>, wish: &DesiredConfig) -> Option<RolloutStep> {
        let heard = self
            .watch
            .as_mut()
            .map(|watch| watch.results.borrow_and_update().clone());
        let heard = heard.unwrap_or_default();
        let facts = RolloutInput {
            desired: &wish.told,
            wanted: &counts(&wish.offers),
            strategy: self.terms.strategy,
            view: scene.view?,
            config_map: self.terms.config_map.as_deref()?,
            answers: &heard,
            is_plugin_configured: self.terms.is_certain,
        };
        Some(self.course.evaluate(scene.now, self.terms.limits, &facts))
    }

    /// Always keeps the key that the label names configured: the plugin does not start without it.
    fn retain_named_key(&self, outcome: &mut SharingOutcome) {
        let Some(key) = &self.named else { return };
        if outcome.status.is_none() && outcome.plugin_label == PluginLabel::Unchanged {
            outcome.status = Some(SharingStatus {
                mode: SharingMode::HandOff,
                state: Reason::SharingPending.as_str(),
                message: Some(format!(
                    "what the layout means here is not known now; NVIDIA's device plugin goes on by the key {key}"
                )),
                resources: Vec::new(),
                retained: Vec::new(),
                hand_off: None,
                named: None,
            });
        }
        if let Some(status) = &mut outcome.status {
            status.named = Some(key.clone());
        }
    }

    /// Records verified offers. They count as current until the Node's key or its capacity shows otherwise, regardless
    /// of the desired offers. The allocatable count does not matter: it changes with every unhealthy device.
    fn update_verified(&mut self, outcome: &mut SharingOutcome, view: Option<&View>) {
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

    fn order(&self, orders: ApiQueries) {
        if let Some(watch) = &self.watch {
            watch.set_orders(orders);
        }
    }

    /// Logs each status once; the Node's events derive from the status. `gist` is its part that does not change every
    /// minute.
    fn log(&mut self, status: Option<&SharingStatus>, gist: String) {
        let now = status.and_then(|status| Some((Reason::parse(status.state)?, gist)));
        if now == self.said {
            return;
        }
        self.said.clone_from(&now);
        let Some((status, (reason, _))) = status.zip(now) else {
            return;
        };
        let message = if reason == Reason::SharingInForce {
            in_force(status)
        } else {
            status.message.clone().unwrap_or_default()
        };
        match reason.kind() {
            Severity::Normal => info!(reason = %reason.as_str(), "sharing: {message}"),
            Severity::Warning => warn!(reason = %reason.as_str(), "sharing: {message}"),
        }
    }
}

impl SharingBackend for HandOffBackend {
    fn reconcile(&mut self, scene: Observation<'_>) -> SharingOutcome {
        if let Some(view) = scene.view {
            self.named = named(view);
        }
        let (mut outcome, gist) = match self.desired_config(&scene) {
            Err(outcome) => {
                self.order(ApiQueries::default());
                (*outcome, None)
            }
            Ok(wish) => match self.step(&scene, &wish) {
                None => {
                    let outcome = SharingOutcome {
                        plugin_label: PluginLabel::Unchanged,
                        ..SharingOutcome::default()
                    };
                    (outcome, None)
                }
                Some(step) => {
                    self.order(step.orders.clone());
                    let gist = causes(&step.standing);
                    (outcome(step, wish, &scene), gist)
                }
            },
        };
        self.retain_named_key(&mut outcome);
        self.update_verified(&mut outcome, scene.view);
        let status = outcome.status.as_ref();
        let message = || status.and_then(|status| status.message.clone());
        let gist = gist.or_else(message).unwrap_or_default();
        self.log(status, gist);
        outcome
    }

    fn changed(&mut self) -> Changed<'_> {
        Box::pin(async {
            let Some(watch) = &mut self.watch else {
                return pending().await;
            };
            if watch.results.changed().await.is_err() {
                // The plugin watcher has ended, so no change will ever arrive.
                pending::<()>().await;
            }
        })
    }
}

/// Returns the key in the Node's label, if an agent set it.
fn named(view: &View) -> Option<String> {
    let key = view.labels.get(PLUGIN_CONFIG_LABEL)?;
    let owners = view.owners.labels.get(PLUGIN_CONFIG_LABEL);
    let is_ours = owners.is_some_and(|all| all.contains(SHARING_FIELD_MANAGER));
    (is_ours || key.starts_with(plugin_config::KEY_PREFIX)).then(|| key.clone())
}

/// Returns the causes without their messages, which contain times.
fn causes(standing: &RolloutState) -> Option<String> {
    let RolloutState::Failed(found) = standing else {
        return None;
    };
    let causes: Vec<String> = found.iter().map(|one| format!("{:?}", one.cause)).collect();
    Some(causes.join(" "))
}

fn outcome(step: RolloutStep, wish: DesiredConfig, scene: &Observation<'_>) -> SharingOutcome {
    let (reason, message) = match step.standing {
        RolloutState::Pending(words) => (Reason::SharingPending, words),
        RolloutState::Applied => (Reason::SharingInForce, String::new()),
        RolloutState::Failed(found) => (Reason::SharingNotInForce, diagnosis::said(&found)),
        RolloutState::Refused(finding) => (Reason::SharingRefused, finding.to_string()),
    };
    let status = SharingStatus {
        hand_off: (reason != Reason::SharingRefused).then_some(wish.told),
        ..said(reason, message, &wish.offers, scene)
    };
    SharingOutcome {
        status: Some(status),
        current_offers: (reason == Reason::SharingInForce).then_some(wish.offers),
        plugin_label: step.label,
        events: Vec::new(),
        again: step.again,
    }
}

fn shares_anything(asked: &Targets) -> bool {
    let mut all = asked.devices.iter();
    all.any(|device| {
        let sharing = device.time_slicing.as_ref();
        sharing.is_some_and(TimeSlicing::is_sharing)
    })
}

/// Returns what must happen first while the current state is not the desired one.
fn before(status: &NodeLayoutStatus, asked: &Targets) -> Option<String> {
    let state = status.state?;
    // A device that cannot be read does not affect the others.
    let is_applied = |target: &DeviceTarget| {
        let mut devices = status.devices.iter();
        devices.any(|one| one.pci == target.pci && Reason::Applied.is(one.state))
    };
    let ends = [Reason::Failed, Reason::Blocked].map(Reason::as_str);
    let is_unverified = !asked.unverified.is_empty() && ends.contains(&state);
    if is_unverified && asked.devices.iter().all(is_applied) {
        return None;
    }
    let is_moving = [Reason::Pending, Reason::Applying].map(Reason::as_str);
    match state {
        _ if state == Reason::Applied.as_str() => None,
        _ if is_moving.contains(&state) => Some("it waits for the layout's partitions".to_owned()),
        _ => Some(format!(
            "it follows the layout, whose state is {state}: what was given out before stands until that is applied"
        )),
    }
}

fn said(
    reason: Reason,
    message: String,
    offers: &Offers,
    scene: &Observation<'_>,
) -> SharingStatus {
    let allocatable = scene.view.map(|view| &view.allocatable);
    let resources = counts(offers);
    let of = |name: &str, all: &BTreeMap<String, u64>| all.get(name).copied().unwrap_or_default();
    let resources = offers.resources.iter().map(|offer| ResourceStatus {
        name: offer.name.clone(),
        wanted: of(offer.name.as_str(), &resources),
        allocatable: allocatable.map(|all| of(offer.name.as_str(), all)),
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
        mode: SharingMode::HandOff,
        state: reason.as_str(),
        message: (!message.is_empty()).then_some(message),
        resources: resources.collect(),
        retained: Vec::new(),
        hand_off: None,
        named: None,
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
    let told = status.resources.iter();
    let told: Vec<String> = told
        .map(|one| format!("{} {}", one.wanted, one.name))
        .collect();
    format!("the Node offers {}", told.join(", "))
}

#[cfg(test)]
mod tests;
