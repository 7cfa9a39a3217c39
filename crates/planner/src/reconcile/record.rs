//! State that must survive a crash and cannot be read from the hardware: the geometry of each device before its
//! change.

use std::borrow::Cow;
use std::collections::BTreeSet;

use octavo_model::id::{GpuUuid, PciAddress};
use octavo_model::inventory::{Condition, Device, GpuInstance, Inventory, NvmlState};
use serde::{Deserialize, Serialize};

use crate::layout::{DeviceTarget, MigTarget, TargetScope, Targets, compare, current_target};

/// An apply that has started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApplyRecord {
    /// The plan's id.
    pub plan: String,
    /// The layout's name.
    pub layout: String,
    /// The devices that are not settled yet, in the order of their addresses, each once.
    pub devices: Vec<ApplyRecordEntry>,
}

/// One device of an apply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApplyRecordEntry {
    /// The device.
    pub pci: PciAddress,
    /// Distinguishes the device from another one in the same slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<GpuUuid>,
    /// The plan that changed this device. Empty in the journal if it is that of the record.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub plan: String,
    /// The layout of that plan. Empty in the journal if it is that of the record.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub layout: String,
    /// The geometry before the change, with the placement of each instance; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous: Option<MigTarget>,
    /// The desired geometry.
    pub target: MigTarget,
}

/// Returns `targets` plus the interrupted changes of `record`, which is absent if there are none.
pub fn targets_with_interrupted<'a>(
    record: Option<&ApplyRecord>,
    inventory: &Inventory,
    targets: &'a Targets,
) -> Cow<'a, Targets> {
    record.map_or(Cow::Borrowed(targets), |record| {
        Cow::Owned(record.with_interrupted(inventory, targets))
    })
}

impl ApplyRecord {
    /// The entry of the device at `pci`, if it is still the same device.
    pub fn entry(&self, inventory: &Inventory, pci: PciAddress) -> Option<&ApplyRecordEntry> {
        let device = inventory.device(pci)?;
        let mut entries = self.devices.iter();
        entries.find(|entry| entry.pci == pci && entry.matches(device))
    }

    /// Devices whose change was interrupted and that are present.
    pub fn interrupted(&self, inventory: &Inventory) -> BTreeSet<PciAddress> {
        let entries = self.devices.iter().map(|entry| entry.pci);
        entries.filter(|pci| self.entry(inventory, *pci).is_some()).collect()
    }

    /// Devices whose change was interrupted and that are absent now.
    pub fn absent(&self, inventory: &Inventory) -> BTreeSet<PciAddress> {
        let entries = self.devices.iter().map(|entry| entry.pci);
        entries.filter(|pci| inventory.device(*pci).is_none()).collect()
    }

    /// Returns `targets` plus the interrupted changes of devices that `targets` does not cover. Absent devices are
    /// left out.
    pub fn with_interrupted(&self, inventory: &Inventory, targets: &Targets) -> Targets {
        let mut targets = targets.clone();
        for pci in self.interrupted(inventory) {
            let Some(entry) = self.entry(inventory, pci) else {
                continue;
            };
            let target = targets.devices.iter_mut().find(|target| target.pci == pci);
            match target {
                Some(target) => {
                    let state = inventory.device(pci).and_then(|device| device.mig.state());
                    let mode = entry.target.mode();
                    let agrees = target.mig.as_ref().is_none_or(|mig| mig.mode() == mode);
                    if agrees && target.partitioning(state).is_none() {
                        target.mig = Some(entry.target.clone());
                        target.scope = TargetScope::Layout;
                    }
                }
                None => targets.devices.push(entry.as_target()),
            }
        }
        targets.devices.sort_by_key(|target| target.pci);
        targets
    }
}

impl ApplyRecordEntry {
    /// Returns whether `device` is the one whose change was started. It is a different one only if both UUIDs are
    /// known and differ.
    pub fn matches(&self, device: &Device) -> bool {
        let both = self.uuid.as_ref().zip(device.uuid.as_ref());
        both.is_none_or(|(begun, now)| begun == now)
    }

    /// Returns whether the device is known to have exactly its previous geometry. Then the change never touched it or
    /// was rolled back, and there is nothing to finish.
    pub fn is_at_previous(&self, inventory: &Inventory) -> bool {
        let is_ready = matches!(inventory.nvml, NvmlState::Ready(_));
        let Some(device) = inventory.device(self.pci).filter(|_| is_ready) else {
            return false;
        };
        if device.condition != Condition::Working || !device.mig.is_fully_known() {
            return false;
        }
        let Some(state) = device.mig.state() else {
            return false;
        };
        // A GPU instance without a compute instance is not part of a target, and may be left from an unfinished
        // creation.
        let is_whole = |one: &GpuInstance| !one.compute_instances.is_empty();
        state.current == state.pending
            && state.gpu_instances.iter().all(is_whole)
            && self.previous.is_some()
            && current_target(state) == self.previous
    }

    /// Returns whether the device has the requested geometry. The placement of a partition counts only if the change
    /// specified it.
    pub fn is_reached(&self, inventory: &Inventory) -> bool {
        let targets = Targets { devices: vec![self.as_target()], ..Targets::default() };
        compare(&targets, inventory).is_empty()
    }

    fn as_target(&self) -> DeviceTarget {
        DeviceTarget::generated(self.pci, self.target.clone(), TargetScope::Layout)
    }
}
