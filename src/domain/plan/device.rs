//! The verdict on one device.

use super::arrange::{Standing, Wish};
use super::blocked::{Blocked, Cause};
use super::board::{Board, Place, TooLarge};
use super::infeasible::{HardwareRule, Infeasible};
use super::mode::ModeChange;
use super::pins::Users;
use super::{Change, Question, Refusal, Verdict, build, modes, offers, splits};
use crate::domain::catalog::Placement;
use crate::domain::id::PciAddress;
use crate::domain::inventory::{
    Completeness, Condition, Device, GpuInstance, Mig, MigMode, MigState, NvmlState,
};
use crate::domain::layout::{InstanceTarget, MigTarget};

/// What is not told, in words for a person.
struct Untold(String);

/// What would happen to the device at `pci`.
pub(super) fn verdict(question: &Question<'_>, pci: PciAddress, target: &MigTarget) -> Verdict {
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
            decide(question, device, state, MigMode::Disabled, &[])
        }
        (Some(state), MigTarget::Enabled(instances)) => {
            decide(question, device, state, MigMode::Enabled, instances)
        }
    }
}

/// Whether `device` can have `instances` when nothing is on it. What it does not tell is not held against it.
pub(super) fn feasible(device: &Device, instances: &[InstanceTarget]) -> Result<(), Infeasible> {
    let state = match &device.mig {
        Mig::Unknown => return Ok(()),
        Mig::NotCapable => {
            return Err(Infeasible {
                rule: HardwareRule::NotMigCapable,
                nearest: Vec::new(),
            });
        }
        Mig::Capable(state) => state,
    };
    match Board::of(state) {
        Ok(board) if catalogue(&board, state, instances).is_ok() => hardware(&board, instances),
        Ok(_) | Err(TooLarge) => Ok(()),
    }
}

fn hardware(board: &Board<'_>, instances: &[InstanceTarget]) -> Result<(), Infeasible> {
    offers::forbids(board, instances).map_or(Ok(()), |rule| {
        Err(Infeasible {
            rule,
            nearest: offers::nearest(board, instances),
        })
    })
}

fn decide(
    question: &Question<'_>,
    device: &Device,
    state: &MigState,
    to: MigMode,
    instances: &[InstanceTarget],
) -> Verdict {
    let Ok(board) = Board::of(state) else {
        return untold("its list of profiles is longer than that of any device");
    };
    if let Err(Untold(reason)) = catalogue(&board, state, instances) {
        return untold(reason);
    }
    if let Err(infeasible) = hardware(&board, instances) {
        return Verdict::Infeasible(infeasible);
    }
    let users = Users::of(question, device);
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
    let mode = modes::change(question.inventory, device, state, to);
    arranged(question, &wish, &users, state, mode)
}

fn arranged(
    question: &Question<'_>,
    wish: &Wish<'_>,
    users: &Users,
    state: &MigState,
    mode: Option<ModeChange>,
) -> Verdict {
    let found = match wish.best() {
        Ok(Some(found)) => found,
        Ok(None) => return blocked(vec![Cause::Refused]),
        Err(_) => {
            return untold("its list of profiles allows more arrangements than can be compared");
        }
    };
    let mut causes = build::in_the_way(wish, &found, users);
    if let Some(mode) = &mode {
        causes.extend(modes::in_the_way(question, users, state, mode));
    }
    if !causes.is_empty() {
        return blocked(causes);
    }
    let change = build::change(wish, &found, mode);
    if change.steps.is_empty() {
        return Verdict::Unchanged;
    }
    Verdict::Change(off_is_empty(change))
}

/// A device without MIG mode has no place for anything.
fn off_is_empty(change: Change) -> Change {
    match &change.mode {
        Some(mode) if mode.to == MigMode::Disabled => Change { room: 0, ..change },
        Some(_) | None => change,
    }
}

/// The state of a device that tells all that a plan needs; `None` where it cannot be partitioned.
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

/// Whether the catalogue says enough about what is asked for.
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
        if !splits::told(profile.source, &instance.compute) {
            return Err(Untold(format!(
                "the driver does not say how a {name} can be split"
            )));
        }
    }
    Ok(())
}

/// What is there, with what of it is in use.
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
    let few = instance.compute_instances.len() <= splits::MOST;
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
