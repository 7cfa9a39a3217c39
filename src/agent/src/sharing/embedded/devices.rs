//! Preconditions of offering a device's units, and the handling of devices that do not respond.

use std::collections::BTreeSet;

use octavo_model::id::PciAddress;
use octavo_model::inventory::{Condition, Inventory, NvmlState};
use octavo_model::reason::Reason;
use octavo_model::resource::ResourceName;
use octavo_model::sharing_status::Health;
use octavo_node::sharing::health::HealthMonitor;
use octavo_node::sharing::{Offer, Offers, Unit, offer};
use octavo_planner::layout::DeviceTarget;
use octavo_planner::reconcile::NodeLayoutStatus;

use crate::sharing::Observation;

/// Records the devices' condition and the Xids that they report.
pub(super) fn observe_health(monitor: &mut HealthMonitor, observation: &Observation<'_>) {
    if observation.is_read {
        monitor.record_inventory(observation.now, observation.inventory, observation.xids);
    } else {
        monitor.record_errors(observation.now, observation.xids);
    }
}

/// Returns whether the target's device is in one of these states.
fn has_state(target: &DeviceTarget, status: &NodeLayoutStatus, expected: &[Reason]) -> bool {
    let mut devices = status.devices.iter();
    let device = devices.find(|device| device.pci == target.pci);
    device.is_some_and(|device| expected.iter().any(|reason| device.state == *reason))
}

/// Returns whether the partitioning of the target's device is as desired; true if no partitioning is requested.
pub(super) fn is_in_force(target: &DeviceTarget, status: &NodeLayoutStatus) -> bool {
    target.mig.is_none() || has_state(target, status, &[Reason::Applied])
}

/// Returns whether the device's change has ended in a state that does not resolve by itself.
pub(super) fn has_failed(target: &DeviceTarget, status: &NodeLayoutStatus) -> bool {
    let ends = [Reason::Failed, Reason::RolledBack, Reason::Infeasible, Reason::NeedsReset];
    has_state(target, status, &ends)
}

/// Returns whether the device's change is blocked, such as by pods that run for weeks. Units allocated meanwhile block
/// the change like the current holders: it scans again once the gate is closed, and never destroys an allocated
/// instance (I1).
pub(super) fn is_blocked(target: &DeviceTarget, status: &NodeLayoutStatus) -> bool {
    has_state(target, status, &[Reason::Blocked])
}

pub(super) fn leave_out(offers: &mut Offers, devices: &BTreeSet<PciAddress>) {
    for offer in &mut offers.resources {
        offer.units.retain(|unit| !devices.contains(&unit.pci));
    }
    offers.resources.retain(|offer| !offer.units.is_empty());
}

/// Returns why a previously offered device is not offered; `None` if it responds, or is gone and not allocated.
pub(super) fn unresponsive_reason(
    inventory: &Inventory,
    pci: PciAddress,
    is_held: bool,
) -> Option<String> {
    if !matches!(inventory.nvml, NvmlState::Ready(_)) {
        return Some("the driver does not respond".to_owned());
    }
    let device = inventory.devices.iter().find(|device| device.pci == pci);
    match device.map(|device| &device.condition) {
        Some(Condition::Working) => None,
        Some(Condition::Failing { reason }) => Some(reason.clone()),
        Some(Condition::PciOnly { .. }) => Some("its driver does not manage it".to_owned()),
        None => is_held.then(|| "it is no longer on the PCI bus".to_owned()),
    }
}

/// Returns the health of a unit that is no longer desired and that only pods still hold.
pub(super) fn orphan_health(inventory: &Inventory, unit: &Unit, monitor: &HealthMonitor) -> Health {
    match offer::find(inventory, &unit.uuid) {
        Some(_) => monitor.health(unit),
        None => Health::Unhealthy { reason: "the driver no longer lists it".to_owned() },
    }
}

pub(super) fn put(offers: &mut Offers, name: &ResourceName, unit: &Unit) {
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
