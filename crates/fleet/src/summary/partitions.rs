//! Partitions of a device, and which of them have a process.
//!
//! Fleet counts and matching share this code so that both mean the same by "in use".

use octavo_model::inventory::{Device, NvmlState};
use octavo_model::quantity::Mebibytes;

use super::device::{DeviceSummary, Occupancy};
use super::instance_use::instances;

/// Partition that a container can be allocated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionUse {
    /// Name of its profile, such as `3g.40gb`.
    pub profile: String,
    /// Its memory, if known.
    pub memory: Option<Mebibytes>,
    /// True if it has a process.
    pub in_use: bool,
}

/// Partitions of `device`, on a node whose NVML is in this state; empty for a device that is whole, unusable or not
/// fully known.
pub fn partitions_of(device: &Device, nvml: &NvmlState) -> Vec<PartitionUse> {
    let is_partitioned =
        matches!(DeviceSummary::new(device, nvml).occupancy, Occupancy::Partitioned(_));
    let Some(mig) = device.mig.state().filter(|_| is_partitioned) else {
        return Vec::new();
    };
    let parts = instances(device, mig).into_iter();
    parts
        .filter_map(|(instance, compute, in_use)| {
            let of_profile = || mig.catalog.by_id(instance.profile_id);
            Some(PartitionUse {
                profile: device.profile_of(instance, compute)?.to_string(),
                memory: compute.memory.or_else(|| Some(of_profile()?.memory)),
                in_use,
            })
        })
        .collect()
}
