//! Events about changes of instances.

use crate::demand::DemandMode;
use crate::instance_change::InstanceChange;
use crate::node::Progress;
use crate::status::PolicyStatus;
use crate::world::{Policy, World};

/// Event about the change of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeEvent {
    /// Reason in CamelCase.
    pub reason: &'static str,
    /// Node, and created and destroyed instances of each pod.
    pub message: String,
    /// True if the change failed.
    pub is_warning: bool,
}

/// Events about the changes that differ between two states of a policy.
pub(crate) fn change_events(
    world: &World<'_>,
    policy: &Policy,
    after: &PolicyStatus,
) -> Vec<ChangeEvent> {
    let before = &policy.status.changes;
    let is_same = |one: &InstanceChange, other: &InstanceChange| {
        one.id == other.id && one.is_in_progress() == other.is_in_progress()
    };
    let waits = policy.active_demand().is_some_and(|demand| demand.mode == DemandMode::Propose);
    let new = after.changes.iter().filter(|change| !before.iter().any(|one| is_same(one, change)));
    let begun = new.filter(|change| change.is_in_progress() || waits).map(|change| {
        let reason =
            if change.is_in_progress() { "InstancesChanging" } else { "InstancesProposed" };
        ChangeEvent { reason, message: change.text(), is_warning: false }
    });
    let ended = before.iter().filter(|change| {
        change.is_in_progress() && !after.changes.iter().any(|one| is_same(one, change))
    });
    let ended = ended.map(|change| {
        let failure = after.failures.iter().find(|failure| failure.node == change.node);
        let (reason, message) = match failure {
            Some(failure) => (
                "InstancesFailed",
                format!("{}: {}: {}", change.node, failure.reason, failure.message),
            ),
            None if change.withdrawn => ("InstancesWithdrawn", change.text()),
            None if is_applied(world, policy, change) => ("InstancesChanged", change.text()),
            None => ("InstancesAbandoned", change.text()),
        };
        ChangeEvent { reason, message, is_warning: failure.is_some() }
    });
    begun.chain(ended).collect()
}

/// Returns whether the node reports the layout of the change as applied.
fn is_applied(world: &World<'_>, policy: &Policy, change: &InstanceChange) -> bool {
    let node = world.nodes.get(change.node.as_str());
    node.is_some_and(|node| {
        let record = node.record.of(&policy.uid).filter(|record| change.is_recorded(record));
        record.is_some_and(|record| node.progress(record) == Progress::Applied)
    })
}
