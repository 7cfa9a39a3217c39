//! Taints of devices that claims must not be allocated: of unhealthy GPUs, and of devices that something else occupies.
//!
//! Totals of counters stay as they are when something outside DRA occupies a GPU: a counter that falls below what claims
//! use blocks all partitions of the pool. Source: Kubernetes `dynamic-resource-allocation/structured`,
//! `checkAvailableCounters`. A toleration passes a taint, so the preparation of a claim checks the hardware again.

use std::collections::BTreeSet;

use k8s_openapi::api::resource::v1::DeviceTaint;
use octavo_model::catalog::Placement;
use octavo_model::inventory::{
    Completeness, ComputeInstance, Device, DeviceState, GpuInstance, MigState, NvmlState,
};
use octavo_planner::plan::is_in_use;

use crate::counters::Counters;
use crate::device::{DeviceName, DraDevice, DraDeviceKind};

/// Key of the taint of devices of unhealthy GPUs; its value is the state of the GPU.
pub(crate) const UNHEALTHY: &str = "octavo.dev/unhealthy";
/// Key of the taint of devices that something outside DRA occupies.
pub(crate) const OCCUPIED: &str = "octavo.dev/occupied";

/// A process without a claim uses the device, or a partition that cannot exist beside it.
const IN_USE: &str = "in-use";
/// A partition without a claim exists, and the device cannot exist beside it.
const FOREIGN_PARTITION: &str = "foreign-partition";
/// The driver does not report all partitions.
const PARTITIONS_UNKNOWN: &str = "partitions-unknown";
/// The device reported an error that the state of its GPU does not show.
const REPORTED_ERROR: &str = "reported-error";

/// Returns the state of an unhealthy GPU; `None` if containers can use it.
pub(crate) fn unhealthy_state(device: &Device, nvml: &NvmlState) -> Option<DeviceState> {
    let state = device.state(nvml);
    let is_usable = matches!(state, DeviceState::Ok | DeviceState::Partial | DeviceState::NotRead);
    (!is_usable).then_some(state)
}

/// Returns the taint of all devices of an unhealthy GPU.
pub(crate) fn unhealthy(device: &Device, nvml: &NvmlState) -> Option<DeviceTaint> {
    if let Some(state) = unhealthy_state(device, nvml) {
        return Some(taint(UNHEALTHY, state.as_str()));
    }
    let mig = device.mig.state();
    let unknown = mig.is_some_and(|mig| mig.geometry == Completeness::Partial);
    unknown.then(|| taint(UNHEALTHY, PARTITIONS_UNKNOWN))
}

/// Returns the taint of a device of an unhealthy GPU, or of one that reported an error.
pub(crate) fn unhealthy_or_faulty(
    unhealthy: Option<&DeviceTaint>,
    device: &DeviceName,
    faulty: &BTreeSet<DeviceName>,
) -> Option<DeviceTaint> {
    let reported = || faulty.contains(device).then(|| taint(UNHEALTHY, REPORTED_ERROR));
    unhealthy.cloned().or_else(reported)
}

/// Returns the taint of a whole GPU that a process uses although no claim holds it.
pub(crate) fn occupied_gpu(device: &Device, claimed: &BTreeSet<DeviceName>) -> Option<DeviceTaint> {
    let own = DraDevice { pci: device.pci, what: DraDeviceKind::Gpu }.name();
    let used = !device.processes.is_empty() && !claimed.contains(&own);
    used.then(|| taint(OCCUPIED, IN_USE))
}

/// Existing partition that no claim holds.
pub(crate) struct ForeignPartition {
    profile_id: u32,
    placement: Placement,
    used: Vec<u64>,
    is_in_use: bool,
    /// It is idle and complete, so that a claim of the same profile and placement can adopt it.
    is_adoptable: bool,
}

impl ForeignPartition {
    /// Returns the existing partitions of the GPU that no claim holds.
    pub(crate) fn all(
        device: &Device,
        state: &MigState,
        counters: &Counters<'_>,
        claimed: &BTreeSet<DeviceName>,
    ) -> Vec<Self> {
        let instances = state.gpu_instances.iter();
        instances
            .filter(|instance| {
                let own = DraDevice::from_instance(device.pci, &state.catalog, instance);
                !own.is_some_and(|own| claimed.contains(&own.name()))
            })
            .map(|instance| {
                let is_in_use = is_in_use(device, &[], instance);
                Self {
                    profile_id: instance.profile_id,
                    placement: instance.placement,
                    used: counters.used_by(instance.profile_id, instance.placement),
                    is_in_use,
                    is_adoptable: !is_in_use && is_whole(state, instance),
                }
            })
            .collect()
    }

    /// Returns whether a partition cannot be created or adopted because of this one.
    fn excludes(&self, profile_id: u32, placement: Placement, counters: &Counters<'_>) -> bool {
        if (self.profile_id, self.placement) == (profile_id, placement) {
            return !self.is_adoptable;
        }
        // A driver that does not report where a partition is reports a size of 0.
        self.placement.size == 0
            || !counters.fit(&[&self.used, &counters.used_by(profile_id, placement)])
    }
}

/// Returns the taint of a partition that one of `foreign` excludes.
pub(crate) fn occupied_partition(
    profile_id: u32,
    placement: Placement,
    foreign: &[ForeignPartition],
    counters: &Counters<'_>,
) -> Option<DeviceTaint> {
    let others = foreign.iter().filter(|one| one.excludes(profile_id, placement, counters));
    let in_use = others.map(|one| one.is_in_use).max()?;
    Some(taint(OCCUPIED, if in_use { IN_USE } else { FOREIGN_PARTITION }))
}

/// Returns whether one compute instance takes all of the GPU instance.
pub(crate) fn is_whole(state: &MigState, instance: &GpuInstance) -> bool {
    let [compute] = instance.compute_instances.as_slice() else {
        return false;
    };
    let Some(profile) = state.catalog.by_id(instance.profile_id) else {
        return false;
    };
    let reported = |compute: &ComputeInstance| {
        compute.resources.map(|resources| resources.compute_slices).filter(|slices| *slices > 0)
    };
    let mut listed = profile.compute_profiles.iter();
    let listed = listed.find(|found| found.id == compute.profile_id).map(|found| found.slices);
    reported(compute).or(listed) == Some(profile.resources.gpu_slices)
}

/// Keeps claims that do not tolerate the taint away from a device; claims that have the device keep it.
fn taint(key: &str, value: &str) -> DeviceTaint {
    DeviceTaint {
        effect: "NoSchedule".to_owned(),
        key: key.to_owned(),
        value: Some(value.to_owned()),
        time_added: None,
    }
}
