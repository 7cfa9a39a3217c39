//! Texts for plans, shared by the terminal and the web UI: steps, blockers and remedies, and reasons why a target is
//! infeasible.
//!
//! Sentences have no final full stop, so that they can be listed or continued. Profile names come from the driver and
//! commands from processes; both may contain any character.

use octavo_model::catalog::{Placement, ProfileCatalog};
use octavo_model::holder::{Holder, HolderDetails, Pod, without_repeated_pods};
use octavo_model::id::PciAddress;
use octavo_model::interconnect::InterconnectKind;
use octavo_model::inventory::{GpuInstance, Inventory, MigMode, ProcessKind};
use octavo_model::slices::words::slice_range;
use octavo_model::text::join;

use super::{
    Cause, Disruption, HardwareRule, Infeasible, InstanceRef, ModeChange, PlanSummary,
    PlannedInstance, ResetScope, Step,
};
use crate::layout::{DeviceTarget, InstanceTarget, TargetScope};
use crate::split::listed_slices;

/// Formats texts about one device of a node.
#[derive(Debug, Clone)]
pub struct PlanFormatter<'a> {
    inventory: &'a Inventory,
    catalog: ProfileCatalog,
}

impl<'a> PlanFormatter<'a> {
    /// Creates a formatter for the device at `pci`. If the inventory has no such device, or it cannot be partitioned,
    /// profiles are shown by id.
    pub fn new(inventory: &'a Inventory, pci: PciAddress) -> Self {
        let state = inventory.device(pci).and_then(|device| device.mig.state());
        Self { inventory, catalog: state.map(|state| state.catalog.clone()).unwrap_or_default() }
    }

    /// Returns the profile name, such as `3g.40gb`, or `profile 19` if the device does not offer it.
    pub fn profile(&self, id: u32) -> String {
        self.offered(id).unwrap_or_else(|| format!("profile {id}"))
    }

    /// Returns the profile name if the device offers it.
    pub fn offered(&self, id: u32) -> Option<String> {
        let profile = self.catalog.by_id(id)?;
        Some(profile.name.to_string())
    }

    /// Formats an instance: `3g.40gb`, `3g.40gb split 1c+2c`, `3g.40gb without a compute instance`.
    pub fn instance(&self, profile_id: u32, compute: &[u32]) -> String {
        let name = self.profile(profile_id);
        if compute.is_empty() {
            format!("{name} without a compute instance")
        } else if self.is_whole(profile_id, compute) {
            name
        } else {
            format!("{name} split {}", split(compute))
        }
    }

