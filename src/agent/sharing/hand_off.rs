//! Devices given out by NVIDIA's device plugin, which is told how: by a key of its `ConfigMap` and a label of the Node.
//!
//! What it is told is compiled from the devices as they are and the layout, carried to the `ConfigMap` by the aggregator, and held
//! against what the Node offers until that is what was asked. Nothing here waits.

use std::collections::BTreeMap;
use std::future::pending;

use tracing::{info, warn};

use super::{Changed, Giver, Outcome, Scene};
use crate::domain::inventory::NvmlState;
use crate::domain::labels::MigStrategy;
use crate::domain::layout::{DeviceTarget, Targets, TimeSlicing};
use crate::domain::node::keep::{PLUGIN_CONFIG, SHARING_MANAGER};
use crate::domain::node::{PluginLabel, View};
use crate::domain::reason::{Kind, Reason};
use crate::domain::reconcile::Status;
use crate::domain::sharing::diagnosis;
use crate::domain::sharing::hand_off::course::{Course, Facts, Limits, Orders, Standing, Step};
use crate::domain::sharing::hand_off::{has_no_lengths, render};
use crate::domain::sharing::health::Health;
use crate::domain::sharing::offer::compile;
use crate::domain::sharing::status::{HandOff as Told, Mode, ResourceStatus, UnitStatus};
use crate::domain::sharing::{Offers, SharingStatus};
use crate::k8s::plugin::Watch;
use crate::wire::plugin_config;

/// What hands devices over to NVIDIA's plugin.
#[derive(Debug)]
pub struct HandOff {
    terms: Terms,
    watch: Option<Watch>,
    course: Course,
    /// The key of ours that the Node's label named when the Node was seen last.
    named: Option<String>,
    /// What the Node was last seen to offer as it was asked for, and by which key.
    verified: Option<(String, Offers)>,
    /// What was said last.
    said: Option<(Reason, String)>,
}

/// On what terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// Where the `ConfigMap` is: `gpu-operator/plugin-config`; none where nobody said.
    pub config_map: Option<String>,
    /// How long things may take.
    pub limits: Limits,
    /// How partitions are called.
    pub strategy: MigStrategy,
    /// Whether NVIDIA's plugin is there for certain; else it is looked for.
    pub is_certain: bool,
}

/// What a layout asks for, where that can be said to the plugin.
struct Wish {
    offers: Offers,
    told: Told,
}

impl HandOff {
    /// On these terms, with the other end of what looks at the plugin; without one it is said that somebody has to name the
    /// `ConfigMap`.
    pub fn new(terms: Terms, watch: Option<Watch>) -> Self {
        Self {
            terms,
            watch,
            course: Course::default(),
            named: None,
            verified: None,
            said: None,
        }
    }

    /// What shall be; `Err` is what can be said without looking any further.
    fn wish(&self, scene: &Scene<'_>) -> Result<Wish, Box<Outcome>> {
        let leave = |status| {
            Err(Box::new(Outcome {
                status,
                plugin_label: PluginLabel::Leave,
                ..Outcome::default()
            }))
        };
        let (NvmlState::Ready(_), Some(status)) = (&scene.inventory.nvml, scene.status) else {
            // What devices there are is not known, and what was told stands.
            return leave(None);
        };
        if scene.view.is_none() {
            return leave(None);
        }
        let Some(layout) = &status.layout else {
            return Err(Box::default());
        };
        let Some(asked) = status.asked.as_ref() else {
            // The layout means nothing here, or nobody has looked.
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
        let config = has_no_lengths(asked).and_then(|()| render(&offers, self.terms.strategy));
        let config = match config {
            // A device that is lost may come back: what was told stands until then.
            Ok(config) if config.resources.is_empty() => {
                let nothing = "nothing that the layout shares can be given out".to_owned();
                let why = [vec![nothing], compiled.warnings].concat();
                return refused(why.join("; "));
            }
            Ok(config) => plugin_config::text(&config),
            Err(error) => return refused(error.to_string()),
        };
        if config.len() > plugin_config::LONGEST {
            return refused(format!(
                "its configuration has {} bytes, and {} is the most",
                config.len(),
                plugin_config::LONGEST
            ));
        }
        let key = plugin_config::key(layout, &config);
        Ok(Wish {
            offers,
            told: Told { key, config },
        })
    }

    fn step(&mut self, scene: &Scene<'_>, wish: &Wish) -> Option<Step> {
        let heard = self
            .watch
            .as_mut()
            .map(|watch| watch.heard.borrow_and_update().clone());
        let heard = heard.unwrap_or_default();
        let facts = Facts {
            wish: &wish.told,
            wanted: &counts(&wish.offers),
            strategy: self.terms.strategy,
            view: scene.view?,
            config_map: self.terms.config_map.as_deref()?,
            heard: &heard,
            is_certain: self.terms.is_certain,
        };
        Some(self.course.look(scene.now, self.terms.limits, &facts))
    }

    /// What the label names is told whatever else there is to tell: the plugin does not start without that key.
    fn keep(&self, outcome: &mut Outcome) {
        let Some(key) = &self.named else { return };
        if outcome.status.is_none() && outcome.plugin_label == PluginLabel::Leave {
            outcome.status = Some(SharingStatus {
                mode: Mode::HandOff,
                state: Reason::SharingPending.word(),
                message: Some(format!(
                    "what the layout means here is not known now; NVIDIA's device plugin goes on by the key {key}"
                )),
                resources: Vec::new(),
                kept: Vec::new(),
                hand_off: None,
                named: None,
            });
        }
        if let Some(status) = &mut outcome.status {
            status.named = Some(key.clone());
        }
    }

    /// What was verified is given out until the Node says otherwise, however far what shall be is: by another key, or by what it
    /// has. What it offers changes with every device that is ill.
    fn remember(&mut self, outcome: &mut Outcome, view: Option<&View>) {
        if let Some(offers) = &outcome.in_force {
            let key = view.and_then(|view| view.labels.get(PLUGIN_CONFIG));
            self.verified = key.map(|key| (key.clone(), offers.clone()));
            return;
        }
        self.verified = self.verified.take().filter(|(key, offers)| {
            let Some(view) = view else { return true };
            let has = |(name, count): (&String, &u64)| view.capacity.get(name) == Some(count);
            view.labels.get(PLUGIN_CONFIG) == Some(key) && counts(offers).iter().all(has)
        });
        outcome.in_force = self.verified.as_ref().map(|(_, offers)| offers.clone());
    }

    fn order(&self, orders: Orders) {
        if let Some(watch) = &self.watch {
            watch.order(orders);
        }
    }

    /// Says in the log how it stands, once each; the Node's events come of the status. `gist` is what of it does not change with
    /// every minute.
    fn log(&mut self, status: Option<&SharingStatus>, gist: String) {
        let now = status.and_then(|status| Some((Reason::of(status.state)?, gist)));
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
            Kind::Normal => info!(reason = %reason.word(), "sharing: {message}"),
            Kind::Warning => warn!(reason = %reason.word(), "sharing: {message}"),
        }
    }
}

