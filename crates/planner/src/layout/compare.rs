//! Comparison of the devices of a node with their desired state.

use std::collections::BTreeMap;
use std::fmt;

use octavo_model::catalog::{GpuInstanceProfile, ProfileCatalog};
use octavo_model::inventory::{
    Completeness, ComputeInstance, Device, GpuInstance, Inventory, MigMode, MigState,
};
use octavo_model::text::join;

use super::error::DeviceRef;
use super::{InstanceTarget, MigTarget, TargetScope, Targets};
use crate::split::listed_slices;

/// A difference between the desired and the current state of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The device.
    pub device: DeviceRef,
    /// Kind of difference.
    pub kind: DifferenceKind,
}

/// Kind of difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DifferenceKind {
    /// The device is gone, or its MIG state is not reported.
    Unreported,
    /// The state of the device cannot be read.
    Unreadable {
        /// The cause.
        reason: String,
    },
    /// The MIG mode differs.
    Mode {
        /// The desired mode.
        wanted: MigMode,
    },
    /// GPU instances are missing.
    Missing {
        /// Profile name, including the split into compute instances.
        instance: String,
        /// Number of missing instances.
        count: usize,
    },
    /// There are unwanted GPU instances. One without a compute instance is always unwanted.
    Surplus {
        /// Profile name, including the split into compute instances.
        instance: String,
        /// Number of unwanted instances.
        count: usize,
    },
}

/// Returns the differences between `targets` and the devices of `inventory`; empty if every device matches. Compares
/// partitioning only. Placements are ignored, and sharing is not a device state.
pub fn compare(targets: &Targets, inventory: &Inventory) -> Vec<Difference> {
    let mut found = Vec::new();
    for target in &targets.devices {
        let Some(wanted) = &target.mig else {
            continue;
        };
        let device = DeviceRef::new(inventory, target.pci);
        let kinds = match inventory.device(target.pci) {
            Some(is) if target.scope == TargetScope::Mode => mode_differences(wanted, is),
            Some(is) => device_differences(wanted, is),
            None => vec![DifferenceKind::Unreported],
        };
        found.extend(kinds.into_iter().map(|kind| Difference { device: device.clone(), kind }));
    }
    found.extend(unverified(targets, inventory));
    found
}

/// Returns the devices of `targets` whose state cannot be read.
pub(super) fn unverified<'a>(
    targets: &'a Targets,
    inventory: &'a Inventory,
) -> impl Iterator<Item = Difference> + 'a {
    targets.unverified.iter().map(|one| Difference {
        device: DeviceRef::new(inventory, one.pci),
        kind: DifferenceKind::Unreadable { reason: one.reason.clone() },
    })
}

/// Compares the MIG mode only.
fn mode_differences(wanted: &MigTarget, device: &Device) -> Vec<DifferenceKind> {
    match device.mig.state() {
        None => vec![DifferenceKind::Unreported],
        Some(state) if state.current == wanted.mode() => Vec::new(),
        Some(_) => vec![DifferenceKind::Mode { wanted: wanted.mode() }],
    }
}

fn device_differences(wanted: &MigTarget, device: &Device) -> Vec<DifferenceKind> {
    let Some(state) = device.mig.state().filter(|_| device.mig.is_fully_known()) else {
        return vec![DifferenceKind::Unreported];
    };
    let (mode, instances) = match wanted {
        MigTarget::Disabled => (MigMode::Disabled, [].as_slice()),
        MigTarget::Enabled(instances) => (MigMode::Enabled, instances.as_slice()),
    };
    let mut found = Vec::new();
    if state.current != mode {
        found.push(DifferenceKind::Mode { wanted: mode });
    }
    let unknown = || vec![DifferenceKind::Unreported];
    found.extend(count_differences(state, instances).unwrap_or_else(unknown));
    found
}