    /// Returns names and counts as in a layout: an instance split into three parts is three times `1c.3g.40gb`.
    pub fn counts(&self, instances: &[InstanceTarget]) -> Vec<(String, u32)> {
        let mut counts: Vec<(String, u32)> = Vec::new();
        for instance in instances {
            let name = self.profile(instance.profile_id);
            let names = if self.is_whole(instance.profile_id, &instance.compute) {
                vec![name]
            } else {
                let parts = instance.compute.iter();
                parts.map(|slices| format!("{slices}c.{name}")).collect()
            };
            for name in names {
                match counts.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, count)) => *count = count.saturating_add(1),
                    None => counts.push((name, 1)),
                }
            }
        }
        counts
    }

    /// Formats instances as `2x 2g.20gb, 1x 3g.40gb`, or as `no partition`.
    pub fn list(&self, instances: &[InstanceTarget]) -> String {
        let counts = self.counts(instances);
        let parts: Vec<String> =
            counts.iter().map(|(name, count)| format!("{count}x {name}")).collect();
        if parts.is_empty() { "no partition".to_owned() } else { parts.join(", ") }
    }

    /// Returns the name of a device: `GPU 3`, or its address if it has no index.
    pub fn device(&self, pci: PciAddress) -> String {
        let index = self.inventory.device(pci).and_then(|device| device.index);
        index.map_or_else(|| format!("GPU {pci}"), |index| format!("GPU {index}"))
    }

    /// Describes a step.
    pub fn step(&self, step: &Step, after: &[PlannedInstance]) -> String {
        match step {
            Step::DestroyComputeInstance { gpu_instance, compute_instance } => {
                format!("destroy compute instance {compute_instance} of gi {gpu_instance}")
            }
            Step::DestroyGpuInstance { gpu_instance, profile_id, placement } => format!(
                "destroy gi {gpu_instance}: {} in {}",
                self.profile(*profile_id),
                placement_range(*placement)
            ),
            Step::SetMigMode { to } => format!("turn MIG mode {}", on_off(*to)),
            Step::Reset { scope } => format!("reset {}", self.scope(scope)),
            Step::CreateGpuInstance { profile_id, placement, .. } => {
                format!("create {} in {}", self.profile(*profile_id), placement_range(*placement))
            }
            Step::CreateComputeInstance { gpu_instance, slices } => {
                let count = if *slices == 1 { "slice" } else { "slices" };
                let which = self.instance_ref(*gpu_instance, after);
                format!("create a compute instance of {slices} {count} in {which}")
            }
        }
    }

    /// Describes the devices affected by a reset: `GPU 0; the driver may want GPU 1, GPU 2 and GPU 3 reset with it,
    /// which NVSwitch couples to it`.
    pub fn scope(&self, scope: &ResetScope) -> String {
        let own = self.device(scope.device);
        if scope.coupled.is_empty() {
            return own;
        }
        let coupled: Vec<String> = scope.coupled.iter().map(|pci| self.device(*pci)).collect();
        let links = scope.links.map_or("links", link_name);
        format!(
            "{own}; the driver may also require a reset of {}, connected by {links}",
            listed(&coupled)
        )
    }

    /// Describes a mode change and its disruption.
    pub fn mode(&self, mode: &ModeChange) -> String {
        let to = on_off(mode.to);
        let text = if mode.pending {
            format!("MIG mode is turned {to} by the next reset, which is still pending")
        } else {
            format!("MIG mode is turned {to}")
        };
        format!("{text}: {}", disruption(mode.disruption))
    }

    fn instance_ref(&self, instance: InstanceRef, after: &[PlannedInstance]) -> String {
        match instance {
            InstanceRef::Existing(id) => format!("gi {id}"),
            InstanceRef::Planned(number) => after.get(number).map_or_else(
                || "the new instance".to_owned(),
                |planned| {
                    let name = self.profile(planned.profile_id);
                    format!("the new {name} in {}", placement_range(planned.placement))
                },
            ),
        }
    }

    /// Returns true if a single compute instance spans the GPU instance.
    pub fn is_whole(&self, profile_id: u32, compute: &[u32]) -> bool {
        let profile = self.catalog.by_id(profile_id);
        let all = profile.map(|profile| u32::from(profile.name.gpu_slices()));
        matches!(compute, [one] if all.is_none_or(|all| all == *one))
    }

    /// Returns the slices of each compute instance of `instance`; `None` where unknown.
    pub fn compute_slices(&self, instance: &GpuInstance) -> Vec<Option<u32>> {
        let profile = self.catalog.by_id(instance.profile_id);
        let each = instance.compute_instances.iter().map(|compute| {
            let reported = compute.resources.map(|resources| resources.compute_slices);
            reported
                .or_else(|| compute.placement.map(|placement| placement.size))
                .or_else(|| listed_slices(profile, compute))
        });
        each.collect()
    }

    /// Describes a cause that blocks a change.
    pub fn cause(&self, cause: &Cause) -> String {
        match cause {
            Cause::InstanceInUse {
                gpu_instance,
                profile_id,
                placement,
                compute_instances,
                holders,
            } => {
                let name = self.profile(*profile_id);
                let place = placement_range(*placement);
                let what = match compute_instances.as_slice() {
                    [] => format!("gi {gpu_instance} ({name} in {place})"),
                    some => {
                        let ids: Vec<String> = some.iter().map(ToString::to_string).collect();
                        let ids = ids.join(",");
                        format!("compute instance {ids} of gi {gpu_instance} ({name} in {place})")
                    }
                };
                if holders.is_empty() {
                    format!("{what} must be removed, but usage is unknown")
                } else {
                    format!("{what} must be removed but is in use")
                }
            }
            Cause::DeviceInUse { holders } if holders.is_empty() => {
                "MIG mode must change, but the usage of the GPU is unknown".to_owned()
            }
            Cause::DeviceInUse { .. } => "MIG mode must change, but the GPU is in use".to_owned(),
            Cause::NotAllowed { disruption: cost } => {
                format!(
                    "it requires the disruption {cost}, which is not allowed: {}",
                    disruption(*cost)
                )
            }
            Cause::StateUnknown { reason } => reason.clone(),
            Cause::HardwareRefused => {
                "the hardware rejected every arrangement that its own tables allow".to_owned()
            }
        }
    }

    /// Describes the causes that block a change, with their holders.
    pub fn causes(&self, causes: &[Cause]) -> String {
        let describe = |cause: &Cause| match cause.holders() {
            [] => self.cause(cause),
            some => format!("{}: {}", self.cause(cause), holders(some)),
        };
        join(causes.iter().map(describe), "; ")
    }
}

