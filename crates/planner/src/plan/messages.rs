//! Texts for plans, shared by the terminal and the web UI: steps, blockers and remedies, and reasons why a target is
//! infeasible.
//!
//! Sentences have no final full stop, so that they can be listed or continued. Profile names come from the driver and
//! commands from processes; both may contain any character.

mod holders;
mod infeasible;

use octavo_model::catalog::{Placement, ProfileCatalog};
use octavo_model::id::PciAddress;
use octavo_model::interconnect::InterconnectKind;
use octavo_model::inventory::{GpuInstance, Inventory, MigMode};
use octavo_model::slices::words::slice_range;

pub use self::holders::{holder, holders};
use super::{
    Cause, Disruption, InstanceRef, ModeChange, PlanSummary, PlannedInstance, ResetScope, Step,
};
use crate::layout::InstanceTarget;
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
            let are_pods = holders.iter().all(|holder| holder.details.pod.is_some());
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
    let parts: Vec<String> = compute.iter().map(|slices| format!("{slices}c")).collect();
    parts.join("+")
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
