//! The agent is the device plugin: what the layout asks is held against what pods have, and kubelet is told.

mod standing;

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tracing::{info, warn};

use self::standing::Sight;
use super::{Changed, Giver, Outcome, Scene};
use crate::domain::id::PciAddress;
use crate::domain::inventory::{Condition, Inventory, NvmlState};
use crate::domain::labels::MigStrategy;
use crate::domain::layout::{DeviceTarget, Targets, TimeSlicing};
use crate::domain::node::PluginLabel;
use crate::domain::node::telling::Event;
use crate::domain::reason::{Kind, Reason};
use crate::domain::reconcile::Status;
use crate::domain::sharing::health::{Health, Monitor};
use crate::domain::sharing::hold::{Held, Listing, hold};
use crate::domain::sharing::status::SharingStatus;
use crate::domain::sharing::{Compiled, Offer, Offers, ResourceName, Unit, offer};
use crate::k8s::device_plugin::{Answer, Gate, Report, Told};

/// How it is given out.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Under which names partitions are.
    pub strategy: MigStrategy,
    /// After how long what is not in force is looked into.
    pub deadline: Duration,
    /// Whether the Node chooses the layout, so that before it was seen nobody knows which.
    pub follows_node: bool,
}

/// The agent as the device plugin.
#[derive(Debug)]
pub struct Embedded {
    gate: Arc<Gate>,
    answer: Arc<dyn Answer>,
    report: watch::Receiver<Arc<Report>>,
    told: watch::Receiver<Arc<Told>>,
    rules: Rules,
    monitor: Monitor,
    /// How each device was shared when its partitioning was last what it should be.
    had: BTreeMap<PciAddress, Option<TimeSlicing>>,
    /// What was last given out of each device that answered.
    units: BTreeMap<PciAddress, Vec<(ResourceName, Unit)>>,
    /// How each unit was when it was last looked at.
    health: BTreeMap<String, Health>,
    /// Since when what is asked is not in force.
    waiting: Option<(Arc<Listing>, Duration)>,
    in_force: Option<Offers>,
    said: Option<(&'static str, Option<String>)>,
}

impl Embedded {
    /// What is listed at `gate` and told to containers by `answer`, of which kubelet has followed as far as the other two say.
    pub fn new(
        (gate, answer): (Arc<Gate>, Arc<dyn Answer>),
        report: watch::Receiver<Arc<Report>>,
        told: watch::Receiver<Arc<Told>>,
        rules: Rules,
    ) -> Self {
        Self {
            gate,
            answer,
            report,
            told,
            rules,
            monitor: Monitor::default(),
            had: BTreeMap::new(),
            units: BTreeMap::new(),
            health: BTreeMap::new(),
            waiting: None,
            in_force: None,
            said: None,
        }
    }

    /// What is asked of devices, where those whose partitioning is not what it should be keep the sharing they had: both are one
    /// change. Which these are.
    fn targets(&mut self, status: Option<&Status>) -> (Targets, Vec<PciAddress>) {
        let mut waiting = Vec::new();
        let asked = status.and_then(|status| status.asked.as_deref());
        let Some((status, asked)) = status.zip(asked) else {
            return (Targets::default(), waiting);
        };
        let mut targets = asked.clone();
        for target in &mut targets.devices {
            if is_in_force(target, status) {
                self.had.insert(target.pci, target.time_slicing.clone());
                continue;
            }
            // Where nobody knows what it had, as after a start, it is given out whole: what pods have in replicas they keep.
            target.time_slicing = self.had.get(&target.pci).cloned().flatten();
            waiting.push(target.pci);
        }
        (targets, waiting)
    }

    /// Whether it is known what is asked: at the start, a layout may still be looked up, or the Node that names it be unseen.
    fn is_decided(&self, scene: &Scene<'_>) -> bool {
        let is_unseen = self.rules.follows_node && scene.view.is_none();
        let is_unlooked = scene.status.is_some_and(|status| {
            status.layout.is_some() && status.asked.is_none() && status.notice.is_none()
        });
        !is_unseen && !is_unlooked
    }

