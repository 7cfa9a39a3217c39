//! Targets as far as MIG modes go: all that is partitioned stays as far as a mode lets it.

use super::{
    Criteria, DeviceRef, DeviceTarget, Difference, DifferenceKind, IndexRange, Layout, MigTarget,
    MigWish, Selector, Targets, standing,
};
use crate::domain::inventory::{Device, Inventory, MigMode, MigState};

impl Layout {
    /// The same without partitions: what remains asks for MIG modes alone.
    #[must_use]
    pub fn modes_alone(&self) -> Self {
        let mut layout = self.clone();
        for rule in &mut layout.rules {
            rule.time_slicing = None;
            if let Some(MigWish::Enabled(counts)) = &mut rule.mig {
                counts.clear();
            }
        }
        layout
    }
}

/// The same for the devices of `inventory` alone: of indices that no device has nothing remains, nor of rules that have no other.
#[must_use]
pub fn without_missing(layout: &Layout, inventory: &Inventory) -> Layout {
    let mut layout = layout.clone();
    let indices: Vec<u32> = inventory.devices.iter().filter_map(|is| is.index).collect();
    layout.rules.retain_mut(|rule| {
        let Selector::Matching(Criteria {
            index: Some(ranges),
            ..
        }) = &mut rule.devices
        else {
            return true;
        };
        let there = |index: &&u32| ranges.iter().any(|range| range.contains(**index));
        let kept = indices.iter().filter(there);
        *ranges = kept
            .map(|&index| IndexRange {
                first: index,
                last: index,
            })
            .collect();
        !ranges.is_empty()
    });
    layout
}

/// Of `targets` the devices whose MIG mode has to change, and nothing but the mode: one that has its mode is left out, and one
/// whose other mode is merely pending keeps what it has.
pub fn modes(targets: &Targets, inventory: &Inventory) -> Targets {
    let all = targets.devices.iter().filter_map(|target| {
        let wanted = mode(target.mig.as_ref()?);
        let mig = match state(inventory, target) {
            Some(state) if state.current == wanted && state.pending == wanted => return None,
            Some(state) if state.current == wanted => standing(state)?,
            Some(_) | None => match wanted {
                MigMode::Enabled => MigTarget::Enabled(Vec::new()),
                MigMode::Disabled => MigTarget::Disabled,
            },
        };
        Some(DeviceTarget {
            mig: Some(mig),
            time_slicing: None,
            ..target.clone()
        })
    });
    Targets {
        devices: all.collect(),
    }
}

/// Where MIG modes differ from what `targets` ask for; a mode that is pending is not there yet.
pub fn compare_modes(targets: &Targets, inventory: &Inventory) -> Vec<Difference> {
    let all = targets.devices.iter().filter_map(|target| {
        let wanted = mode(target.mig.as_ref()?);
        let kind = match state(inventory, target) {
            Some(state) if state.current == wanted => return None,
            Some(_) => DifferenceKind::Mode { wanted },
            None => DifferenceKind::Untold,
        };
        let unknown = DeviceRef {
            pci: target.pci,
            index: None,
        };
        Some(Difference {
            device: device(inventory, target).map_or(unknown, DeviceRef::of),
            kind,
        })
    });
    all.collect()
}

/// Whether every mode that `targets` ask for is there or comes with the next reset.
pub fn modes_are_set(targets: &Targets, inventory: &Inventory) -> bool {
    let mut wishes = targets
        .devices
        .iter()
        .filter_map(|target| Some((target, mode(target.mig.as_ref()?))));
    wishes.all(|(target, wanted)| {
        state(inventory, target).is_some_and(|state| state.pending == wanted)
    })
}

fn mode(target: &MigTarget) -> MigMode {
    match target {
        MigTarget::Disabled => MigMode::Disabled,
        MigTarget::Enabled(_) => MigMode::Enabled,
    }
}

fn device<'a>(inventory: &'a Inventory, target: &DeviceTarget) -> Option<&'a Device> {
    let mut devices = inventory.devices.iter();
    devices.find(|device| device.pci == target.pci)
}

fn state<'a>(inventory: &'a Inventory, target: &DeviceTarget) -> Option<&'a MigState> {
    device(inventory, target)?.mig.state()
}
