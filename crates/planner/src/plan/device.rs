//! Plans one device.

use octavo_model::catalog::Placement;
use octavo_model::id::PciAddress;
use octavo_model::inventory::{
    Completeness, Condition, Device, GpuInstance, Mig, MigMode, MigState, NvmlState,
};

use super::arrange::{ArrangementQuery, ExistingInstance, existing_compute};
use super::cache::{DeviceKey, PlanCache};
use super::profile_table::{PlacementMask, ProfileTable, TableTooLarge};
use super::usage::DeviceUsers;
use super::work_budget::BudgetExceeded;
use super::{
    Blocked, Cause, DevicePlanResult, HardwareRule, Infeasible, PlanInput, RefusedPlacement, build,
    mode_planning,
};
use crate::layout::{InstanceTarget, MigTarget};
use crate::split;

const NOT_MIG_CAPABLE: Infeasible =
    Infeasible { rule: HardwareRule::NotMigCapable, alternatives: Vec::new() };

/// Fixed cost of a device before the search: converting the largest table of profiles.
const DEVICE_WORK: usize = 2_000;

/// Reason why a device cannot be planned: missing information, as text.
struct MissingInformation(String);

impl From<BudgetExceeded> for MissingInformation {
    fn from(_: BudgetExceeded) -> Self {
        Self("its profiles allow more arrangements than can be compared".to_owned())
    }
}

/// Returns the verdict on the device at `pci`.
pub(super) fn verdict<'q>(
    input: &PlanInput<'q>,
    pci: PciAddress,
    target: &'q MigTarget,
    cache: &mut PlanCache<'q>,
) -> DevicePlanResult {
    let Some(device) = input.inventory.device(pci) else {
        return blocked_by_unknown_state("the device is no longer on this node");
    };
    let state = match reported_state(input, device) {
        Ok(state) => state,
        // Most rules of the hardware do not depend on the missing information.
        Err(MissingInformation(reason)) => {
            return infeasible(device, target)
                .map_or_else(|| blocked_by_unknown_state(reason), DevicePlanResult::Infeasible);
        }
    };
    let decided = match (state, target) {
        (None, MigTarget::Disabled) => Ok(DevicePlanResult::Unchanged),
        (None, MigTarget::Enabled(_)) => Ok(DevicePlanResult::Infeasible(NOT_MIG_CAPABLE)),
        (Some(state), MigTarget::Disabled) => {
            decide(input, (device, state), (MigMode::Disabled, &[]), cache)
        }
        (Some(state), MigTarget::Enabled(instances)) => {
            decide(input, (device, state), (MigMode::Enabled, instances), cache)
        }
    };
    decided.unwrap_or_else(|MissingInformation(reason)| blocked_by_unknown_state(reason))
}

/// Returns the verdict on a device whose state cannot be read.
pub(super) fn unverified(reason: &str) -> DevicePlanResult {
    blocked_by_unknown_state(format!("its state cannot be read: {reason}"))
}

/// Feasibility of a target on an empty device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feasibility {
    /// The device supports the target.
    Feasible,
    /// Unknown: the device does not report enough, or its tables exceed the work budget.
    Unknown,
}

/// Checks whether `device` supports `instances` if it is empty; otherwise returns the violated hardware rule.
pub fn feasible(device: &Device, instances: &[InstanceTarget]) -> Result<Feasibility, Infeasible> {
    let state = match &device.mig {
        Mig::Unknown => return Ok(Feasibility::Unknown),
        Mig::NotCapable => return Err(NOT_MIG_CAPABLE),
        Mig::Capable(state) => state,
    };
    let Ok(table) = ProfileTable::from_state(state) else {
        return Ok(Feasibility::Unknown);
    };
    if check_catalog(&table, state, instances).is_err() {
        return Ok(Feasibility::Unknown);
    }
    match PlanCache::new().check_feasible(state, &table, instances) {
        Ok(answer) => answer.map(|()| Feasibility::Feasible),
        Err(BudgetExceeded) => Ok(Feasibility::Unknown),
    }
}

