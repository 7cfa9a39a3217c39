//! The built-in device plugin: compares the layout's offers with the pods' allocations, and lists devices to kubelet.

mod devices;
mod previous_sharing;
mod status;
mod time_slice_setter;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use octavo_kubelet::device_plugin::{
    AllocationGate, DevicePluginReport, DeviceResponder, KubeletReport,
};
use octavo_model::id::PciAddress;
use octavo_model::inventory::Inventory;
use octavo_model::reason::Reason;
use octavo_model::reported::Reported;
use octavo_model::resource::ResourceName;
use octavo_model::sharing_status::{Health, SharingStatus};
use octavo_node::mig_strategy::MigStrategy;
use octavo_node::node_object::PluginLabel;
use octavo_node::node_object::event_deduplicator::Event;
use octavo_node::sharing::health::{HealthMonitor, XidTable};
use octavo_node::sharing::listing::{HeldIds, Listing, reconcile_listing};
use octavo_node::sharing::withhold::WithholdingController;
use octavo_node::sharing::{CompiledOffers, Offers, Unit, offer, slice_length};
use tokio::sync::watch;

use self::devices::{leave_out, observe_health, orphan_health, put, unresponsive_reason};
use self::previous_sharing::{DesiredSharing, PreviousSharing};
use self::status::StatusInputs;
use self::time_slice_setter::TimeSliceSetter;
use super::{Observation, SharingBackend, SharingOutcome};
use crate::observation_log::log_by_severity;

/// Settings of the built-in device plugin.
#[derive(Debug, Clone)]
pub struct EmbeddedSettings {
    /// Resource names of partitions.
    pub strategy: MigStrategy,
    /// Time after which an offer that is not effective yet is reported as a problem.
    pub deadline: Duration,
    /// Time after which idle partitions and replicas of a device are withheld if its layout is blocked; `None` for
    /// never.
    pub withhold_after: Option<Duration>,
    /// Whether the Node selects the layout, so that it is not known before the Node was read.
    pub follows_node: bool,
    /// Effect of each Xid on the device that reports it.
    pub xids: XidTable,
    /// Absolute path of `nvidia-smi`, which sets the time slices.
    pub nvidia_smi: PathBuf,
    /// The state directory, which retains how devices are shared; `None` without one.
    pub state: Option<PathBuf>,
}

/// Desired number of devices per resource.
type DesiredCounts = BTreeMap<ResourceName, usize>;

/// The built-in device plugin.
#[derive(Debug)]
pub struct EmbeddedBackend {
    gate: Arc<AllocationGate>,
    responder: Arc<DeviceResponder>,
    report: watch::Receiver<Arc<DevicePluginReport>>,
    registration: watch::Receiver<Arc<KubeletReport>>,
    settings: EmbeddedSettings,
    monitor: HealthMonitor,
    setter: TimeSliceSetter,
    previous: PreviousSharing,
    withholding: WithholdingController,
    /// The last offered units of each device that responded.
    units: BTreeMap<PciAddress, Vec<(ResourceName, Unit)>>,
    /// Health of each unit at the last scan.
    health: BTreeMap<String, Health>,
    /// Since when the desired offer is not effective.
    waiting: Option<(DesiredCounts, Duration)>,
    current_offers: Option<Offers>,
    logged: Option<(Reported<Reason>, Option<String>)>,
}

impl EmbeddedBackend {
    /// Creates the backend. Devices are listed through `gate` and injected into containers through `responder`; `report`
    /// and `registration` contain what kubelet has accepted.
    pub fn new(
        (gate, responder): (Arc<AllocationGate>, Arc<DeviceResponder>),
        report: watch::Receiver<Arc<DevicePluginReport>>,
        registration: watch::Receiver<Arc<KubeletReport>>,
        settings: EmbeddedSettings,
    ) -> Self {
        Self {
            gate,
            responder,
            report,
            registration,
            monitor: HealthMonitor::new(settings.xids.clone()),
            setter: TimeSliceSetter::new(settings.nvidia_smi.clone()),
            previous: PreviousSharing::new(settings.state.clone()),
            withholding: WithholdingController::new(settings.withhold_after),
            settings,
            units: BTreeMap::new(),
            health: BTreeMap::new(),
            waiting: None,
            current_offers: None,
            logged: None,
        }
    }

    /// Returns whether the desired offer is known: at the start, the layout may not be resolved yet, or the Node that
    /// selects it not read.
    fn is_decided(&self, observation: &Observation<'_>) -> bool {
        let is_unseen = self.settings.follows_node && observation.view.is_none();
        let is_unlooked = observation.status.is_some_and(|status| {
            status.layout.is_some()
                && status.targets.is_none()
                && !previous_sharing::is_unusable(status)
        });
        !is_unseen && !is_unlooked && self.gate.is_serving()
    }

