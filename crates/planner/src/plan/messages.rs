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
        let device = inventory.devices.iter().find(|device| device.pci == pci);
        let state = device.and_then(|device| device.mig.state());
        Self {
            inventory,
            catalog: state.map(|state| state.catalog.clone()).unwrap_or_default(),
        }
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
        let parts: Vec<String> = counts
            .iter()
            .map(|(name, count)| format!("{count}x {name}"))
            .collect();
        if parts.is_empty() {
            "no partition".to_owned()
        } else {
            parts.join(", ")
        }
    }

    /// Returns the name of a device: `GPU 3`, or its address if it has no index.
    pub fn device(&self, pci: PciAddress) -> String {
        let found = self
            .inventory
            .devices
            .iter()
            .find(|device| device.pci == pci);
        found
            .and_then(|device| device.index)
            .map_or_else(|| format!("GPU {pci}"), |index| format!("GPU {index}"))
    }

    /// Describes a step.
    pub fn step(&self, step: &Step, after: &[PlannedInstance]) -> String {
        match step {
            Step::DestroyComputeInstance {
                gpu_instance,
                compute_instance,
            } => format!("destroy compute instance {compute_instance} of gi {gpu_instance}"),
            Step::DestroyGpuInstance {
                gpu_instance,
                profile_id,
                placement,
            } => format!(
                "destroy gi {gpu_instance}: {} in {}",
                self.profile(*profile_id),
                placement_range(*placement)
            ),
            Step::SetMigMode { to } => format!("turn MIG mode {}", on_off(*to)),
            Step::Reset { scope } => format!("reset {}", self.scope(scope)),
            Step::CreateGpuInstance {
                profile_id,
                placement,
                ..
            } => format!(
                "create {} in {}",
                self.profile(*profile_id),
                placement_range(*placement)
            ),
            Step::CreateComputeInstance {
                gpu_instance,
                slices,
            } => {
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
            "{own}; the driver may want {} reset with it, which {links} couples to it",
            listed(&coupled)
        )
    }

    /// Describes a mode change and its disruption.
    pub fn mode(&self, mode: &ModeChange) -> String {
        let to = on_off(mode.to);
        let told = if mode.pending {
            format!("MIG mode is turned {to} by the next reset, which is still to be done")
        } else {
            format!("MIG mode is turned {to}")
        };
        format!("{told}: {}", disruption(mode.disruption))
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
            let told = compute
                .resources
                .map(|resources| resources.compute_slices)
                .or_else(|| compute.placement.map(|placement| placement.size));
            told.or_else(|| {
                let mut offered = profile?.compute_profiles.iter();
                let found = offered.find(|offered| offered.id == compute.profile_id)?;
                Some(found.slices)
            })
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
                    format!("{what} would have to go, and nobody tells whether it is in use")
                } else {
                    format!("{what} would have to go and is in use")
                }
            }
            Cause::DeviceInUse { holders } if holders.is_empty() => {
                "MIG mode would have to change, and nobody tells whether the GPU is in use"
                    .to_owned()
            }
            Cause::DeviceInUse { .. } => {
                "MIG mode would have to change and the GPU is in use".to_owned()
            }
            Cause::NotAllowed { disruption: cost } => {
                format!(
                    "it costs {cost}, which is not allowed: {}",
                    disruption(*cost)
                )
            }
            Cause::StateUnknown { reason } => reason.clone(),
            Cause::HardwareRefused => {
                "the hardware refused every arrangement that its own tables allow".to_owned()
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
            "let the driver tell its processes: run as root and outside of a container's \
             process namespace"
                .to_owned()
        }
        Cause::InstanceInUse { holders, .. } | Cause::DeviceInUse { holders } => {
            match holders.as_slice() {
                [_] => "wait until it ends, or end it".to_owned(),
                _ => "wait until they end, or end them".to_owned(),
            }
        }
        Cause::NotAllowed { disruption } => format!("allow it: --allow {disruption}"),
        Cause::StateUnknown { .. } => "see `octavo inspect` for what fails".to_owned(),
        Cause::HardwareRefused => {
            "ask for fewer or smaller instances; the board may have a defect".to_owned()
        }
    }
}

/// Describes a disruption.
pub fn disruption(disruption: Disruption) -> &'static str {
    match disruption {
        Disruption::None => "nobody is disturbed",
        Disruption::ClientsBounce => {
            "whoever has the GPU open (monitoring, device plugin, persistence) must let go and come \
             back"
        }
        Disruption::GpuReset => "the GPU is reset, and nobody may have it open meanwhile",
        Disruption::Reboot => "the machine must be rebooted",
    }
}

/// Formats a summary: `2 instances destroyed, 3 created`, `1 instance created`.
pub fn summary(tally: &PlanSummary) -> String {
    let mut said = Vec::new();
    let noun = |count: usize, what: &str| {
        let plural = if count == 1 { "" } else { "s" };
        format!("{count} {what}{plural}")
    };
    match (tally.destroyed, tally.created) {
        (0, 0) => {}
        (0, created) => said.push(format!("{} created", noun(created, "instance"))),
        (destroyed, 0) => said.push(format!("{} destroyed", noun(destroyed, "instance"))),
        (destroyed, created) => said.push(format!(
            "{} destroyed, {created} created",
            noun(destroyed, "instance")
        )),
    }
    match (tally.compute_destroyed, tally.compute_created) {
        (0, 0) => {}
        (0, created) => said.push(format!("{} created", noun(created, "compute instance"))),
        (destroyed, 0) => {
            said.push(format!("{} destroyed", noun(destroyed, "compute instance")));
        }
        (destroyed, created) => said.push(format!(
            "{} destroyed, {created} created",
            noun(destroyed, "compute instance")
        )),
    }
    if said.is_empty() {
        return "no instance destroyed or created".to_owned();
    }
    said.join(", ")
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
