//! Infallible conversion of a plan to a document.

use std::collections::BTreeMap;

use octavo_model::catalog::Placement;
use octavo_model::holder::Holder;
use octavo_model::id::PciAddress;
use octavo_model::inventory::{Device, DeviceProcesses, GpuInstance, Inventory, MigMode};
use octavo_planner::layout::Targets;
use octavo_planner::plan::messages::PlanFormatter;
use octavo_planner::plan::{
    DeviceChange, DevicePlan, Disruption, HardwareRule, Infeasible, InstanceRef, ModeChange,
    NodePlan, PlanOutcome, PlannedInstance, ResetScope, Step, Verdict, is_in_use,
};

use super::blocked::cause;
use super::{
    API_VERSION, DeviceJson, DisruptionJson, Document, InfeasibleJson, ModeChangeJson, ModeJson,
    OutcomeJson, PlacementJson, PlannedComputeJson, PlannedInstanceJson, PresentComputeJson,
    PresentInstanceJson, ResetJson, StepJson, TimeSlicingJson, VerdictJson,
};

/// Inputs of a plan.
#[derive(Debug, Clone, Copy)]
pub struct PlanInputs<'a> {
    /// The last known inventory of the node.
    pub inventory: &'a Inventory,
    /// Name of the node, if known.
    pub node: Option<&'a str>,
    /// Name of the layout.
    pub layout: &'a str,
    /// The layout resolved for this node.
    pub targets: &'a Targets,
    /// Holders of devices, in addition to the processes in the inventory.
    pub holders: &'a [Holder],
    /// Warnings about the layout on this node.
    pub warnings: &'a [String],
    /// Devices whose interrupted change is completed, and the layout of that change.
    pub interrupted: &'a BTreeMap<PciAddress, String>,
}

/// Creates the document of `plan`.
pub fn document(subject: &PlanInputs<'_>, plan: &NodePlan) -> Document {
    let tally = plan.summary();
    let devices = plan.devices.iter();
    Document {
        api_version: API_VERSION.to_owned(),
        kind: "Plan".to_owned(),
        layout: subject.layout.to_owned(),
        node: subject.node.map(str::to_owned),
        outcome: match plan.outcome() {
            PlanOutcome::Unchanged => OutcomeJson::Nothing,
            PlanOutcome::Changes => OutcomeJson::Changes,
            PlanOutcome::Blocked => OutcomeJson::Blocked,
            PlanOutcome::Infeasible => OutcomeJson::Infeasible,
        },
        disruption: tally.disruption.into(),
        destroyed: tally.destroyed.saturating_add(tally.compute_destroyed),
        created: tally.created.saturating_add(tally.compute_created),
        warnings: subject.warnings.to_vec(),
        devices: devices
            .map(|device| planned_device(subject, device))
            .collect(),
    }
}

/// Creates the entry of a device with its identity only.
fn device_identity(
    subject: &PlanInputs<'_>,
    pci: PciAddress,
    device: Option<&Device>,
) -> DeviceJson {
    let identity = device.map(|device| &device.identity);
    let state = device.and_then(|device| device.mig.state());
    let slices = state.map(|state| state.catalog.memory_slices());
    let mut targets = subject.targets.devices.iter();
    let target = targets.find(|target| target.pci == pci);
    let time_slicing = target.and_then(|target| target.time_slicing.as_ref());
    DeviceJson {
        index: device.and_then(|device| device.index),
        pci: pci.to_string(),
        uuid: device.and_then(|device| device.uuid.as_ref().map(ToString::to_string)),
        type_name: identity.and_then(|identity| identity.type_name().map(ToString::to_string)),
        verdict: VerdictJson::Unchanged,
        slices: slices.filter(|slices| *slices > 0),
        before: Vec::new(),
        after: None,
        steps: Vec::new(),
        mode_change: None,
        blocked_by: Vec::new(),
        infeasible: None,
        interrupted_layout: subject.interrupted.get(&pci).cloned(),
        time_slicing: time_slicing.map(TimeSlicingJson::from),
    }
}