    /// Adds the previously offered units of devices that do not respond. Also returns why they do not respond.
    fn with_unresponsive(
        &mut self,
        offers: &Offers,
        inventory: &Inventory,
    ) -> (Offers, BTreeMap<PciAddress, String>) {
        let mut present: BTreeMap<PciAddress, Vec<(ResourceName, Unit)>> = BTreeMap::new();
        for (offer, unit) in offers.units() {
            let units = present.entry(unit.pci).or_default();
            units.push((offer.name.clone(), unit.clone()));
        }
        let mut unresponsive = BTreeMap::new();
        let held: BTreeSet<String> = self.held_units();
        let known = std::mem::take(&mut self.units);
        for (pci, units) in known {
            if present.contains_key(&pci) {
                continue;
            }
            let is_held = units.iter().any(|(_, unit)| held.contains(&unit.uuid));
            if let Some(reason) = unresponsive_reason(inventory, pci, is_held) {
                unresponsive.insert(pci, reason);
                present.insert(pci, units);
            }
        }
        let mut all = offers.clone();
        for pci in unresponsive.keys() {
            for (name, unit) in present.get(pci).into_iter().flatten() {
                put(&mut all, name, unit);
            }
        }
        self.units = present;
        (all, unresponsive)
    }

    fn held_units(&self) -> BTreeSet<String> {
        let mut held = BTreeSet::new();
        for one in self.gate.held() {
            let uuid = one.device_id.split("::").next();
            held.extend(uuid.map(ToOwned::to_owned));
        }
        held
    }

    /// Returns an event for each change of a unit's health.
    fn health_events(&mut self, listing: &Listing, changing: &BTreeSet<PciAddress>) -> Vec<Event> {
        let mut events = Vec::new();
        let mut now = BTreeMap::new();
        for (name, listed) in &listing.resources {
            for unit in &listed.offer.units {
                let mut of_unit = listed.items.iter().filter(|item| item.id.uuid() == unit.uuid);
                let Some(item) = of_unit.next() else { continue };
                let before = self.health.get(&unit.uuid);
                if changing.contains(&unit.pci) {
                    // The change was requested.
                    let previous = before.cloned().unwrap_or_default();
                    now.insert(unit.uuid.clone(), previous);
                    continue;
                }
                let was_healthy = before.is_none_or(Health::is_healthy);
                let what = format!("{} {} of {}", name.short(), unit.uuid, unit.pci);
                match &item.health {
                    Health::Unhealthy { reason } if was_healthy => events.push(Event {
                        reason: Reason::DeviceUnhealthy,
                        message: format!("{what} is no longer allocated: {reason}"),
                        unit: Some(unit.uuid.clone()),
                    }),
                    Health::Healthy if !was_healthy => events.push(Event {
                        reason: Reason::DeviceHealthy,
                        message: format!("{what} can be allocated again"),
                        unit: Some(unit.uuid.clone()),
                    }),
                    Health::Unhealthy { .. } | Health::Healthy => {}
                }
                now.insert(unit.uuid.clone(), item.health.clone());
            }
        }
        self.health = now;
        events
    }

    /// Returns how long the current desired offer has not been effective.
    fn pending_for(&mut self, waits: bool, desired: &Offers, now: Duration) -> Duration {
        // A device that comes and goes changes what is listed, but not what is desired.
        let wanted = desired.resources.iter();
        let wanted: DesiredCounts = wanted.map(|one| (one.name.clone(), one.count())).collect();
        let known = self.waiting.take().filter(|(counts, _)| *counts == wanted);
        if !waits {
            return Duration::ZERO;
        }
        let since = known.map_or(now, |(_, since)| since);
        self.waiting = Some((wanted, since));
        now.saturating_sub(since)
    }

    /// Logs each status once. The Node's events derive from the status.
    fn log(&mut self, status: &SharingStatus) {
        let now = (status.state.clone(), status.message.clone());
        if self.logged.as_ref() == Some(&now) {
            return;
        }
        self.logged = Some(now);
        let message = status.message.clone().unwrap_or_else(|| {
            let all = status.resources.iter();
            let all: Vec<String> = all.map(|one| format!("{} {}", one.wanted, one.name)).collect();
            all.join(", ")
        });
        if let Some(reason) = status.state.known() {
            log_by_severity(reason, &format!("sharing: {message}"));
        }
    }

