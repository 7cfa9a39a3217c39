//! Comparison of the devices of a node with their desired state.

use std::collections::BTreeMap;
use std::fmt;

use octavo_model::inventory::{Completeness, Device, Inventory, MigMode, MigState};

use super::error::DeviceRef;
use super::{InstanceTarget, MigTarget, Targets, current_state};

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
        let mut devices = inventory.devices.iter();
        let device = devices.find(|device| device.pci == target.pci);
        let named = device.map_or(
            DeviceRef {
                pci: target.pci,
                index: None,
            },
            DeviceRef::from_device,
        );
        let kinds = device.map_or_else(
            || vec![DifferenceKind::Unreported],
            |is| device_differences(wanted, is),
        );
        found.extend(kinds.into_iter().map(|kind| Difference {
            device: named.clone(),
            kind,
        }));
    }
    found.extend(unverified(targets, inventory));
    found
}

/// Returns the devices of `targets` whose state cannot be read.
pub(super) fn unverified<'a>(
    targets: &'a Targets,
    inventory: &'a Inventory,
) -> impl Iterator<Item = Difference> + 'a {
    targets.unverified.iter().map(|one| {
        let mut devices = inventory.devices.iter();
        let device = devices.find(|device| device.pci == one.pci);
        let unknown = DeviceRef {
            pci: one.pci,
            index: None,
        };
        Difference {
            device: device.map_or(unknown, DeviceRef::from_device),
            kind: DifferenceKind::Unreadable {
                reason: one.reason.clone(),
            },
        }
    })
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
    match count_differences(state, instances) {
        Some(balance) => found.extend(balance),
        None => found.push(DifferenceKind::Unreported),
    }
    found
}

/// Counts desired and existing instances; `None` if the split of an instance is not reported.
fn count_differences(state: &MigState, wanted: &[InstanceTarget]) -> Option<Vec<DifferenceKind>> {
    debug_assert_eq!(state.geometry, Completeness::Complete, "asked before");
    let mut counts: BTreeMap<InstanceTarget, (usize, usize)> = BTreeMap::new();
    for instance in wanted {
        let count = counts.entry(instance.clone()).or_default();
        count.0 = count.0.saturating_add(1);
    }
    for instance in &state.gpu_instances {
        let mut is = current_state::instance_target(state, instance)?;
        let placed = InstanceTarget {
            placement: Some(instance.placement),
            ..is.clone()
        };
        if counts.contains_key(&placed) {
            is = placed;
        }
        let count = counts.entry(is).or_default();
        count.1 = count.1.saturating_add(1);
    }
    let all = counts.into_iter().filter_map(|(instance, (wants, has))| {
        let name = current_state::instance_name(&state.catalog, &instance);
        match wants.cmp(&has) {
            std::cmp::Ordering::Equal => None,
            std::cmp::Ordering::Greater => Some(DifferenceKind::Missing {
                instance: name,
                count: wants.saturating_sub(has),
            }),
            std::cmp::Ordering::Less => Some(DifferenceKind::Surplus {
                instance: name,
                count: has.saturating_sub(wants),
            }),
        }
    });
    Some(all.collect())
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.device)?;
        match &self.kind {
            DifferenceKind::Unreported => f.write_str("nobody says what it has"),
            DifferenceKind::Unreadable { reason } => {
                write!(f, "its state cannot be read: {reason}")
            }
            DifferenceKind::Mode {
                wanted: MigMode::Enabled,
            } => f.write_str("MIG mode is off and shall be on"),
            DifferenceKind::Mode {
                wanted: MigMode::Disabled,
            } => f.write_str("MIG mode is on and shall be off"),
            DifferenceKind::Missing { instance, count } => {
                write!(f, "{count} x {instance} missing")
            }
            DifferenceKind::Surplus { instance, count } => {
                write!(f, "{count} x {instance} too many")
            }
        }
    }
}
