//! What is to be known of a device before its units are given out, and what becomes of those of one that does not answer.

use std::collections::BTreeSet;

use crate::agent::sharing::Scene;
use crate::domain::id::PciAddress;
use crate::domain::inventory::{Condition, Inventory, NvmlState};
use crate::domain::layout::DeviceTarget;
use crate::domain::reason::Reason;
use crate::domain::reconcile::Status;
use crate::domain::sharing::health::{Health, Monitor};
use crate::domain::sharing::{Offer, Offers, ResourceName, Unit, offer};

/// Takes in how devices are, and what they report.
pub(super) fn take_in(monitor: &mut Monitor, scene: &Scene<'_>) {
    if scene.is_read {
        monitor.see(scene.now, scene.inventory, scene.xids);
    } else {
        monitor.hear(scene.now, scene.xids);
    }
}

/// Whether a device's partitioning is what it should be, where anything is asked of it.
pub(super) fn is_in_force(target: &DeviceTarget, status: &Status) -> bool {
    let mut devices = status.devices.iter();
    let device = devices.find(|device| device.pci == target.pci);
    target.mig.is_none() || device.is_some_and(|device| Reason::Applied.is(device.state))
}

/// Whether it stays what it is until somebody does something.
pub(super) fn has_failed(target: &DeviceTarget, status: &Status) -> bool {
    let mut devices = status.devices.iter();
    let device = devices.find(|device| device.pci == target.pci);
    device.is_some_and(|device| {
        let ends = [
            Reason::Failed,
            Reason::RolledBack,
            Reason::Infeasible,
            Reason::NeedsReset,
        ];
        ends.iter().any(|reason| reason.is(device.state))
    })
}

/// Whether its change waits for others, such as for pods that run for weeks. What is given out of it meanwhile is in the change's
/// way like what blocks it now: it looks again when the gate is closed, and destroys nothing that somebody was given (I1).
pub(super) fn is_blocked(target: &DeviceTarget, status: &Status) -> bool {
    let mut devices = status.devices.iter();
    let device = devices.find(|device| device.pci == target.pci);
    device.is_some_and(|device| Reason::Blocked.is(device.state))
}

pub(super) fn leave_out(offers: &mut Offers, devices: &BTreeSet<PciAddress>) {
    for offer in &mut offers.resources {
        offer.units.retain(|unit| !devices.contains(&unit.pci));
    }
    offers.resources.retain(|offer| !offer.units.is_empty());
}

/// Why nothing is given out of a device that was given out before; `None` where it answers, or is gone and nobody has it.
pub(super) fn why_away(inventory: &Inventory, pci: PciAddress, is_held: bool) -> Option<String> {
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
pub(super) fn left(inventory: &Inventory, unit: &Unit, monitor: &Monitor) -> Health {
    match offer::find(inventory, &unit.uuid) {
        Some(_) => monitor.health(unit),
        None => Health::Unhealthy {
            reason: "the driver does not tell of it any more".to_owned(),
        },
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