/// Describes how to resolve a cause.
pub fn remedy(cause: &Cause) -> String {
    match cause {
        Cause::InstanceInUse { holders, .. } | Cause::DeviceInUse { holders }
            if holders.is_empty() =>
        {
            "make its processes visible: run as root and outside the process namespace of a container"
                .to_owned()
        }
        Cause::InstanceInUse { holders, .. } | Cause::DeviceInUse { holders } => {
            let holders = without_repeated_pods(holders);
            // A claim is held by pods, also before the kubelet lists them.
            let is_pod = |of: &HolderDetails| of.pod.is_some() || of.claim.is_some();
            let are_pods = holders.iter().all(|holder| is_pod(&holder.details));
            let remedy = match (holders.as_slice(), are_pods) {
                ([_], true) => "wait for the pod to finish, or delete it",
                (_, true) => "wait for the pods to finish, or delete them",
                ([_], false) => "wait for the process to exit, or stop it",
                (_, false) => "wait for the processes to exit, or stop them",
            };
            remedy.to_owned()
        }
        Cause::NotAllowed { disruption } => format!("allow it: --allow {disruption}"),
        Cause::StateUnknown { .. } => "see `octavo inspect` for the cause".to_owned(),
        Cause::HardwareRefused => {
            "request fewer or smaller instances; the board may be defective".to_owned()
        }
    }
}

/// Describes the parts of a target that a plan does not change.
pub fn notes(target: &DeviceTarget) -> Vec<String> {
    let sharing = target.time_slicing.as_ref();
    let sharing = sharing.map(|sharing| {
        format!("time-slicing: {sharing}; not part of this plan, which covers only partitions")
    });
    let claims = (target.scope == TargetScope::Mode)
        .then(|| "claims: resource claims determine the partitions of this GPU".to_owned());
    sharing.into_iter().chain(claims).collect()
}

/// Describes a disruption.
pub fn disruption(disruption: Disruption) -> &'static str {
    match disruption {
        Disruption::None => "no process is disrupted",
        Disruption::ClientsBounce => {
            "processes that have the GPU open (monitoring, device plugin, persistence) must close and reopen it"
        }
        Disruption::GpuReset => {
            "the GPU is reset, and no process can have it open during the reset"
        }
        Disruption::Reboot => "the machine must be rebooted",
    }
}

/// Formats a summary: `2 instances destroyed, 3 created`, `1 instance created`.
pub fn summary(tally: &PlanSummary) -> String {
    let of_kind = |noun: &str, destroyed: usize, created: usize| {
        let (first, verb) =
            if destroyed > 0 { (destroyed, "destroyed") } else { (created, "created") };
        let plural = if first == 1 { "" } else { "s" };
        let and_created = match (destroyed, created) {
            (0, _) | (_, 0) => String::new(),
            (_, created) => format!(", {created} created"),
        };
        (first > 0).then(|| format!("{first} {noun}{plural} {verb}{and_created}"))
    };
    let parts = [
        of_kind("instance", tally.destroyed, tally.created),
        of_kind("compute instance", tally.compute_destroyed, tally.compute_created),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        return "no instance destroyed or created".to_owned();
    }
    parts.join(", ")
}

