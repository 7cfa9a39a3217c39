//! Derives the change from the current to the desired MIG mode.

use octavo_model::id::PciAddress;
use octavo_model::interconnect::{self, InterconnectKind};
use octavo_model::inventory::{Device, Inventory, MigMode, MigState};

use super::usage::DeviceUsers;
use super::{Cause, Disruption, ModeChange, PlanInput, ResetScope, Step};

/// Returns the change from the mode of `state` to the mode `to`; `None` if nothing has to be done.
pub(super) fn change(
    inventory: &Inventory,
    device: &Device,
    state: &MigState,
    to: MigMode,
) -> Option<ModeChange> {
    if state.current == to {
        // The other mode was set without a reset so far. Setting the current mode again cancels that without
        // disruption; otherwise the next reset would destroy the partitions.
        return (state.pending != to).then_some(ModeChange {
            to,
            pending: false,
            disruption: Disruption::None,
            reset: None,
        });
    }
    let disruption = disruption(device);
    let by_reset = disruption >= Disruption::GpuReset;
    Some(ModeChange {
        to,
        // If no reset is needed, a pending mode means that an earlier request was refused, so it must be set again.
        pending: by_reset && state.pending == to,
        disruption,
        reset: by_reset.then(|| scope(inventory, device.pci)),
    })
}

/// Returns the causes that block `change`, except instances.
pub(super) fn blocking_causes(
    input: &PlanInput<'_>,
    users: &DeviceUsers,
    state: &MigState,
    change: &ModeChange,
) -> Vec<Cause> {
    let mut causes = Vec::new();
    if change.disruption > Disruption::None
        && let Some(holders) = users.clients(&state.gpu_instances)
    {
        causes.push(Cause::DeviceInUse { holders });
    }
    if change.disruption > input.policy.max_disruption {
        causes.push(Cause::NotAllowed { disruption: change.disruption });
    }
    causes
}

pub(super) fn steps(change: &ModeChange) -> impl Iterator<Item = Step> {
    let set = (!change.pending).then_some(Step::SetMigMode { to: change.to });
    let reset = change.reset.clone().map(|scope| Step::Reset { scope });
    set.into_iter().chain(reset)
}

/// Returns the disruption of a mode change. GPUs up to Ampere need a reset; since Hopper, no process may have the
/// device open. Source: NVIDIA MIG User Guide, "Enable MIG Mode". An unknown generation counts as the more disruptive
/// one.
pub(super) fn disruption(device: &Device) -> Disruption {
    match device.compute_capability {
        Some(capability) if capability.major >= 9 => Disruption::ClientsBounce,
        Some(_) | None => Disruption::GpuReset,
    }
}

/// Returns the devices affected by a reset: the device and those linked to it.
fn scope(inventory: &Inventory, device: PciAddress) -> ResetScope {
    let links = interconnect::of(&inventory.devices);
    let domain = links.as_ref().and_then(|links| {
        let mut domains = links.domains.iter();
        domains.find(|domain| domain.contains(&device))
    });
    let coupled: Vec<PciAddress> =
        domain.into_iter().flatten().copied().filter(|other| *other != device).collect();
    let kind: Option<InterconnectKind> = links.as_ref().map(|links| links.kind);
    ResetScope { device, links: kind.filter(|_| !coupled.is_empty()), coupled }
}
