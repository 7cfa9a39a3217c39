//! Plans one device.

use octavo_model::catalog::Placement;
use octavo_model::id::PciAddress;
use octavo_model::inventory::{
    Completeness, Condition, Device, GpuInstance, Mig, MigMode, MigState, NvmlState,
};

use super::arrange::{ArrangementQuery, ExistingInstance};
use super::blocked::{Blocked, Cause};
use super::board::{Board, PlacementMask};
use super::cache::{DeviceKey, PlanCache};
use super::infeasible::{HardwareRule, Infeasible};
use super::usage::DeviceUsers;
use super::work_budget::BudgetExceeded;
use super::{
    DeviceChange, Feasibility, PlanInput, RefusedPlacement, Verdict, build, mode_planning, splits,
};
use crate::layout::{InstanceTarget, MigTarget};
use crate::split;

/// Fixed cost of a device before the search: converting the largest table into a board.
const DEVICE_WORK: usize = 2_000;

/// Missing information, as text.
struct MissingInformation(String);

/// Message for a table or state that no device has, or that takes too long to search.
const WORK_EXCEEDED: &str = "its list of profiles allows more arrangements than can be compared";

/// Returns the verdict on the device at `pci`.
pub(super) fn verdict<'q>(
    question: &PlanInput<'q>,
    pci: PciAddress,
    target: &'q MigTarget,
    memo: &mut PlanCache<'q>,
) -> Verdict {
    let mut devices = question.inventory.devices.iter();
    let Some(device) = devices.find(|device| device.pci == pci) else {
        return blocked_by_unknown_state("this node has no such device now");
    };
    let state = match reported_state(question, device) {
        Ok(state) => state,
        Err(MissingInformation(reason)) => return blocked_by_unknown_state(reason),
    };
    match (state, target) {
        (None, MigTarget::Disabled) => Verdict::Unchanged,
        (None, MigTarget::Enabled(_)) => Verdict::Infeasible(Infeasible {
            rule: HardwareRule::NotMigCapable,
            alternatives: Vec::new(),
        }),
        (Some(state), MigTarget::Disabled) => {
            let wanted = (MigMode::Disabled, &[][..]);
            decide(question, (device, state), wanted, memo)
        }
        (Some(state), MigTarget::Enabled(instances)) => {
            let wanted = (MigMode::Enabled, instances.as_slice());
            decide(question, (device, state), wanted, memo)
        }
    }
}

/// Returns the verdict on a device whose state cannot be read.
pub(super) fn unverified(reason: &str) -> Verdict {
    blocked_by_unknown_state(format!("its state cannot be read: {reason}"))
}

/// Checks whether the empty `device` supports `instances`.
pub(super) fn feasible(
    device: &Device,
    instances: &[InstanceTarget],
) -> Result<Feasibility, Infeasible> {
    let state = match &device.mig {
        Mig::Unknown => return Ok(Feasibility::Unknown),
        Mig::NotCapable => {
            return Err(Infeasible {
                rule: HardwareRule::NotMigCapable,
                alternatives: Vec::new(),
            });
        }
        Mig::Capable(state) => state,
    };
    let Ok(board) = Board::from_state(state) else {
        return Ok(Feasibility::Unknown);
    };
    if check_catalog(&board, state, instances).is_err() {
        return Ok(Feasibility::Unknown);
    }
    match PlanCache::new().check_feasible(state, &board, instances) {
        Ok(answer) => answer.map(|()| Feasibility::Feasible),
        Err(BudgetExceeded) => Ok(Feasibility::Unknown),
    }
}

fn decide<'q>(
    question: &PlanInput<'q>,
    (device, state): (&'q Device, &'q MigState),
    (to, instances): (MigMode, &'q [InstanceTarget]),
    memo: &mut PlanCache<'q>,
) -> Verdict {
    if memo.work.spend(DEVICE_WORK).is_err() {
        return blocked_by_unknown_state(WORK_EXCEEDED);
    }
    let Ok(board) = Board::from_state(state) else {
        return blocked_by_unknown_state("its list of profiles is longer than that of any device");
    };
    if let Err(MissingInformation(reason)) = check_catalog(&board, state, instances) {
        return blocked_by_unknown_state(reason);
    }
    match memo.check_feasible(state, &board, instances) {
        Ok(Ok(())) => {}
        Ok(Err(infeasible)) => return Verdict::Infeasible(infeasible),
        Err(BudgetExceeded) => return blocked_by_unknown_state(WORK_EXCEEDED),
    }
    let users = DeviceUsers::of(question.holders, device);
    let standing = match existing_instances(&users, &board, state, instances) {
        Ok(standing) => standing,
        Err(MissingInformation(reason)) => return blocked_by_unknown_state(reason),
    };
    let refused = |profile_id: u32, placement: Placement| {
        question.refused.contains(&RefusedPlacement {
            device: device.pci,
            profile_id,
            placement,
        })
    };
    let wish = ArrangementQuery {
        board: &board,
        standing: &standing,
        instances,
        refused: &refused,
    };
    let places = question.refused.iter();
    let alike = DeviceKey {
        state,
        instances,
        pins: standing.iter().map(|one| one.pin.clone()).collect(),
        refused: places
            .filter(|refusal| refusal.device == device.pci)
            .map(|refusal| (refusal.profile_id, refusal.placement))
            .collect(),
    };
    let found = match memo.best(alike, &wish) {
        Ok(Some(found)) => found,
        Ok(None) => return blocked(vec![Cause::HardwareRefused]),
        Err(BudgetExceeded) => return blocked_by_unknown_state(WORK_EXCEEDED),
    };
    let mode = mode_planning::change(question.inventory, device, state, to);
    let mut causes = build::blocking_instances(&wish, &found, &users);
    if let Some(mode) = &mode {
        causes.extend(mode_planning::blocking_causes(
            question, &users, state, mode,
        ));
    }
    if !causes.is_empty() {
        return blocked(causes);
    }
    let change = build::change(&wish, &found, mode);
    if change.steps.is_empty() {
        return Verdict::Unchanged;
    }
    Verdict::Change(without_room_if_disabled(change))
}