/// Returns `on` or `off`.
pub fn on_off(mode: MigMode) -> &'static str {
    match mode {
        MigMode::Disabled => "off",
        MigMode::Enabled => "on",
    }
}

/// Formats a placement: `slice 3`, `slices 4-7`.
pub fn placement_range(placement: Placement) -> String {
    slice_range(placement.start, placement.size)
}

/// Formats a split: `1c+2c`.
pub fn split(compute: &[u32]) -> String {
    join(compute.iter().map(|slices| format!("{slices}c")), "+")
}

/// Joins names: `GPU 1, GPU 2 and GPU 3`.
fn listed(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Returns the name of a kind of link.
pub fn link_name(kind: InterconnectKind) -> &'static str {
    match kind {
        InterconnectKind::NvSwitch => "NVSwitch",
        InterconnectKind::NvLink => "NVLink",
        InterconnectKind::Xgmi => "xGMI",
        InterconnectKind::NeuronLink => "NeuronLink",
        InterconnectKind::Pcie => "PCIe",
    }
}

/// Formats a holder without its start time: `pod team-a/train-0 (container main): pid 4711, python train.py`.
pub fn holder(who: &HolderDetails) -> String {
    let pid = who.pid.map(|pid| format!("pid {pid}"));
    let kind = who.kind.map(|kind| match kind {
        ProcessKind::Compute => "compute",
        ProcessKind::Graphics => "graphics",
    });
    let kind = kind.filter(|_| who.command.is_none()).map(str::to_owned);
    let process = join([pid, who.command.clone(), kind].into_iter().flatten(), ", ");
    let user = match (&who.pod, process.is_empty()) {
        (None, false) => process,
        (None, true) if who.claim.is_some() => String::new(),
        (None, true) => "an unknown process".to_owned(),
        // The devices of a claim are those of the pod, whichever of its containers use them.
        (Some(pod), true) if who.claim.is_some() => {
            pod_name(&Pod { container: None, ..pod.clone() })
        }
        (Some(pod), true) => pod_name(pod),
        (Some(pod), false) => format!("{}: {process}", pod_name(pod)),
    };
    match &who.claim {
        None => user,
        Some(claim) if user.is_empty() => format!("resource claim {claim}"),
        Some(claim) => format!("resource claim {claim} ({user})"),
    }
}

/// Formats holders without duplicates, in the given order, joined by `; `. A pod is named once per device, with its
/// processes.
pub fn holders(all: &[Holder]) -> String {
    let all = without_repeated_pods(all);
    let mut texts: Vec<String> = all.iter().map(|one| holder(&one.details)).collect();
    texts.dedup();
    texts.join("; ")
}

fn pod_name(pod: &Pod) -> String {
    let name = match (&pod.namespace, &pod.name, &pod.uid) {
        (Some(namespace), Some(name), _) => format!("pod {namespace}/{name}"),
        (None, Some(name), _) => format!("pod {name}"),
        (_, None, Some(uid)) => format!("pod with uid {uid}"),
        (_, None, None) => "a pod".to_owned(),
    };
    match &pod.container {
        Some(container) => format!("{name} (container {container})"),
        None => name,
    }
}