/// Creates the entry of a device with its current partitions.
pub(super) fn current_device(
    subject: &PlanInputs<'_>,
    pci: PciAddress,
    verdict: Option<&Verdict>,
) -> DeviceJson {
    let words = PlanFormatter::new(subject.inventory, pci);
    let mut devices = subject.inventory.devices.iter();
    let device = devices.find(|device| device.pci == pci);
    let mut json = device_identity(subject, pci, device);
    if let Some(device) = device {
        json.before = before(subject, device, verdict, &words);
    }
    json
}

fn planned_device(subject: &PlanInputs<'_>, plan: &DevicePlan) -> DeviceJson {
    let words = PlanFormatter::new(subject.inventory, plan.pci);
    let mut json = current_device(subject, plan.pci, Some(&plan.verdict));
    match &plan.verdict {
        Verdict::Unchanged => {
            json.after = Some(json.before.iter().map(unchanged_instance).collect());
        }
        Verdict::Change(change) => {
            json.verdict = VerdictJson::Change;
            json.after = Some(after(change, &words));
            let steps = change.steps.iter();
            json.steps = steps.map(|one| step(one, &words)).collect();
            json.mode_change = change.mode.as_ref().map(ModeChangeJson::from);
        }
        Verdict::Blocked(blocked) => {
            json.verdict = VerdictJson::Blocked;
            let causes = blocked.causes.iter();
            json.blocked_by = causes.map(|one| cause(one, &words)).collect();
        }
        Verdict::Infeasible(why) => {
            json.verdict = VerdictJson::Infeasible;
            json.infeasible = Some(infeasible(why, &words));
        }
    }
    json
}

fn before(
    subject: &PlanInputs<'_>,
    device: &Device,
    verdict: Option<&Verdict>,
    words: &PlanFormatter<'_>,
) -> Vec<PresentInstanceJson> {
    let instances = device.mig.state().map(|state| &state.gpu_instances);
    let mut instances: Vec<&GpuInstance> = instances.into_iter().flatten().collect();
    instances.sort_by_key(|instance| (instance.placement, instance.id));
    let is_told = matches!(device.usage(), DeviceProcesses::Known(_));
    let kept = |id: u32| match verdict {
        Some(Verdict::Unchanged) => Some(true),
        Some(Verdict::Change(change)) => {
            Some(change.after.iter().any(|after| after.kept == Some(id)))
        }
        Some(Verdict::Blocked(_) | Verdict::Infeasible(_)) | None => None,
    };
    let each = instances.into_iter().map(|instance| {
        let computes = instance.compute_instances.iter();
        PresentInstanceJson {
            gpu_instance: instance.id,
            profile: words.offered(instance.profile_id),
            profile_id: instance.profile_id,
            placement: instance.placement.into(),
            compute_instances: computes
                .zip(words.compute_slices(instance))
                .map(|(compute, slices)| PresentComputeJson {
                    id: compute.id,
                    slices,
                })
                .collect(),
            // Absent if the driver does not report processes, unless another holder is known.
            in_use: if is_held(subject.holders, device, instance) {
                Some(true)
            } else {
                is_told.then(|| is_in_use(device, subject.holders, instance))
            },
            kept: kept(instance.id),
        }
    });
    each.collect()
}

fn is_held(holders: &[Holder], device: &Device, instance: &GpuInstance) -> bool {
    let held =
        |holder: &Holder| holder.device == device.pci && holder.gpu_instance == Some(instance.id);
    holders.iter().any(held)
}

fn unchanged_instance(before: &PresentInstanceJson) -> PlannedInstanceJson {
    let compute = before.compute_instances.iter();
    PlannedInstanceJson {
        gpu_instance: Some(before.gpu_instance),
        profile: before.profile.clone(),
        profile_id: before.profile_id,
        placement: before.placement,
        compute_instances: compute
            .map(|compute| PlannedComputeJson {
                id: Some(compute.id),
                slices: compute.slices,
            })
            .collect(),
    }
}