/// Returns why a device that was not read completely can never support the target, whatever its current state is.
fn infeasible(device: &Device, target: &MigTarget) -> Option<Infeasible> {
    // A profile can be missing because it was not read.
    let is_certain = |found: &Infeasible| {
        !matches!(
            found.rule,
            HardwareRule::NoSuchProfile { .. } | HardwareRule::ComputeSplit { .. }
        )
    };
    match (&device.mig, target) {
        (Mig::Capable(_), MigTarget::Enabled(instances)) => {
            feasible(device, instances).err().filter(is_certain)
        }
        (Mig::Unknown | Mig::NotCapable, _) | (_, MigTarget::Disabled) => None,
    }
}

fn decide<'q>(
    input: &PlanInput<'q>,
    (device, state): (&'q Device, &'q MigState),
    (to, instances): (MigMode, &'q [InstanceTarget]),
    cache: &mut PlanCache<'q>,
) -> Result<DevicePlanResult, MissingInformation> {
    cache.work.spend(DEVICE_WORK)?;
    let table = ProfileTable::from_state(state).map_err(|TableTooLarge| {
        MissingInformation(
            "its list of profiles is longer than that of any known device".to_owned(),
        )
    })?;
    check_catalog(&table, state, instances)?;
    if let Err(infeasible) = cache.check_feasible(state, &table, instances)? {
        return Ok(DevicePlanResult::Infeasible(infeasible));
    }
    let users = DeviceUsers::of(input.holders, device);
    let existing = existing_instances(&users, &table, state, instances)?;
    let refused = |profile_id: u32, placement: Placement| {
        input.refused.contains(&RefusedPlacement { device: device.pci, profile_id, placement })
    };
    let query =
        ArrangementQuery { table: &table, existing: &existing, instances, refused: &refused };
    let places = input.refused.iter();
    let alike = DeviceKey {
        state,
        instances,
        parts_in_use: existing.iter().map(|one| one.parts_in_use.clone()).collect(),
        refused: places
            .filter(|refusal| refusal.device == device.pci)
            .map(|refusal| (refusal.profile_id, refusal.placement))
            .collect(),
    };
    let Some(found) = cache.best(alike, &query)? else {
        return Ok(blocked(vec![Cause::HardwareRefused]));
    };
    let mode = mode_planning::change(input.inventory, device, state, to);
    let mut causes = build::blocking_instances(&query, &found, &users);
    if let Some(mode) = &mode {
        causes.extend(mode_planning::blocking_causes(input, &users, state, mode));
    }
    if !causes.is_empty() {
        return Ok(blocked(causes));
    }
    let mut change = build::change(&query, &found, mode);
    if change.steps.is_empty() {
        return Ok(DevicePlanResult::Unchanged);
    }
    if change.mode.as_ref().is_some_and(|mode| mode.to == MigMode::Disabled) {
        // A device with MIG mode disabled has no placements.
        change.room = 0;
    }
    Ok(DevicePlanResult::Change(change))
}

/// Returns the MIG state of a device that reports everything a plan needs; `None` if the device cannot be partitioned.
fn reported_state<'a>(
    input: &PlanInput<'a>,
    device: &'a Device,
) -> Result<Option<&'a MigState>, MissingInformation> {
    match &device.condition {
        Condition::Working => {}
        Condition::Failing { reason } => {
            return Err(MissingInformation(format!(
                "its driver returns an error for it: {reason}"
            )));
        }
        Condition::PciOnly { .. } => {
            return Err(MissingInformation("no driver library reports it".to_owned()));
        }
    }
    match &input.inventory.nvml {
        NvmlState::Stalled { call, .. } => {
            return Err(MissingInformation(format!(
                "the driver call {call} does not return, so the last reading may be outdated"
            )));
        }
        NvmlState::Lost { reason } => {
            return Err(MissingInformation(format!(
                "the driver no longer responds ({reason}), so the last reading may be outdated"
            )));
        }
        NvmlState::Absent { .. } | NvmlState::Loading | NvmlState::Ready(_) => {}
    }
    match &device.mig {
        Mig::Unknown => Err(MissingInformation(
            "the driver does not report whether it can be partitioned".to_owned(),
        )),
        Mig::NotCapable => Ok(None),
        Mig::Capable(state) if state.geometry == Completeness::Partial => {
            Err(MissingInformation("the driver does not report all of its partitions".to_owned()))
        }
        Mig::Capable(state) => Ok(Some(state)),
    }
}

