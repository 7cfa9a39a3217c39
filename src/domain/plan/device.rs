//! Plans one device.

use super::arrange::{Standing, Wish};
use super::blocked::{Blocked, Cause};
use super::board::{Board, Place};
use super::infeasible::{HardwareRule, Infeasible};
use super::memo::{Alike, Memo};
use super::pins::Users;
use super::work::TooMuch;
use super::{Change, Feasible, Question, Refusal, Verdict, build, modes, splits};
use crate::domain::catalog::Placement;
use crate::domain::id::PciAddress;
use crate::domain::inventory::{
    Completeness, Condition, Device, GpuInstance, Mig, MigMode, MigState, NvmlState,
};
use crate::domain::layout::{InstanceTarget, MigTarget};
use crate::domain::split;

/// Fixed cost of a device before the search: converting the largest table into a board.
const OVERHEAD: usize = 2_000;

/// Missing information, as text.
struct Untold(String);

/// Message for a table or state that no device has, or that takes too long to search.
const TOO_MUCH: &str = "its list of profiles allows more arrangements than can be compared";

/// Returns the verdict on the device at `pci`.
pub(super) fn verdict<'q>(
    question: &Question<'q>,
    pci: PciAddress,
    target: &'q MigTarget,
    memo: &mut Memo<'q>,
) -> Verdict {
    let mut devices = question.inventory.devices.iter();
    let Some(device) = devices.find(|device| device.pci == pci) else {
        return untold("this node has no such device now");
    };
    let state = match told(question, device) {
        Ok(state) => state,
        Err(Untold(reason)) => return untold(reason),
    };
    match (state, target) {
        (None, MigTarget::Disabled) => Verdict::Unchanged,
        (None, MigTarget::Enabled(_)) => Verdict::Infeasible(Infeasible {
            rule: HardwareRule::NotMigCapable,
            nearest: Vec::new(),
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
    untold(format!("its state cannot be read: {reason}"))
}

/// Checks whether the empty `device` supports `instances`.
pub(super) fn feasible(
    device: &Device,
    instances: &[InstanceTarget],
) -> Result<Feasible, Infeasible> {
    let state = match &device.mig {
        Mig::Unknown => return Ok(Feasible::Untold),
        Mig::NotCapable => {
            return Err(Infeasible {
                rule: HardwareRule::NotMigCapable,
                nearest: Vec::new(),
            });
        }
        Mig::Capable(state) => state,
    };
    let Ok(board) = Board::of(state) else {
        return Ok(Feasible::Untold);
    };
    if catalogue(&board, state, instances).is_err() {
        return Ok(Feasible::Untold);
    }
    match Memo::new().forbidden(state, &board, instances) {
        Ok(answer) => answer.map(|()| Feasible::Yes),
        Err(TooMuch) => Ok(Feasible::Untold),
    }
}

fn decide<'q>(
    question: &Question<'q>,
    (device, state): (&'q Device, &'q MigState),
    (to, instances): (MigMode, &'q [InstanceTarget]),
    memo: &mut Memo<'q>,
) -> Verdict {
    if memo.work.spend(OVERHEAD).is_err() {
        return untold(TOO_MUCH);
    }
    let Ok(board) = Board::of(state) else {
        return untold("its list of profiles is longer than that of any device");
    };
    if let Err(Untold(reason)) = catalogue(&board, state, instances) {
        return untold(reason);
    }
    match memo.forbidden(state, &board, instances) {
        Ok(Ok(())) => {}
        Ok(Err(infeasible)) => return Verdict::Infeasible(infeasible),
        Err(TooMuch) => return untold(TOO_MUCH),
    }
    let users = Users::of(question.holders, device);
    let standing = match standing(&users, &board, state, instances) {
        Ok(standing) => standing,
        Err(Untold(reason)) => return untold(reason),
    };
    let refused = |profile_id: u32, placement: Placement| {
        question.refused.contains(&Refusal {
            device: device.pci,
            profile_id,
            placement,
        })
    };
    let wish = Wish {
        board: &board,
        standing: &standing,
        instances,
        refused: &refused,
    };
    let places = question.refused.iter();
    let alike = Alike {
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
        Ok(None) => return blocked(vec![Cause::Refused]),
        Err(TooMuch) => return untold(TOO_MUCH),
    };
    let mode = modes::change(question.inventory, device, state, to);
    let mut causes = build::in_the_way(&wish, &found, &users);
    if let Some(mode) = &mode {
        causes.extend(modes::in_the_way(question, &users, state, mode));
    }
    if !causes.is_empty() {
        return blocked(causes);
    }
    let change = build::change(&wish, &found, mode);
    if change.steps.is_empty() {
        return Verdict::Unchanged;
    }
    Verdict::Change(off_is_empty(change))
}

/// Sets the room to zero if MIG mode ends up disabled: such a device has no placements.
fn off_is_empty(change: Change) -> Change {
    match &change.mode {
        Some(mode) if mode.to == MigMode::Disabled => Change { room: 0, ..change },
        Some(_) | None => change,
    }
}

/// Returns the MIG state of a device that reports everything a plan needs; `None` if the device cannot be partitioned.
fn told<'a>(question: &Question<'a>, device: &'a Device) -> Result<Option<&'a MigState>, Untold> {
    match &device.condition {
        Condition::Working => {}
        Condition::Failing { reason } => {
            return Err(Untold(format!(
                "its driver does not answer for it: {reason}"
            )));
        }
        Condition::PciOnly { .. } => {
            return Err(Untold("no driver library speaks for it".to_owned()));
        }
    }
    match &question.inventory.nvml {
        NvmlState::Stalled { call, .. } => {
            return Err(Untold(format!(
                "the driver does not return from {call}, and what it said before may no longer hold"
            )));
        }
        NvmlState::Lost { reason } => {
            return Err(Untold(format!(
                "the driver no longer answers ({reason}), and what it said before may no longer hold"
            )));
        }
        NvmlState::Absent { .. } | NvmlState::Loading | NvmlState::Ready(_) => {}
    }
    match &device.mig {
        Mig::Unknown => Err(Untold(
            "the driver does not say whether it can be partitioned".to_owned(),
        )),
        Mig::NotCapable => Ok(None),
        Mig::Capable(state) if state.geometry == Completeness::Partial => Err(Untold(
            "the driver does not tell all the partitions that it has".to_owned(),
        )),
        Mig::Capable(state) => Ok(Some(state)),
    }
}

/// Checks that the catalog describes the requested profiles completely.
fn catalogue(
    board: &Board<'_>,
    state: &MigState,
    instances: &[InstanceTarget],
) -> Result<(), Untold> {
    if instances.is_empty() {
        return Ok(());
    }
    if board.profiles.is_empty() {
        return Err(Untold(match state.current {
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
            return Err(Untold(format!(
                "the driver does not say where a {name} may lie"
            )));
        }
    }
    Ok(())
}

/// Returns the existing instances with their parts in use.
fn standing<'a>(
    users: &Users,
    board: &Board<'_>,
    state: &'a MigState,
    instances: &[InstanceTarget],
) -> Result<Vec<Standing<'a>>, Untold> {
    if state.current == MigMode::Disabled && !state.gpu_instances.is_empty() {
        return Err(Untold(
            "the driver tells of partitions although MIG mode is off".to_owned(),
        ));
    }
    let mut taken = 0;
    for place in state
        .gpu_instances
        .iter()
        .filter_map(|one| Place::of(one.placement))
    {
        if taken & place.bits != 0 {
            return Err(Untold(
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
        one(users, board, instance, wanted)
    })
    .collect()
}

fn one<'a>(
    users: &Users,
    board: &Board<'_>,
    instance: &'a GpuInstance,
    wanted: bool,
) -> Result<Standing<'a>, Untold> {
    let id = instance.id;
    if Place::of(instance.placement).is_none() {
        return Err(Untold(format!(
            "the driver does not say where GPU instance {id} lies"
        )));
    }
    let profile = board
        .find(instance.profile_id)
        .map(|(_, profile)| profile.source);
    let all = instance.compute_instances.iter();
    let computes: Option<Vec<_>> = all
        .map(|compute| splits::present(compute, profile))
        .collect();
    let few = instance.compute_instances.len() <= split::MOST;
    if wanted && (computes.is_none() || !few) {
        return Err(Untold(format!(
            "the driver does not say how many slices the compute instances of GPU instance {id} have"
        )));
    }
    Ok(Standing {
        instance,
        pin: users.pin(instance),
        computes,
    })
}

fn untold(reason: impl Into<String>) -> Verdict {
    blocked(vec![Cause::Untold {
        reason: reason.into(),
    }])
}

fn blocked(causes: Vec<Cause>) -> Verdict {
    Verdict::Blocked(Blocked { causes })
}