    /// What is given out of devices that answer, and of those that do not what was given out of them before; why they do not.
    fn with_absent(
        &mut self,
        offers: &Offers,
        inventory: &Inventory,
    ) -> (Offers, BTreeMap<PciAddress, String>) {
        let mut present: BTreeMap<PciAddress, Vec<(ResourceName, Unit)>> = BTreeMap::new();
        for (offer, unit) in offers.units() {
            let units = present.entry(unit.pci).or_default();
            units.push((offer.name.clone(), unit.clone()));
        }
        let mut away = BTreeMap::new();
        let held: BTreeSet<String> = self.held_units();
        let known = std::mem::take(&mut self.units);
        for (pci, units) in known {
            if present.contains_key(&pci) {
                continue;
            }
            let is_held = units.iter().any(|(_, unit)| held.contains(&unit.uuid));
            if let Some(reason) = why_away(inventory, pci, is_held) {
                away.insert(pci, reason);
                present.insert(pci, units);
            }
        }
        let mut all = offers.clone();
        for pci in away.keys() {
            for (name, unit) in present.get(pci).into_iter().flatten() {
                put(&mut all, name, unit);
            }
        }
        self.units = present;
        (all, away)
    }

    fn held_units(&self) -> BTreeSet<String> {
        let mut held = BTreeSet::new();
        for one in self.gate.held() {
            let uuid = one.device_id.split("::").next();
            held.extend(uuid.map(ToOwned::to_owned));
        }
        held
    }

    /// What of the units' health is news.
    fn turns(&mut self, listing: &Listing, changing: &BTreeSet<PciAddress>) -> Vec<Event> {
        let mut events = Vec::new();
        let mut now = BTreeMap::new();
        for (name, listed) in &listing.resources {
            for unit in &listed.offer.units {
                let mut of_unit = listed
                    .items
                    .iter()
                    .filter(|item| item.id.uuid() == unit.uuid);
                let Some(item) = of_unit.next() else { continue };
                let before = self.health.get(&unit.uuid);
                if changing.contains(&unit.pci) {
                    // That was asked for.
                    let kept = before.cloned().unwrap_or_default();
                    now.insert(unit.uuid.clone(), kept);
                    continue;
                }
                let was_healthy = before.is_none_or(Health::is_healthy);
                let what = format!("{} {} of {}", name.short(), unit.uuid, unit.pci);
                match &item.health {
                    Health::Unhealthy { reason } if was_healthy => events.push(Event {
                        reason: Reason::DeviceUnhealthy,
                        message: format!("{what} is not given out any more: {reason}"),
                    }),
                    Health::Healthy if !was_healthy => events.push(Event {
                        reason: Reason::DeviceHealthy,
                        message: format!("{what} is given out again"),
                    }),
                    Health::Unhealthy { .. } | Health::Healthy => {}
                }
                now.insert(unit.uuid.clone(), item.health.clone());
            }
        }
        self.health = now;
        events
    }

    /// How long it has been so that what is listed now is not in force.
    fn waited(&mut self, waits: bool, listing: &Arc<Listing>, now: Duration) -> Duration {
        let known = self.waiting.take().filter(|(of, _)| of == listing);
        if !waits {
            return Duration::ZERO;
        }
        let (of, since) = known.unwrap_or_else(|| (Arc::clone(listing), now));
        self.waiting = Some((of, since));
        now.saturating_sub(since)
    }