/// Checks that the catalog describes the requested profiles completely.
fn check_catalog(
    table: &ProfileTable<'_>,
    state: &MigState,
    instances: &[InstanceTarget],
) -> Result<(), MissingInformation> {
    if instances.is_empty() {
        return Ok(());
    }
    if table.profiles.is_empty() {
        return Err(MissingInformation(match state.current {
            MigMode::Enabled => "the driver lists no profiles".to_owned(),
            MigMode::Disabled => {
                "the driver lists no profiles while MIG mode is off, as is the case for older drivers: enable MIG \
                 mode first with a layout without partitions"
                    .to_owned()
            }
        }));
    }
    for instance in instances {
        let Some((_, profile)) = table.find(instance.profile_id) else {
            continue;
        };
        let name = &profile.source.name;
        if profile.places.is_empty() {
            return Err(MissingInformation(format!(
                "the driver does not report the possible placements of {name}"
            )));
        }
    }
    Ok(())
}

/// Returns the existing instances with their parts in use.
fn existing_instances<'a>(
    users: &DeviceUsers,
    table: &ProfileTable<'_>,
    state: &'a MigState,
    instances: &[InstanceTarget],
) -> Result<Vec<ExistingInstance<'a>>, MissingInformation> {
    if state.current == MigMode::Disabled && !state.gpu_instances.is_empty() {
        return Err(MissingInformation(
            "the driver reports partitions although MIG mode is off".to_owned(),
        ));
    }
    let mut taken = 0;
    for place in state.gpu_instances.iter().filter_map(|one| PlacementMask::new(one.placement)) {
        if taken & place.bits != 0 {
            return Err(MissingInformation(
                "the driver reports two partitions at the same placement".to_owned(),
            ));
        }
        taken |= place.bits;
    }
    let all = state.gpu_instances.iter();
    all.map(|instance| {
        let wanted = instances.iter().any(|target| target.profile_id == instance.profile_id);
        existing_instance(users, table, instance, wanted)
    })
    .collect()
}

fn existing_instance<'a>(
    users: &DeviceUsers,
    table: &ProfileTable<'_>,
    instance: &'a GpuInstance,
    wanted: bool,
) -> Result<ExistingInstance<'a>, MissingInformation> {
    let id = instance.id;
    if PlacementMask::new(instance.placement).is_none() {
        return Err(MissingInformation(format!(
            "the driver does not report the placement of GPU instance {id}"
        )));
    }
    let profile = table.find(instance.profile_id).map(|(_, profile)| profile.source);
    let all = instance.compute_instances.iter();
    let computes: Option<Vec<_>> = all.map(|compute| existing_compute(compute, profile)).collect();
    let few = instance.compute_instances.len() <= split::MAX_COMPUTE_INSTANCES;
    if wanted && (computes.is_none() || !few) {
        return Err(MissingInformation(format!(
            "the driver does not report the slices of the compute instances of GPU instance {id}"
        )));
    }
    Ok(ExistingInstance { instance, parts_in_use: users.parts_in_use(instance), computes })
}

fn blocked_by_unknown_state(reason: impl Into<String>) -> DevicePlanResult {
    blocked(vec![Cause::StateUnknown { reason: reason.into() }])
}

fn blocked(causes: Vec<Cause>) -> DevicePlanResult {
    DevicePlanResult::Blocked(Blocked { causes })
}
