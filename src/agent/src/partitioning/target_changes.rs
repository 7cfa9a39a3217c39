//! Changes of the targets of a node's devices, and their count.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_model::id::PciAddress;
use octavo_model::reason::Reason;
use octavo_planner::layout::{DeviceTarget, MigTarget, Targets};

/// State of a node whose layout cannot be used on it.
pub(super) const REFUSED_STATE: Reason = Reason::Failed;
/// State of a node that another program partitions.
pub(super) const HELD_STATE: Reason = Reason::Yielded;
/// State of a node whose layout is about to change.
pub(super) const UNSETTLED_STATE: Reason = Reason::Pending;

/// The last target of each device. A device that is temporarily absent, such as during a driver reload, has the same
/// target when it returns.
#[derive(Debug, Default)]
pub(super) struct TargetChanges {
    layout: String,
    devices: BTreeMap<PciAddress, Option<MigTarget>>,
    count: u64,
}

impl TargetChanges {
    /// Compares the targets of `layout` with the previous ones; `resend` counts them as changed in any case.
    pub(super) fn observe(&mut self, resend: bool, layout: &str, targets: &Targets) {
        let mut differs = resend || self.layout != layout;
        if differs {
            layout.clone_into(&mut self.layout);
            self.devices.clear();
        }
        for device in &targets.devices {
            let known = self.devices.insert(device.pci, device.mig.clone());
            differs |= known.is_some_and(|known| known != device.mig);
        }
        self.count = self.count.saturating_add(u64::from(differs));
    }

    /// Returns how many times the targets changed.
    pub(super) fn count(&self) -> u64 {
        self.count
    }
}

/// Returns the devices whose target differs from `before`, whichever rule sets it; all devices if the layout was
/// selected again.
pub(super) fn differing(
    before: Option<&(String, Arc<Targets>)>,
    (name, now): &(String, Arc<Targets>),
) -> BTreeSet<PciAddress> {
    let before = before.filter(|(known, _)| known == name);
    let known = |pci: PciAddress| {
        let mut devices = before.into_iter().flat_map(|(_, targets)| &targets.devices);
        devices.find(|device| device.pci == pci)
    };
    let differs =
        |device: &&DeviceTarget| known(device.pci).is_none_or(|known| known.mig != device.mig);
    let devices = now.devices.iter().filter(differs);
    devices.map(|device| device.pci).collect()
}

#[cfg(test)]
mod tests {
    use octavo_model::source_position::SourcePosition;
    use octavo_planner::layout::{DeviceTarget, TargetScope};

    use super::*;

    fn targets(devices: &[(u8, Option<MigTarget>)]) -> Targets {
        let device = |(number, mig): &(u8, Option<MigTarget>)| DeviceTarget {
            pci: PciAddress::new(0, *number, 0, 0).unwrap(),
            rule: SourcePosition::default(),
            mig: mig.clone(),
            time_slicing: None,
            scope: TargetScope::Layout,
        };
        Targets { devices: devices.iter().map(device).collect(), ..Targets::default() }
    }

    #[test]
    fn only_target_changes_are_counted_not_device_presence() {
        let (off, small) = (Some(MigTarget::Disabled), Some(MigTarget::Enabled(Vec::new())));
        let both = targets(&[(1, off.clone()), (2, off.clone())]);
        let mut changes = TargetChanges::default();
        changes.observe(true, "night", &both);
        assert_eq!(changes.count(), 1);
        for seen in [&targets(&[]), &both, &targets(&[(1, off.clone())]), &both] {
            changes.observe(false, "night", seen);
            assert_eq!(changes.count(), 1, "{seen:?}");
        }
        let edited = targets(&[(1, off), (2, small)]);
        changes.observe(false, "night", &edited);
        assert_eq!(changes.count(), 2);
        changes.observe(false, "day", &edited);
        assert_eq!(changes.count(), 3);
        changes.observe(true, "day", &edited);
        assert_eq!(changes.count(), 4);
    }
}