    /// The turns of the way, each once.
    fn news(&mut self, status: &SharingStatus) -> Option<Event> {
        let now = (status.state, status.message.clone());
        if self.said.as_ref() == Some(&now) {
            return None;
        }
        let before = self.said.replace(now);
        let reason = Reason::of(status.state)?;
        let message = status.message.clone().unwrap_or_else(|| {
            let all = status.resources.iter();
            let all: Vec<String> = all
                .map(|one| format!("{} {}", one.wanted, one.name))
                .collect();
            all.join(", ")
        });
        match reason.kind() {
            Kind::Normal => info!(reason = %status.state, "sharing: {message}"),
            Kind::Warning => warn!(reason = %status.state, "sharing: {message}"),
        }
        let is_turn = before.is_none_or(|(state, _)| state != status.state);
        (is_turn && reason.event().is_some()).then_some(Event { reason, message })
    }
}

impl Giver for Embedded {
    fn look(&mut self, scene: Scene<'_>) -> Outcome {
        self.monitor.see(scene.now, scene.inventory, scene.xids);
        let (targets, waiting) = self.targets(scene.status);
        let Compiled { offers, warnings } =
            offer::compile(scene.inventory, &targets, self.rules.strategy);
        let (offers, away) = self.with_absent(&offers, scene.inventory);
        let is_decided = self.is_decided(&scene);
        let monitor = &self.monitor;
        let mut changing = BTreeSet::new();
        self.gate.list(scene.inventory, |view| {
            changing.clone_from(&view.changing);
            let held = Held {
                given: &view.given,
                is_all: view.is_all && is_decided,
                inventory: scene.inventory,
            };
            hold(&offers, held, view.before, |unit| {
                if view.changing.contains(&unit.pci) {
                    let reason = "its device is being changed".to_owned();
                    return Health::Unhealthy { reason };
                }
                match away.get(&unit.pci) {
                    Some(reason) => Health::Unhealthy {
                        reason: reason.clone(),
                    },
                    None if offers.unit(&unit.uuid).is_none() => {
                        left(scene.inventory, unit, monitor)
                    }
                    None => monitor.health(unit),
                }
            })
        });
        let listing = Arc::clone(&self.gate.listing().borrow());
        // No kubelet can ask in between: the program has one thread, and nothing is waited for here.
        let units: Vec<Unit> = listing
            .resources
            .values()
            .flat_map(|listed| listed.offer.units.iter().cloned())
            .collect();
        let undelivered = self.answer.offer(&scene.inventory.devices, &units).err();
        let report = Arc::clone(&self.report.borrow_and_update());
        let told = Arc::clone(&self.told.borrow_and_update());
        let sight = Sight {
            scene,
            offers: &offers,
            listing: &listing,
            report: &report,
            told: &told,
            waiting: &waiting,
            warnings: &warnings,
            undelivered: undelivered.as_deref(),
            is_decided,
        };
        let fault = sight.fault();
        let waited = self.waited(fault.is_some(), &listing, scene.now);
        let is_late = waited >= self.rules.deadline;
        let status = sight.status(fault.as_ref(), is_late);
        if fault.is_none() {
            self.in_force = Some(offers.clone());
        }
        let mut events = self.turns(&listing, &changing);
        for event in &events {
            let word = event.reason.word();
            match event.reason.kind() {
                Kind::Normal => info!(reason = %word, "{}", event.message),
                Kind::Warning => warn!(reason = %word, "{}", event.message),
            }
        }
        events.extend(self.news(&status));
        let deadline =
            (fault.is_some() && !is_late).then(|| self.rules.deadline.saturating_sub(waited));
        let health = self.monitor.again();
        let health = health.map(|at| at.saturating_sub(scene.now));
        Outcome {
            status: Some(status),
            in_force: self.in_force.clone(),
            plugin_label: PluginLabel::Absent,
            events,
            again: [deadline, health].into_iter().flatten().min(),
        }
    }

    fn changed(&mut self) -> Changed<'_> {
        Box::pin(async {
            tokio::select! {
                Ok(()) = self.report.changed() => {}
                Ok(()) = self.told.changed() => {}
                // Both have ended, and so will we.
                else => pending().await,
            }
        })
    }
}

/// Whether a device's partitioning is what it should be, where anything is asked of it.
fn is_in_force(target: &DeviceTarget, status: &Status) -> bool {
    let mut devices = status.devices.iter();
    let device = devices.find(|device| device.pci == target.pci);
    target.mig.is_none() || device.is_some_and(|device| Reason::Applied.is(device.state))
}

/// Why nothing is given out of a device that was given out before; `None` where it answers, or is gone and nobody has it.
fn why_away(inventory: &Inventory, pci: PciAddress, is_held: bool) -> Option<String> {
    if !matches!(inventory.nvml, NvmlState::Ready(_)) {
        return Some("the driver does not answer".to_owned());
    }
    let device = inventory.devices.iter().find(|device| device.pci == pci);
    match device.map(|device| &device.condition) {
        Some(Condition::Working) => None,
        Some(Condition::Failing { reason }) => Some(reason.clone()),
        Some(Condition::PciOnly { .. }) => Some("its driver does not speak for it".to_owned()),
        None => is_held.then(|| "it is gone from the bus".to_owned()),
    }
}

/// How a unit is of which nothing is asked, and which only pods still have.
fn left(inventory: &Inventory, unit: &Unit, monitor: &Monitor) -> Health {
    match offer::find(inventory, &unit.uuid) {
        Some(_) => monitor.health(unit),
        None => Health::Unhealthy {
            reason: "the driver does not tell of it any more".to_owned(),
        },
    }
}

fn put(offers: &mut Offers, name: &ResourceName, unit: &Unit) {
    let found = offers.resources.iter_mut().find(|one| one.name == *name);
    if let Some(offer) = found {
        offer.units.push(unit.clone());
        return;
    }
    offers.resources.push(Offer {
        name: name.clone(),
        fail_requests_greater_than_one: false,
        units: vec![unit.clone()],
    });
    offers.resources.sort_by(|a, b| a.name.cmp(&b.name));
}