/// Counts desired and existing instances; `None` if the split of an instance is not reported.
fn count_differences(state: &MigState, wanted: &[InstanceTarget]) -> Option<Vec<DifferenceKind>> {
    debug_assert_eq!(state.geometry, Completeness::Complete, "the caller checks it");
    let mut counts: BTreeMap<InstanceTarget, (usize, usize)> = BTreeMap::new();
    for instance in wanted {
        let count = counts.entry(instance.clone()).or_default();
        count.0 = count.0.saturating_add(1);
    }
    for instance in &state.gpu_instances {
        let mut is = instance_target(state, instance)?;
        let placed = InstanceTarget { placement: Some(instance.placement), ..is.clone() };
        if counts.contains_key(&placed) {
            is = placed;
        }
        let count = counts.entry(is).or_default();
        count.1 = count.1.saturating_add(1);
    }
    let all = counts.into_iter().filter_map(|(instance, (wants, has))| {
        let name = instance_name(&state.catalog, &instance);
        match wants.cmp(&has) {
            std::cmp::Ordering::Equal => None,
            std::cmp::Ordering::Greater => {
                Some(DifferenceKind::Missing { instance: name, count: wants.saturating_sub(has) })
            }
            std::cmp::Ordering::Less => {
                Some(DifferenceKind::Surplus { instance: name, count: has.saturating_sub(wants) })
            }
        }
    });
    Some(all.collect())
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.device)?;
        match &self.kind {
            DifferenceKind::Unreported => f.write_str("its partitions are not reported"),
            DifferenceKind::Unreadable { reason } => {
                write!(f, "its state cannot be read: {reason}")
            }
            DifferenceKind::Mode { wanted: MigMode::Enabled } => {
                f.write_str("MIG mode is off but must be on")
            }
            DifferenceKind::Mode { wanted: MigMode::Disabled } => {
                f.write_str("MIG mode is on but must be off")
            }
            DifferenceKind::Missing { instance, count } => {
                write!(f, "missing: {count} x {instance}")
            }
            DifferenceKind::Surplus { instance, count } => {
                write!(f, "unexpected: {count} x {instance}")
            }
        }
    }
}

/// Returns the current state of a device as a target that only this state meets, with the placement of each instance;
/// used for rollback. Instances without a compute instance are unusable and left out. `None` if the split of an
/// instance is not reported.
pub fn current_target(state: &MigState) -> Option<MigTarget> {
    if state.current == MigMode::Disabled {
        return Some(MigTarget::Disabled);
    }
    let mut instances = Vec::new();
    for is in &state.gpu_instances {
        instances
            .push(InstanceTarget { placement: Some(is.placement), ..instance_target(state, is)? });
    }
    instances.retain(|instance| !instance.compute.is_empty());
    instances.sort();
    Some(MigTarget::Enabled(instances))
}

/// Converts `instance` into a target, without compute slices if it has no compute instance; `None` if its split is not
/// reported.
pub(super) fn instance_target(state: &MigState, instance: &GpuInstance) -> Option<InstanceTarget> {
    let profile = state.catalog.by_id(instance.profile_id);
    let all = instance.compute_instances.iter();
    let mut compute = all.map(|compute| slices(profile, compute)).collect::<Option<Vec<u32>>>()?;
    compute.sort_unstable_by(|one, other| other.cmp(one));
    Some(InstanceTarget { profile_id: instance.profile_id, compute, placement: None })
}

fn slices(profile: Option<&GpuInstanceProfile>, compute: &ComputeInstance) -> Option<u32> {
    let reported = compute.resources.map(|resources| resources.compute_slices);
    reported.or_else(|| listed_slices(profile, compute))
}

/// Returns the profile name of a GPU instance, with its split if it is split: `3g.40gb, split into 2c, 1c`.
pub(super) fn instance_name(catalog: &ProfileCatalog, instance: &InstanceTarget) -> String {
    let profile = catalog.by_id(instance.profile_id);
    let whole = profile.map_or_else(
        || format!("profile {}", instance.profile_id),
        |profile| profile.name.to_string(),
    );
    let all = profile.map(|profile| profile.resources.gpu_slices);
    match instance.compute.as_slice() {
        [] => format!("{whole} without a compute instance"),
        [one] if Some(*one) == all => whole,
        parts => {
            format!(
                "{whole}, split into {}",
                join(parts.iter().map(|part| format!("{part}c")), ", ")
            )
        }
    }
}