impl Giver for HandOff {
    fn look(&mut self, scene: Scene<'_>) -> Outcome {
        if let Some(view) = scene.view {
            self.named = named(view);
        }
        let (mut outcome, gist) = match self.wish(&scene) {
            Err(outcome) => {
                self.order(Orders::default());
                (*outcome, None)
            }
            Ok(wish) => match self.step(&scene, &wish) {
                None => {
                    let outcome = Outcome {
                        plugin_label: PluginLabel::Leave,
                        ..Outcome::default()
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
        self.keep(&mut outcome);
        self.remember(&mut outcome, scene.view);
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
            if watch.heard.changed().await.is_err() {
                // Whoever looks has ended, and so will we.
                pending::<()>().await;
            }
        })
    }
}

/// The key that the Node's label names, where an agent set it.
fn named(view: &View) -> Option<String> {
    let key = view.labels.get(PLUGIN_CONFIG)?;
    let owners = view.owners.labels.get(PLUGIN_CONFIG);
    let is_ours = owners.is_some_and(|all| all.contains(SHARING_MANAGER));
    (is_ours || key.starts_with(plugin_config::PREFIX)).then(|| key.clone())
}

/// What was found, without the words for it, in which times are.
fn causes(standing: &Standing) -> Option<String> {
    let Standing::NotInForce(found) = standing else {
        return None;
    };
    let causes: Vec<String> = found.iter().map(|one| format!("{:?}", one.cause)).collect();
    Some(causes.join(" "))
}

fn outcome(step: Step, wish: Wish, scene: &Scene<'_>) -> Outcome {
    let (reason, message) = match step.standing {
        Standing::Pending(words) => (Reason::SharingPending, words),
        Standing::InForce => (Reason::SharingInForce, String::new()),
        Standing::NotInForce(found) => (Reason::SharingNotInForce, diagnosis::said(&found)),
        Standing::Refused(finding) => (Reason::SharingRefused, finding.to_string()),
    };
    let status = SharingStatus {
        hand_off: (reason != Reason::SharingRefused).then_some(wish.told),
        ..said(reason, message, &wish.offers, scene)
    };
    Outcome {
        status: Some(status),
        in_force: (reason == Reason::SharingInForce).then_some(wish.offers),
        plugin_label: step.label,
        events: Vec::new(),
        again: step.again,
    }
}

fn shares_anything(asked: &Targets) -> bool {
    let mut all = asked.devices.iter();
    all.any(|device| {
        let sharing = device.time_slicing.as_ref();
        sharing.is_some_and(TimeSlicing::shares_anything)
    })
}

/// What is waited for while what there is now is not what shall be given out.
fn before(status: &Status, asked: &Targets) -> Option<String> {
    let state = status.state?;
    // A device that cannot be read keeps nothing from the others.
    let is_applied = |target: &DeviceTarget| {
        let mut devices = status.devices.iter();
        devices.any(|one| one.pci == target.pci && Reason::Applied.is(one.state))
    };
    let ends = [Reason::Failed, Reason::Blocked].map(Reason::word);
    let is_unverified = !asked.unverified.is_empty() && ends.contains(&state);
    if is_unverified && asked.devices.iter().all(is_applied) {
        return None;
    }
    let is_moving = [Reason::Pending, Reason::Applying].map(Reason::word);
    match state {
        _ if state == Reason::Applied.word() => None,
        _ if is_moving.contains(&state) => Some("it waits for the layout's partitions".to_owned()),
        _ => Some(format!(
            "it follows the layout, whose state is {state}: what was given out before stands until that is applied"
        )),
    }
}

fn said(reason: Reason, message: String, offers: &Offers, scene: &Scene<'_>) -> SharingStatus {
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
                // What the plugin thinks of it, it tells nobody but kubelet.
                health: Health::Healthy,
            })
            .collect(),
    });
    SharingStatus {
        mode: Mode::HandOff,
        state: reason.word(),
        message: (!message.is_empty()).then_some(message),
        resources: resources.collect(),
        kept: Vec::new(),
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
