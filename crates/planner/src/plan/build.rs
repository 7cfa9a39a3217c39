//! Converts an arrangement into a change: its steps and the resulting state.

use super::arrange::ArrangementQuery;
use super::search::Arrangement;
use super::usage::DeviceUsers;
use super::{
    Cause, DeviceChange, InstanceRef, ModeChange, PlannedCompute, PlannedInstance, Step,
    mode_planning,
};

/// Returns the change that leads to the arrangement `found`.
pub(super) fn change(
    query: &ArrangementQuery<'_, '_>,
    found: &Arrangement<'_>,
    mode: Option<ModeChange>,
) -> DeviceChange {
    let mut steps = destroy_steps(query, found);
    steps.extend(mode.iter().flat_map(mode_planning::steps));
    let (mut new, mut inside) = (Vec::new(), Vec::new());
    let mut after = Vec::new();
    for (at, placed) in found.instances.iter().enumerate() {
        let existing = placed.existing.and_then(|index| query.existing.get(index));
        let (mut retained, created) = if let Some(existing) = existing {
            let resplit = query.resplit(existing, placed.compute);
            let gpu_instance = InstanceRef::Existing(existing.instance.id);
            inside.extend(create_compute_steps(gpu_instance, &resplit.created));
            (resplit.retained, resplit.created)
        } else {
            new.push(Step::CreateGpuInstance {
                instance: at,
                profile_id: placed.profile_id,
                placement: placed.placement,
            });
            new.extend(create_compute_steps(InstanceRef::Planned(at), placed.compute));
            (Vec::new(), placed.compute.to_vec())
        };
        retained.sort_unstable();
        let retained = retained.into_iter().map(|(id, slices)| (Some(id), slices));
        let computes = retained.chain(created.into_iter().map(|slices| (None, slices)));
        after.push(PlannedInstance {
            placement: placed.placement,
            profile_id: placed.profile_id,
            existing_id: existing.map(|existing| existing.instance.id),
            compute: computes
                .map(|(existing_id, slices)| PlannedCompute { existing_id, slices })
                .collect(),
        });
    }
    steps.extend(new);
    steps.extend(inside);
    DeviceChange { steps, after, mode, room: found.room }
}

/// Returns the instances in use that the arrangement `found` would destroy.
pub(super) fn blocking_instances(
    query: &ArrangementQuery<'_, '_>,
    found: &Arrangement<'_>,
    users: &DeviceUsers,
) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (at, existing) in query.existing.iter().enumerate() {
        let instance = existing.instance;
        let keeps = found.instances.iter().find(|placed| placed.existing == Some(at));
        let parts = keeps.map(|placed| query.resplit(existing, placed.compute).in_use);
        let goes = parts.as_ref().is_none_or(|parts| !parts.is_empty());
        if !existing.parts_in_use.has_any() || !goes {
            continue;
        }
        let compute_instances = parts.unwrap_or_default();
        let concerned = |id: Option<u32>| {
            compute_instances.is_empty() || id.is_none_or(|id| compute_instances.contains(&id))
        };
        causes.push(Cause::InstanceInUse {
            gpu_instance: instance.id,
            profile_id: instance.profile_id,
            placement: instance.placement,
            holders: users
                .of_instance(instance.id)
                .filter(|holder| concerned(holder.compute_instance))
                .cloned()
                .collect(),
            compute_instances,
        });
    }
    causes
}

/// Returns the destroying steps, compute instances first: a GPU instance with compute instances cannot be destroyed.
fn destroy_steps(query: &ArrangementQuery<'_, '_>, found: &Arrangement<'_>) -> Vec<Step> {
    let (mut inner, mut outer) = (Vec::new(), Vec::new());
    for (at, existing) in query.existing.iter().enumerate() {
        let instance = existing.instance;
        let keeps = found.instances.iter().find(|placed| placed.existing == Some(at));
        let going = if let Some(placed) = keeps {
            query.resplit(existing, placed.compute).destroyed
        } else {
            outer.push(Step::DestroyGpuInstance {
                gpu_instance: instance.id,
                profile_id: instance.profile_id,
                placement: instance.placement,
            });
            let all = instance.compute_instances.iter();
            all.map(|compute| compute.id).collect()
        };
        inner.extend(going.into_iter().map(|id| Step::DestroyComputeInstance {
            gpu_instance: instance.id,
            compute_instance: id,
        }));
    }
    inner.extend(outer);
    inner
}

fn create_compute_steps(gpu_instance: InstanceRef, slices: &[u32]) -> impl Iterator<Item = Step> {
    slices.iter().map(move |slices| Step::CreateComputeInstance { gpu_instance, slices: *slices })
}
