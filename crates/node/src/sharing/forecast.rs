//! Forecast of a node after a plan is applied, so that its offered resources are known before any change.

use octavo_model::catalog::{GpuInstanceProfile, InstanceResources};
use octavo_model::id::MigUuid;
use octavo_model::inventory::{ComputeInstance, Device, GpuInstance, Inventory, MigState};
use octavo_planner::layout::{MigTarget, Targets};
use octavo_planner::plan::{DeviceChange, DevicePlanResult, NodePlan, PlannedInstance};

/// Prefix of the placeholder UUIDs of partitions that do not exist yet. No driver assigns such UUIDs.
const PLACEHOLDER_UUID_PREFIX: &str = "MIG-00000000-0000-0000-0000-";

/// The number of a planned partition, from its placeholder UUID.
pub fn placeholder_number(uuid: &str) -> Option<u64> {
    let number = uuid.strip_prefix(PLACEHOLDER_UUID_PREFIX)?;
    u64::from_str_radix(number, 16).ok()
}

/// The node after `plan`. Devices that cannot be changed now stay as they are.
pub fn forecast(inventory: &Inventory, targets: &Targets, plan: &NodePlan) -> Inventory {
    let mut after = inventory.clone();
    let mut made = 0;
    for planned in &plan.devices {
        let mut devices = after.devices.iter_mut();
        let device = devices.find(|device| device.pci == planned.pci);
        let mut targets = targets.devices.iter();
        let target = targets.find(|target| target.pci == planned.pci);
        let mig = target.and_then(|target| target.mig.as_ref());
        if let (Some(device), Some(mig), DevicePlanResult::Change(change)) =
            (device, mig, &planned.verdict)
        {
            apply_change(device, mig, change, &mut made);
        }
    }
    after
}

fn apply_change(device: &mut Device, target: &MigTarget, change: &DeviceChange, number: &mut u64) {
    let octavo_model::inventory::Mig::Capable(state) = &mut device.mig else {
        return;
    };
    let mode = target.mode();
    let all = change.after.iter();
    let instances = all.map(|planned| instance(state, planned, number));
    let mut instances: Vec<GpuInstance> = instances.collect();
    instances.sort_by_key(|instance| instance.id);
    state.gpu_instances = instances;
    state.current = mode;
    state.pending = mode;
}

fn instance(state: &MigState, planned: &PlannedInstance, made: &mut u64) -> GpuInstance {
    let mut known = state.gpu_instances.iter();
    let known = known.find(|known| planned.existing_id == Some(known.id));
    let profile = state.catalog.by_id(planned.profile_id);
    let there: &[ComputeInstance] = known.map_or(&[], |known| &known.compute_instances);
    // The driver chooses the ids; new instances are numbered after the existing ones.
    let behind = |ids: Option<u32>| ids.map_or(0, |id| id.saturating_add(1));
    let next = behind(there.iter().map(|one| one.id).max());
    let all = planned.compute.iter().zip(0_u32..);
    let compute = all.map(|(one, place)| {
        let mut there = there.iter();
        let retained = there.find(|compute| one.existing_id == Some(compute.id));
        retained.cloned().unwrap_or_else(|| {
            *made = made.saturating_add(1);
            compute(profile, (one.slices, next.saturating_add(place)), *made)
        })
    });
    let mut compute_instances: Vec<ComputeInstance> = compute.collect();
    compute_instances.sort_by_key(|compute| compute.id);
    let next = behind(state.gpu_instances.iter().map(|one| one.id).max());
    GpuInstance {
        id: planned.existing_id.unwrap_or_else(|| next.saturating_add(planned.placement.start)),
        profile_id: planned.profile_id,
        placement: planned.placement,
        compute_instances,
    }
}

/// A compute instance with the given number of slices: it has all resources of its GPU instance, but only its share
/// of the multiprocessors.
fn compute(
    profile: Option<&GpuInstanceProfile>,
    (slices, id): (u32, u32),
    number: u64,
) -> ComputeInstance {
    let listed = profile.and_then(|profile| {
        let mut all = profile.compute_profiles.iter();
        all.find(|listed| listed.slices == slices)
    });
    let resources = profile.map(|profile| {
        let whole = profile.resources;
        let part = u64::from(whole.multiprocessors).saturating_mul(u64::from(slices));
        let part = part.checked_div(u64::from(whole.gpu_slices)).unwrap_or(0);
        InstanceResources {
            compute_slices: slices,
            multiprocessors: listed.map_or_else(
                || u32::try_from(part).unwrap_or(u32::MAX),
                |listed| listed.multiprocessors,
            ),
            ..whole
        }
    });
    let uuid = format!("{PLACEHOLDER_UUID_PREFIX}{number:012x}");
    ComputeInstance {
        id,
        profile_id: listed.map_or_else(|| slices.saturating_sub(1), |listed| listed.id),
        placement: None,
        uuid: uuid.parse::<MigUuid>().ok(),
        memory: profile.map(|profile| profile.memory),
        resources,
    }
}
