//! Converts an arrangement into a change: its steps and the resulting state.

use super::arrange::{ArrangementQuery, ExistingInstance};
use super::blocked::Cause;
use super::mode::ModeChange;
use super::search::{Arrangement, PlacedInstance};
use super::splits::Resplit;
use super::step::{InstanceRef, Step};
use super::usage::DeviceUsers;
use super::{DeviceChange, PlannedCompute, PlannedInstance, mode_planning};

/// Returns the change that leads to the arrangement `found`.
pub(super) fn change(
    wish: &ArrangementQuery<'_, '_>,
    found: &Arrangement<'_>,
    mode: Option<ModeChange>,
) -> DeviceChange {
    let mut steps = destroy_steps(wish, found);
    steps.extend(mode.iter().flat_map(mode_planning::steps));
    let (mut new, mut inside) = (Vec::new(), Vec::new());
    let mut after = Vec::new();
    for (at, laid) in found.instances.iter().enumerate() {
        let kept = standing(wish, laid);
        let planned = if let Some(kept) = kept {
            let resplit = wish.resplit(kept, laid.compute);
            let gpu_instance = InstanceRef::Existing(kept.instance.id);
            inside.extend(create_compute_steps(gpu_instance, &resplit.created));
            kept_instance(laid, kept, &resplit)
        } else {
            new.push(Step::CreateGpuInstance {
                instance: at,
                profile_id: laid.profile_id,
                placement: laid.placement,
            });
            new.extend(create_compute_steps(InstanceRef::Planned(at), laid.compute));
            new_instance(laid)
        };
        after.push(planned);
    }
    steps.extend(new);
    steps.extend(inside);
    DeviceChange {
        steps,
        after,
        mode,
        room: found.room,
    }
}

/// Returns the instances in use that the arrangement `found` would destroy.
pub(super) fn blocking_instances(
    wish: &ArrangementQuery<'_, '_>,
    found: &Arrangement<'_>,
    users: &DeviceUsers,
) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (at, standing) in wish.standing.iter().enumerate() {
        let instance = standing.instance;
        let keeps = found.instances.iter().find(|laid| laid.kept == Some(at));
        let parts = keeps.map(|laid| wish.resplit(standing, laid.compute).in_use);
        let goes = parts.as_ref().is_none_or(|parts| !parts.is_empty());
        if !standing.pin.has_any() || !goes {
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
fn destroy_steps(wish: &ArrangementQuery<'_, '_>, found: &Arrangement<'_>) -> Vec<Step> {
    let (mut inner, mut outer) = (Vec::new(), Vec::new());
    for (at, standing) in wish.standing.iter().enumerate() {
        let instance = standing.instance;
        let keeps = found.instances.iter().find(|laid| laid.kept == Some(at));
        let going = if let Some(laid) = keeps {
            wish.resplit(standing, laid.compute).destroyed
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

fn standing<'a>(
    wish: &ArrangementQuery<'a, '_>,
    laid: &PlacedInstance<'_>,
) -> Option<&'a ExistingInstance<'a>> {
    wish.standing.get(laid.kept?)
}

fn create_compute_steps(gpu_instance: InstanceRef, slices: &[u32]) -> impl Iterator<Item = Step> {
    slices
        .iter()
        .map(move |slices| Step::CreateComputeInstance {
            gpu_instance,
            slices: *slices,
        })
}

fn kept_instance(
    laid: &PlacedInstance<'_>,
    standing: &ExistingInstance<'_>,
    resplit: &Resplit,
) -> PlannedInstance {
    let mut kept = resplit.kept.clone();
    kept.sort_unstable();
    let kept = kept.into_iter().map(|(id, slices)| PlannedCompute {
        kept: Some(id),
        slices,
    });
    PlannedInstance {
        placement: laid.placement,
        profile_id: laid.profile_id,
        kept: Some(standing.instance.id),
        compute: kept.chain(new_computes(&resplit.created)).collect(),
    }
}

fn new_instance(laid: &PlacedInstance<'_>) -> PlannedInstance {
    PlannedInstance {
        placement: laid.placement,
        profile_id: laid.profile_id,
        kept: None,
        compute: new_computes(laid.compute).collect(),
    }
}

fn new_computes(slices: &[u32]) -> impl Iterator<Item = PlannedCompute> {
    slices.iter().map(|slices| PlannedCompute {
        kept: None,
        slices: *slices,
    })
}
