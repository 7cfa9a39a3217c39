//! Which MIG mode a device has, which it shall have, and what lies between.

use super::Question;
use super::blocked::Cause;
use super::mode::{Disruption, ModeChange, ResetScope};
use super::pins::Users;
use super::step::Step;
use crate::domain::id::PciAddress;
use crate::domain::interconnect::{self, InterconnectKind};
use crate::domain::inventory::{Device, Inventory, MigMode, MigState};

/// The change from what `state` has to the mode `to`; `None` where there is nothing to do.
pub(super) fn change(
    inventory: &Inventory,
    device: &Device,
    state: &MigState,
    to: MigMode,
) -> Option<ModeChange> {
    if state.current == to {
        // Somebody asked for the other mode and the reset has not come. To ask for the present one again calls that off and
        // disturbs nobody; to leave it would lose the partitions at the next reset.
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
        // Where no reset is needed a mode that is pending was refused to somebody, and has to be asked for again.
        pending: by_reset && state.pending == to,
        disruption,
        reset: by_reset.then(|| scope(inventory, device.pci)),
    })
}

/// What is in the way of `change`, beside instances.
pub(super) fn in_the_way(
    question: &Question<'_>,
    users: &Users,
    state: &MigState,
    change: &ModeChange,
) -> Vec<Cause> {
    let mut causes = Vec::new();
    if change.disruption > Disruption::None
        && let Some(holders) = users.clients(&state.gpu_instances)
    {
        causes.push(Cause::DeviceInUse { holders });
    }
    if change.disruption > question.policy.most_disruption {
        causes.push(Cause::NotAllowed {
            disruption: change.disruption,
        });
    }
    causes
}

/// The steps of a change.
pub(super) fn steps(change: &ModeChange) -> impl Iterator<Item = Step> {
    let set = (!change.pending).then_some(Step::SetMigMode { to: change.to });
    let reset = change.reset.clone().map(|scope| Step::Reset { scope });
    set.into_iter().chain(reset)
}

/// Up to Ampere a change of mode needs a reset; since Hopper it needs that nobody has the device open. Source: NVIDIA MIG User
/// Guide, "Enable MIG Mode". A device that does not tell its generation is taken for the more expensive one.
pub(super) fn disruption(device: &Device) -> Disruption {
    match device.compute_capability {
        Some(capability) if capability.major >= 9 => Disruption::ClientsBounce,
        Some(_) | None => Disruption::GpuReset,
    }
}

/// What a reset of the device concerns: itself, and those that it is linked with.
fn scope(inventory: &Inventory, device: PciAddress) -> ResetScope {
    let links = interconnect::of(&inventory.devices);
    let domain = links.as_ref().and_then(|links| {
        let mut domains = links.domains.iter();
        domains.find(|domain| domain.contains(&device))
    });
    let coupled: Vec<PciAddress> = domain
        .into_iter()
        .flatten()
        .copied()
        .filter(|other| *other != device)
        .collect();
    let kind: Option<InterconnectKind> = links.as_ref().map(|links| links.kind);
    ResetScope {
        device,
        links: kind.filter(|_| !coupled.is_empty()),
        coupled,
    }
}
