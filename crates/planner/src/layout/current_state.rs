//! The current state of a device, expressed as a target.

use octavo_model::catalog::{GpuInstanceProfile, ProfileCatalog};
use octavo_model::inventory::{ComputeInstance, GpuInstance, MigMode, MigState};

use super::{InstanceTarget, MigTarget};
use crate::split::listed_slices;

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
            let parts: Vec<String> = parts.iter().map(|part| format!("{part}c")).collect();
            format!("{whole}, split into {}", parts.join(", "))
        }
    }
}