/// Sets the room to zero if MIG mode ends up disabled: such a device has no placements.
fn without_room_if_disabled(change: DeviceChange) -> DeviceChange {
    match &change.mode {
        Some(mode) if mode.to == MigMode::Disabled => DeviceChange { room: 0, ..change },
        Some(_) | None => change,
    }
}

/// Returns the MIG state of a device that reports everything a plan needs; `None` if the device cannot be partitioned.
fn reported_state<'a>(
    question: &PlanInput<'a>,
    device: &'a Device,
) -> Result<Option<&'a MigState>, MissingInformation> {
    match &device.condition {
        Condition::Working => {}
        Condition::Failing { reason } => {
            return Err(MissingInformation(format!(
                "its driver does not answer for it: {reason}"
            )));
        }
        Condition::PciOnly { .. } => {
            return Err(MissingInformation(
                "no driver library speaks for it".to_owned(),
            ));
        }
    }
    match &question.inventory.nvml {
        NvmlState::Stalled { call, .. } => {
            return Err(MissingInformation(format!(
                "the driver does not return from {call}, and what it said before may no longer hold"
            )));
        }
        NvmlState::Lost { reason } => {
            return Err(MissingInformation(format!(
                "the driver no longer answers ({reason}), and what it said before may no longer hold"
            )));
        }
        NvmlState::Absent { .. } | NvmlState::Loading | NvmlState::Ready(_) => {}
    }
    match &device.mig {
        Mig::Unknown => Err(MissingInformation(
            "the driver does not say whether it can be partitioned".to_owned(),
        )),
        Mig::NotCapable => Ok(None),
        Mig::Capable(state) if state.geometry == Completeness::Partial => Err(MissingInformation(
            "the driver does not tell all the partitions that it has".to_owned(),
        )),
        Mig::Capable(state) => Ok(Some(state)),
    }
}

/// Checks that the catalog describes the requested profiles completely.
fn check_catalog(
    board: &Board<'_>,
    state: &MigState,
    instances: &[InstanceTarget],
) -> Result<(), MissingInformation> {
    if instances.is_empty() {
        return Ok(());
    }
    if board.profiles.is_empty() {
        return Err(MissingInformation(match state.current {
            MigMode::Enabled => "the driver lists no profiles".to_owned(),
            MigMode::Disabled => {
                "the driver lists no profiles while MIG mode is off, as older ones do: \
                turn MIG mode on first, with a layout that asks for no partitions"
                    .to_owned()
            }
        }));
    }
    for instance in instances {
        let Some((_, profile)) = board.find(instance.profile_id) else {
            continue;
        };
        let name = &profile.source.name;
        if profile.places.is_empty() {
            return Err(MissingInformation(format!(
                "the driver does not say where a {name} may lie"
            )));
        }
    }
    Ok(())
}

/// Returns the existing instances with their parts in use.
fn existing_instances<'a>(
    users: &DeviceUsers,
    board: &Board<'_>,
    state: &'a MigState,
    instances: &[InstanceTarget],
) -> Result<Vec<ExistingInstance<'a>>, MissingInformation> {
    if state.current == MigMode::Disabled && !state.gpu_instances.is_empty() {
        return Err(MissingInformation(
            "the driver tells of partitions although MIG mode is off".to_owned(),
        ));
    }
    let mut taken = 0;
    for place in state
        .gpu_instances
        .iter()
        .filter_map(|one| PlacementMask::of(one.placement))
    {
        if taken & place.bits != 0 {
            return Err(MissingInformation(
                "the driver tells of two partitions in one place".to_owned(),
            ));
        }
        taken |= place.bits;
    }
    let all = state.gpu_instances.iter();
    all.map(|instance| {
        let wanted = instances
            .iter()
            .any(|target| target.profile_id == instance.profile_id);
        existing_instance(users, board, instance, wanted)
    })
    .collect()
}

fn existing_instance<'a>(
    users: &DeviceUsers,
    board: &Board<'_>,
    instance: &'a GpuInstance,
    wanted: bool,
) -> Result<ExistingInstance<'a>, MissingInformation> {
    let id = instance.id;
    if PlacementMask::of(instance.placement).is_none() {
        return Err(MissingInformation(format!(
            "the driver does not say where GPU instance {id} lies"
        )));
    }
    let profile = board
        .find(instance.profile_id)
        .map(|(_, profile)| profile.source);
    let all = instance.compute_instances.iter();
    let computes: Option<Vec<_>> = all
        .map(|compute| splits::existing_compute(compute, profile))
        .collect();
    let few = instance.compute_instances.len() <= split::MAX_COMPUTE_INSTANCES;
    if wanted && (computes.is_none() || !few) {
        return Err(MissingInformation(format!(
            "the driver does not say how many slices the compute instances of GPU instance {id} have"
        )));
    }
    Ok(ExistingInstance {
        instance,
        pin: users.parts_in_use(instance),
        computes,
    })
}

fn blocked_by_unknown_state(reason: impl Into<String>) -> Verdict {
    blocked(vec![Cause::StateUnknown {
        reason: reason.into(),
    }])
}

fn blocked(causes: Vec<Cause>) -> Verdict {
    Verdict::Blocked(Blocked { causes })
}
