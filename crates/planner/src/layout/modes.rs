//! Targets restricted to MIG modes: everything else stays unless a mode change prevents it.

use octavo_model::inventory::{Inventory, MigMode, MigState};

use super::compare::unverified;
use super::selector::index;
use super::{
    Criteria, DeviceRef, DeviceTarget, Difference, DifferenceKind, IndexRange, Layout, MigSpec,
    MigTarget, Selector, Targets, current_target,
};

impl Layout {
    /// Returns the layout without partitions and sharing, so that it requests MIG modes only.
    #[must_use]
    pub fn modes_only(&self) -> Self {
        let mut layout = self.clone();
        for rule in &mut layout.rules {
            rule.time_slicing = None;
            if let Some(MigSpec::Enabled(counts)) = &mut rule.mig {
                counts.clear();
            }
        }
        layout
    }
}

/// Returns the layout restricted to existing devices: removes indices that no device has, and rules that then select
/// nothing.
#[must_use]
pub fn without_missing_devices(layout: &Layout, inventory: &Inventory) -> Layout {
    let mut layout = layout.clone();
    let devices = inventory.devices.iter();
    let indices: Vec<u32> = devices.filter_map(|is| index(is, inventory)).collect();
    layout.rules.retain_mut(|rule| {
        let Selector::Matching(Criteria { index: Some(ranges), .. }) = &mut rule.devices else {
            return true;
        };
        let there = |index: &&u32| ranges.iter().any(|range| range.contains(**index));
        let present = indices.iter().filter(there);
        *ranges = present.map(|&index| IndexRange { first: index, last: index }).collect();
        !ranges.is_empty()
    });
    layout
}

/// Returns the devices of `targets` whose MIG mode must change, with the mode as only target. A device in its mode is
/// left out; one whose other mode is only pending keeps its instances.
pub fn mode_targets(targets: &Targets, inventory: &Inventory) -> Targets {
    let all = targets.devices.iter().filter_map(|target| {
        let wanted = target.mig.as_ref()?.mode();
        let mig = match state(inventory, target) {
            Some(state) if state.current == wanted && state.pending == wanted => return None,
            Some(state) if state.current == wanted => current_target(state)?,
            Some(_) | None => match wanted {
                MigMode::Enabled => MigTarget::Enabled(Vec::new()),
                MigMode::Disabled => MigTarget::Disabled,
            },
        };
        Some(DeviceTarget { mig: Some(mig), time_slicing: None, ..target.clone() })
    });
    Targets { devices: all.collect(), unverified: targets.unverified.clone() }
}

/// Returns the devices whose MIG mode differs from `targets`. A pending mode does not count as reached.
pub fn compare_modes(targets: &Targets, inventory: &Inventory) -> Vec<Difference> {
    let all = targets.devices.iter().filter_map(|target| {
        let wanted = target.mig.as_ref()?.mode();
        let kind = match state(inventory, target) {
            Some(state) if state.current == wanted => return None,
            Some(_) => DifferenceKind::Mode { wanted },
            None => DifferenceKind::Unreported,
        };
        Some(Difference { device: DeviceRef::new(inventory, target.pci), kind })
    });
    all.chain(unverified(targets, inventory)).collect()
}

/// Returns true if every mode in `targets` is current or will be after the next reset.
pub fn modes_are_set(targets: &Targets, inventory: &Inventory) -> bool {
    let mut wanted_modes =
        targets.devices.iter().filter_map(|target| Some((target, target.mig.as_ref()?.mode())));
    targets.unverified.is_empty()
        && wanted_modes.all(|(target, wanted)| {
            state(inventory, target).is_some_and(|state| state.pending == wanted)
        })
}

fn state<'a>(inventory: &'a Inventory, target: &DeviceTarget) -> Option<&'a MigState> {
    inventory.device(target.pci)?.mig.state()
}

#[cfg(test)]
mod tests {
    use octavo_model::inventory::{Device, Mig};

    use super::*;
    use crate::layout::tests_support::{A100_40, index, layout, node, partition, rule, t4};
    use crate::layout::{Dialect, resolve};

    const THREE: u32 = 9;

    fn set(device: &mut Device, current: MigMode, pending: MigMode) {
        let Mig::Capable(state) = &mut device.mig else {
            panic!("{device:?}");
        };
        (state.current, state.pending) = (current, pending);
    }

    #[test]
    fn mode_targets_change_only_modes() {
        let (on, off) = (MigMode::Enabled, MigMode::Disabled);
        let with = |at| A100_40.with(at, &[(THREE, 0, &[3])]);
        let mut devices = [with(0), with(1), with(2), A100_40.gpu(3), t4(4)];
        set(&mut devices[1], on, off);
        set(&mut devices[3], off, off);
        let inventory = node(devices);
        let requested = layout([
            partition(index(&[(0, 1), (3, 3)]), &[("1g.5gb", 7)]),
            rule(index(&[(2, 2), (4, 4)]), Some(MigSpec::Disabled)),
        ]);
        let targets = resolve(&requested, Dialect::MigParted, &inventory).unwrap().targets;
        let changed = mode_targets(&targets, &inventory);
        let instances = |target: &DeviceTarget| match &target.mig {
            Some(MigTarget::Enabled(instances)) => Some(instances.len()),
            Some(MigTarget::Disabled) | None => None,
        };
        let changed: Vec<_> = changed.devices.iter().map(|is| (is.pci, instances(is))).collect();
        let pci = |at: usize| inventory.devices[at].pci;
        assert_eq!(changed, [(pci(1), Some(1)), (pci(2), None), (pci(3), Some(0))]);
        let differs = compare_modes(&targets, &inventory);
        let differs: Vec<_> = differs.iter().map(|is| is.device.pci).collect();
        assert_eq!(differs, [pci(2), pci(3)]);
        assert!(!modes_are_set(&targets, &inventory));
        assert!(modes_are_set(&Targets::default(), &inventory));
    }

    #[test]
    fn missing_indices_are_removed() {
        let inventory = node([A100_40.gpu(0), A100_40.gpu(1)]);
        let requested = layout([
            partition(index(&[(1, 7)]), &[]),
            partition(index(&[(8, 9)]), &[]),
            partition(Selector::All, &[]),
        ]);
        let left = without_missing_devices(&requested, &inventory);
        let selectors: Vec<_> = left.rules.into_iter().map(|rule| rule.devices).collect();
        assert_eq!(selectors, [index(&[(1, 1)]), Selector::All]);
    }
}