impl PlanFormatter<'_> {
    /// Describes a violated hardware rule.
    pub fn rule(&self, rule: &HardwareRule) -> String {
        match rule {
            HardwareRule::NotMigCapable => "this GPU cannot be partitioned".to_owned(),
            HardwareRule::NoSuchProfile { profile_id } => {
                format!("this GPU does not offer {}", self.profile(*profile_id))
            }
            HardwareRule::TooMany { profile_id, requested, most } => format!(
                "{requested}x {} is requested, but at most {most} fit",
                self.profile(*profile_id)
            ),
            HardwareRule::GpuSlices { requested, most } => {
                format!(
                    "the instances need {requested} GPU slices in total, but the GPU has {most}"
                )
            }
            HardwareRule::MemorySlices { requested, most } => {
                format!(
                    "the instances need {requested} memory slices in total, but the GPU has {most}"
                )
            }
            HardwareRule::Exclusive { profile_id, other } if profile_id == other => format!(
                "{} needs engines that the GPU has only once: only one such instance is possible",
                self.profile(*profile_id)
            ),
            HardwareRule::Exclusive { profile_id, other } => format!(
                "{} and {} need the same engines, which the GPU has only once",
                self.profile(*profile_id),
                self.profile(*other)
            ),
            HardwareRule::NoArrangement => {
                "there are enough slices, but the possible placements of these profiles \
             overlap"
                    .to_owned()
            }
            HardwareRule::ComputeSplit { profile_id, compute } => {
                format!("{} cannot be split {}", self.profile(*profile_id), split(compute))
            }
        }
    }

    /// Describes the violated rule and the alternatives.
    pub fn infeasible(&self, infeasible: &Infeasible) -> String {
        let rule = self.rule(&infeasible.rule);
        match self.alternatives(infeasible).as_slice() {
            [] => rule,
            some => format!("{rule}; would fit: {}", some.join(", or ")),
        }
    }

    /// Returns the alternatives, closest first: `1x 3g.40gb, 2x 2g.20gb`.
    pub fn alternatives(&self, infeasible: &Infeasible) -> Vec<String> {
        infeasible.alternatives.iter().map(|instances| self.list(instances)).collect()
    }
}

#[cfg(test)]
mod tests {
    use octavo_model::claim::ClaimRef;

    use super::*;

    #[test]
    fn holder_is_formatted_with_all_known_attributes() {
        let who = HolderDetails {
            pid: Some(4711),
            kind: Some(ProcessKind::Compute),
            ..HolderDetails::default()
        };
        assert_eq!(holder(&who), "pid 4711, compute");
        let who = HolderDetails { command: Some("python train.py".to_owned()), ..who };
        assert_eq!(holder(&who), "pid 4711, python train.py");
        let pod = Pod {
            namespace: Some("team-a".to_owned()),
            name: Some("train-0".to_owned()),
            container: Some("main".to_owned()),
            uid: Some("u".to_owned()),
        };
        let who = HolderDetails { pod: Some(pod), ..who };
        assert_eq!(holder(&who), "pod team-a/train-0 (container main): pid 4711, python train.py");
        let pod = Pod { uid: Some("1f".to_owned()), ..Pod::default() };
        let who = HolderDetails { pod: Some(pod), ..HolderDetails::default() };
        assert_eq!(holder(&who), "pod with uid 1f");
        assert_eq!(holder(&HolderDetails::default()), "an unknown process");
    }

    #[test]
    fn claim_is_named_with_its_pod() {
        let claim = ClaimRef { namespace: "team".to_owned(), name: "train".to_owned() };
        let claim = HolderDetails { claim: Some(claim), ..HolderDetails::default() };
        assert_eq!(holder(&claim), "resource claim team/train");
        let pod = |container: &str| Pod {
            namespace: Some("team".to_owned()),
            name: Some("train-0".to_owned()),
            container: Some(container.to_owned()),
            uid: None,
        };
        let [one, other] = ["main", "side"].map(|container| Holder {
            device: PciAddress::new(0, 7, 0, 0).unwrap(),
            gpu_instance: Some(1),
            compute_instance: Some(0),
            details: HolderDetails { pod: Some(pod(container)), ..claim.clone() },
        });
        let text = "resource claim team/train (pod team/train-0)";
        assert_eq!(holders(&[one.clone(), other]), text);
        let mut process = one.clone();
        process.details = HolderDetails {
            pid: Some(7),
            command: Some("python".to_owned()),
            pod: one.details.pod.clone(),
            ..HolderDetails::default()
        };
        let text = "resource claim team/train (pod team/train-0 (container main): pid 7, python)";
        assert_eq!(holders(&[one, process]), text);
    }
}
