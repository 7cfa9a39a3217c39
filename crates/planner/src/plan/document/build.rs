//! Infallible conversion of a plan to a document.

use std::collections::BTreeMap;

use octavo_model::holder::Holder;
use octavo_model::id::PciAddress;
use octavo_model::inventory::{Device, DeviceProcesses, GpuInstance, Inventory};

use super::{
    BlockCause, DeviceVerdict, InfeasibleDevice, PlanDocument, PlannedDevice, PlannedStep,
    PlannedTimeSlicing, PresentComputeInstance, PresentInstance, ResultingComputeInstance,
    ResultingInstance,
};
use crate::layout::{RuleError, TargetScope, Targets};
use crate::plan::messages::PlanFormatter;
use crate::plan::{
    DeviceChange, DevicePlan, DevicePlanResult, Disruption, HardwareRule, Infeasible, InstanceRef,
    NodePlan, PlanOutcome, PlannedInstance, Step, is_in_use,
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

impl PlanDocument {
    /// Creates the document of `plan`.
    pub fn new(subject: &PlanInputs<'_>, plan: &NodePlan) -> Self {
        let summary = plan.summary();
        let devices = plan.devices.iter();
        Self {
            outcome: plan.outcome(),
            disruption: summary.disruption,
            destroyed: summary.destroyed.saturating_add(summary.compute_destroyed),
            created: summary.created.saturating_add(summary.compute_created),
            devices: devices.map(|device| planned_device(subject, device)).collect(),
            ..Self::without_devices(subject)
        }
    }

    /// Creates the document of a plan that covers no device.
    pub(super) fn without_devices(subject: &PlanInputs<'_>) -> Self {
        Self {
            api_version: "octavo.dev/v1",
            kind: "Plan",
            layout: subject.layout.to_owned(),
            node: subject.node.map(str::to_owned),
            outcome: PlanOutcome::Unchanged,
            disruption: Disruption::None,
            destroyed: 0,
            created: 0,
            warnings: subject.warnings.to_vec(),
            devices: Vec::new(),
        }
    }
}

/// Creates the entry of a device with its current partitions.
pub(super) fn current_device(
    subject: &PlanInputs<'_>,
    pci: PciAddress,
    verdict: Option<&DevicePlanResult>,
) -> PlannedDevice {
    let formatter = PlanFormatter::new(subject.inventory, pci);
    let device = subject.inventory.device(pci);
    let state = device.and_then(|device| device.mig.state());
    let slices = state.map(|state| state.catalog.memory_slices());
    let mut targets = subject.targets.devices.iter();
    let target = targets.find(|target| target.pci == pci);
    let time_slicing = target.and_then(|target| target.time_slicing.as_ref());
    PlannedDevice {
        index: device.and_then(|device| device.index),
        pci,
        uuid: device.and_then(|device| device.uuid.clone()),
        type_name: device.and_then(|device| device.identity.type_name().cloned()),
        verdict: DeviceVerdict::Unchanged,
        slices: slices.filter(|slices| *slices > 0),
        before: device
            .map(|device| before(subject, device, verdict, &formatter))
            .unwrap_or_default(),
        after: None,
        steps: Vec::new(),
        mode_change: None,
        blocked_by: Vec::new(),
        infeasible: None,
        interrupted_layout: subject.interrupted.get(&pci).cloned(),
        time_slicing: time_slicing.map(PlannedTimeSlicing::from),
        claims: target.filter(|target| target.scope == TargetScope::Mode).map(|_| "dra"),
    }
}

fn planned_device(subject: &PlanInputs<'_>, plan: &DevicePlan) -> PlannedDevice {
    let formatter = PlanFormatter::new(subject.inventory, plan.pci);
    let mut json = current_device(subject, plan.pci, Some(&plan.verdict));
    match &plan.verdict {
        DevicePlanResult::Unchanged => {
            json.after = Some(json.before.iter().map(unchanged_instance).collect());
        }
        DevicePlanResult::Change(change) => {
            json.verdict = DeviceVerdict::Change;
            json.after = Some(after(change, &formatter));
            let steps = change.steps.iter();
            json.steps = steps.map(|one| step(one, &formatter)).collect();
            json.mode_change.clone_from(&change.mode);
        }
        DevicePlanResult::Blocked(blocked) => {
            json.verdict = DeviceVerdict::Blocked;
            let causes = blocked.causes.iter();
            json.blocked_by = causes.map(|one| BlockCause::new(one, &formatter)).collect();
        }
        DevicePlanResult::Infeasible(why) => {
            json.verdict = DeviceVerdict::Infeasible;
            json.infeasible = Some(infeasible(why, &formatter));
        }
    }
    json
}

fn before(
    subject: &PlanInputs<'_>,
    device: &Device,
    verdict: Option<&DevicePlanResult>,
    formatter: &PlanFormatter<'_>,
) -> Vec<PresentInstance> {
    let instances = device.mig.state().map(|state| &state.gpu_instances);
    let mut instances: Vec<&GpuInstance> = instances.into_iter().flatten().collect();
    instances.sort_by_key(|instance| (instance.placement, instance.id));
    let is_reported = matches!(device.usage(), DeviceProcesses::Known(_));
    let kept = |id: u32| match verdict {
        Some(DevicePlanResult::Unchanged) => Some(true),
        Some(DevicePlanResult::Change(change)) => {
            Some(change.after.iter().any(|after| after.existing_id == Some(id)))
        }
        Some(DevicePlanResult::Blocked(_) | DevicePlanResult::Infeasible(_)) | None => None,
    };
    let each = instances.into_iter().map(|instance| {
        let computes = instance.compute_instances.iter();
        PresentInstance {
            gpu_instance: instance.id,
            profile: formatter.offered(instance.profile_id),
            profile_id: instance.profile_id,
            placement: instance.placement,
            compute_instances: computes
                .zip(formatter.compute_slices(instance))
                .map(|(compute, slices)| PresentComputeInstance { id: compute.id, slices })
                .collect(),
            // Absent if the driver does not report processes, unless another holder is known.
            in_use: if is_held(subject.holders, device, instance) {
                Some(true)
            } else {
                is_reported.then(|| is_in_use(device, subject.holders, instance))
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

fn unchanged_instance(before: &PresentInstance) -> ResultingInstance {
    let compute = before.compute_instances.iter();
    ResultingInstance {
        gpu_instance: Some(before.gpu_instance),
        profile: before.profile.clone(),
        profile_id: before.profile_id,
        placement: before.placement,
        compute_instances: compute
            .map(|compute| ResultingComputeInstance {
                id: Some(compute.id),
                slices: compute.slices,
            })
            .collect(),
    }
}

fn after(change: &DeviceChange, formatter: &PlanFormatter<'_>) -> Vec<ResultingInstance> {
    let one = |planned: &PlannedInstance| ResultingInstance {
        gpu_instance: planned.existing_id,
        profile: formatter.offered(planned.profile_id),
        profile_id: planned.profile_id,
        placement: planned.placement,
        compute_instances: planned
            .compute
            .iter()
            .map(|compute| ResultingComputeInstance {
                id: compute.existing_id,
                slices: Some(compute.slices),
            })
            .collect(),
    };
    change.after.iter().map(one).collect()
}

fn step(step: &Step, formatter: &PlanFormatter<'_>) -> PlannedStep {
    match step {
        Step::DestroyComputeInstance { gpu_instance, compute_instance } => {
            PlannedStep::DestroyComputeInstance {
                gpu_instance: *gpu_instance,
                compute_instance: *compute_instance,
            }
        }
        Step::DestroyGpuInstance { gpu_instance, profile_id, placement } => {
            PlannedStep::DestroyGpuInstance {
                gpu_instance: *gpu_instance,
                profile: formatter.offered(*profile_id),
                profile_id: *profile_id,
                placement: *placement,
            }
        }
        Step::SetMigMode { to } => PlannedStep::SetMigMode { mode: *to },
        Step::Reset { scope } => PlannedStep::Reset(scope.clone()),
        Step::CreateGpuInstance { instance, profile_id, placement } => {
            PlannedStep::CreateGpuInstance {
                instance: *instance,
                profile: formatter.offered(*profile_id),
                profile_id: *profile_id,
                placement: *placement,
            }
        }
        Step::CreateComputeInstance { gpu_instance, slices } => {
            let (there, planned) = match gpu_instance {
                InstanceRef::Existing(id) => (Some(*id), None),
                InstanceRef::Planned(number) => (None, Some(*number)),
            };
            PlannedStep::CreateComputeInstance {
                gpu_instance: there,
                instance: planned,
                slices: *slices,
            }
        }
    }
}

fn infeasible(why: &Infeasible, formatter: &PlanFormatter<'_>) -> InfeasibleDevice {
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
    InfeasibleDevice {
        rule,
        message: formatter.rule(&why.rule),
        nearest: why
            .alternatives
            .iter()
            .map(|instances| formatter.counts(instances).into_iter().collect())
            .collect(),
    }
}

// The document of a layout that the hardware does not support. There is no plan; each device has the rule that forbids
// its part.

impl PlanDocument {
    /// Creates the document from the `errors` that prevented a plan for `subject`. Returns `None` if any of the errors
    /// is not a limitation of the hardware.
    pub fn refused(subject: &PlanInputs<'_>, errors: &[RuleError]) -> Option<Self> {
        let rules: Option<Vec<&'static str>> =
            errors.iter().map(|error| error.kind.hardware_rule()).collect();
        let mut devices: Vec<(PciAddress, InfeasibleDevice)> = Vec::new();
        for (error, rule) in errors.iter().zip(rules?) {
            for device in &error.devices {
                // Each device occurs once, with the first rule that it violates.
                if devices.iter().all(|(known, _)| *known != device.pci) {
                    let why = InfeasibleDevice {
                        rule,
                        message: error.kind.to_string(),
                        nearest: Vec::new(),
                    };
                    devices.push((device.pci, why));
                }
            }
        }
        devices.sort_by_key(|(pci, _)| *pci);
        let devices = devices.into_iter().map(|(pci, why)| {
            let mut device = current_device(subject, pci, None);
            device.verdict = DeviceVerdict::Infeasible;
            device.infeasible = Some(why);
            device
        });
        Some(Self {
            outcome: PlanOutcome::Infeasible,
            devices: devices.collect(),
            ..Self::without_devices(subject)
        })
    }

    /// Adds the devices of `other` that are not in the document yet, and its disruption and counts. Keeps the outcome.
    pub fn merge(&mut self, other: Self) {
        self.disruption = self.disruption.max(other.disruption);
        self.destroyed = self.destroyed.saturating_add(other.destroyed);
        self.created = self.created.saturating_add(other.created);
        for device in other.devices {
            if self.devices.iter().all(|known| known.pci != device.pci) {
                self.devices.push(device);
            }
        }
        self.devices.sort_by_key(|device| device.pci);
    }
}