    /// Lists the offers and the pods' allocations to kubelet. Returns the devices that are being changed.
    fn list(
        &self,
        inventory: &Inventory,
        offers: &Offers,
        unresponsive: &BTreeMap<PciAddress, String>,
        is_decided: bool,
    ) -> BTreeSet<PciAddress> {
        let monitor = &self.monitor;
        let withheld = self.withholding.devices();
        let mut changing = BTreeSet::new();
        self.gate.list(inventory, |view| {
            changing.clone_from(&view.changing);
            let held = HeldIds {
                allocations: &view.allocations,
                is_complete: view.is_complete && is_decided,
                inventory,
                withheld: &withheld,
            };
            reconcile_listing(offers, held, view.before, |unit| {
                if view.changing.contains(&unit.pci) {
                    let reason = "its device is being changed".to_owned();
                    return Health::Unhealthy { reason };
                }
                match unresponsive.get(&unit.pci) {
                    Some(reason) => Health::Unhealthy { reason: reason.clone() },
                    None if offers.unit(&unit.uuid).is_none() => {
                        orphan_health(inventory, unit, monitor)
                    }
                    None => monitor.health(unit),
                }
            })
        });
        changing
    }
}

fn listed_units(listing: &Listing) -> Vec<Unit> {
    let listed = listing.resources.values();
    listed.flat_map(|one| one.offer.units.iter().cloned()).collect()
}

#[tonic::async_trait]
impl SharingBackend for EmbeddedBackend {
    fn reconcile(&mut self, observation: Observation<'_>) -> SharingOutcome {
        observe_health(&mut self.monitor, &observation);
        let DesiredSharing { targets, waiting, unknown } =
            self.previous.desired(observation, self.gate.is_serving());
        let CompiledOffers { mut offers, warnings, unoffered } =
            offer::compile(observation.inventory, &targets, self.settings.strategy);
        leave_out(&mut offers, &unknown);
        let (offers, unresponsive) = self.with_unresponsive(&offers, observation.inventory);
        let is_decided = self.is_decided(&observation);
        self.withholding.update(observation.now, observation.status, observation.drained);
        let changing = self.list(observation.inventory, &offers, &unresponsive, is_decided);
        let listing = Arc::clone(&self.gate.listing().borrow());
        // Kubelet cannot ask in between: the program has one thread, and nothing is awaited here.
        let units = listed_units(&listing);
        let undelivered = self.responder.offer(&observation.inventory.devices, &units);
        let undelivered = undelivered.err().map(|error| error.to_string());
        let report = Arc::clone(&self.report.borrow_and_update());
        let kubelet = Arc::clone(&self.registration.borrow_and_update());
        let unsteady = waiting.iter().chain(&changing).copied().collect();
        let slice_input = slice_length::SliceInput {
            inventory: observation.inventory,
            targets: &targets,
            unsteady: &unsteady,
            is_busy: !changing.is_empty(),
        };
        self.setter.step(observation.now, is_decided.then_some(slice_input));
        let time_slice_fault =
            status::time_slice_fault(observation.inventory, self.setter.slices());
        let failing = status::failing(observation.inventory);
        let unoffered = status::unoffered(observation.inventory, &unoffered);
        let inputs = StatusInputs {
            observation,
            offers: &offers,
            listing: &listing,
            report: &report,
            kubelet: &kubelet,
            waiting: &waiting,
            unknown: &unknown,
            warnings: &warnings,
            undelivered: undelivered.as_deref(),
            beside: [failing.as_ref(), unoffered.as_ref(), time_slice_fault.as_ref()],
            is_decided,
        };
        let fault = inputs.fault();
        let waited = self.pending_for(fault.is_some(), &offers, observation.now);
        let is_late = waited >= self.settings.deadline;
        let status = inputs.status(fault.as_ref(), is_late);
        if fault.is_none() {
            self.current_offers = Some(offers.clone());
        }
        let events = self.health_events(&listing, &changing);
        for event in &events {
            log_by_severity(event.reason, &event.message);
        }
        self.log(&status);
        let deadline =
            (fault.is_some() && !is_late).then(|| self.settings.deadline.saturating_sub(waited));
        let health = self.monitor.again();
        let slices = self.setter.slices().again();
        let withhold = self.withholding.again(observation.now);
        let at = [health, slices, withhold].into_iter().flatten().min();
        let at = at.map(|at| at.saturating_sub(observation.now));
        SharingOutcome {
            status: Some(status),
            current_offers: self.current_offers.clone(),
            plugin_label: PluginLabel::Absent,
            events,
            again: [deadline, at].into_iter().flatten().min(),
        }
    }

    async fn changed(&mut self) {
        tokio::select! {
            Ok(()) = self.report.changed() => {}
            Ok(()) = self.registration.changed() => {}
            () = self.setter.changed() => {}
        }
    }
}

#[cfg(test)]
mod tests;