fn after(change: &DeviceChange, words: &PlanFormatter<'_>) -> Vec<PlannedInstanceJson> {
    let one = |planned: &PlannedInstance| PlannedInstanceJson {
        gpu_instance: planned.kept,
        profile: words.offered(planned.profile_id),
        profile_id: planned.profile_id,
        placement: planned.placement.into(),
        compute_instances: planned
            .compute
            .iter()
            .map(|compute| PlannedComputeJson {
                id: compute.kept,
                slices: Some(compute.slices),
            })
            .collect(),
    };
    change.after.iter().map(one).collect()
}

fn step(step: &Step, words: &PlanFormatter<'_>) -> StepJson {
    match step {
        Step::DestroyComputeInstance {
            gpu_instance,
            compute_instance,
        } => StepJson::DestroyComputeInstance {
            gpu_instance: *gpu_instance,
            compute_instance: *compute_instance,
        },
        Step::DestroyGpuInstance {
            gpu_instance,
            profile_id,
            placement,
        } => StepJson::DestroyGpuInstance {
            gpu_instance: *gpu_instance,
            profile: words.offered(*profile_id),
            profile_id: *profile_id,
            placement: (*placement).into(),
        },
        Step::SetMigMode { to } => StepJson::SetMigMode { mode: (*to).into() },
        Step::Reset { scope } => StepJson::Reset(scope.into()),
        Step::CreateGpuInstance {
            instance,
            profile_id,
            placement,
        } => StepJson::CreateGpuInstance {
            instance: *instance,
            profile: words.offered(*profile_id),
            profile_id: *profile_id,
            placement: (*placement).into(),
        },
        Step::CreateComputeInstance {
            gpu_instance,
            slices,
        } => {
            let (there, planned) = match gpu_instance {
                InstanceRef::Existing(id) => (Some(*id), None),
                InstanceRef::Planned(number) => (None, Some(*number)),
            };
            StepJson::CreateComputeInstance {
                gpu_instance: there,
                instance: planned,
                slices: *slices,
            }
        }
    }
}

fn infeasible(why: &Infeasible, words: &PlanFormatter<'_>) -> InfeasibleJson {
    let rule = match why.rule {
        HardwareRule::NotMigCapable => "notMigCapable",
        HardwareRule::NoSuchProfile { .. } => "noSuchProfile",
        HardwareRule::TooMany { .. } => "tooMany",
        HardwareRule::GpuSlices { .. } => "gpuSlices",
        HardwareRule::MemorySlices { .. } => "memorySlices",
        HardwareRule::Exclusive { .. } => "exclusive",
        HardwareRule::NoArrangement => "noArrangement",
        HardwareRule::ComputeSplit { .. } => "computeSplit",
    };
    let offers = why.alternatives.iter();
    InfeasibleJson {
        rule: rule.to_owned(),
        message: words.rule(&why.rule),
        nearest: offers
            .map(|offer| words.counts(&offer.instances).into_iter().collect())
            .collect(),
    }
}

impl From<&ModeChange> for ModeChangeJson {
    fn from(mode: &ModeChange) -> Self {
        Self {
            to: mode.to.into(),
            pending: mode.pending,
            disruption: mode.disruption.into(),
            reset: mode.reset.as_ref().map(ResetJson::from),
        }
    }
}

impl From<Placement> for PlacementJson {
    fn from(placement: Placement) -> Self {
        Self {
            start: placement.start,
            size: placement.size,
        }
    }
}

impl From<MigMode> for ModeJson {
    fn from(mode: MigMode) -> Self {
        match mode {
            MigMode::Disabled => Self::Disabled,
            MigMode::Enabled => Self::Enabled,
        }
    }
}

impl From<Disruption> for DisruptionJson {
    fn from(disruption: Disruption) -> Self {
        match disruption {
            Disruption::None => Self::None,
            Disruption::ClientsBounce => Self::ClientsBounce,
            Disruption::GpuReset => Self::GpuReset,
            Disruption::Reboot => Self::Reboot,
        }
    }
}

impl From<&ResetScope> for ResetJson {
    fn from(scope: &ResetScope) -> Self {
        Self {
            device: scope.device.to_string(),
            coupled: scope.coupled.iter().map(ToString::to_string).collect(),
            links: scope.links.map(|links| links.to_string()),
        }
    }
}
