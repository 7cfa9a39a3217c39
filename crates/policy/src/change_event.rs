//! Events about changes of instances.

use crate::demand::DemandMode;
use crate::instance_change::{InstanceChange, shortened};
use crate::node::Progress;
use crate::status::PolicyStatus;
use crate::world::{Policy, World};

/// Maximum number of pods of a change that have events.
const MAX_PODS: usize = 20;

/// Event about the change of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeEvent {
    /// Reason in CamelCase.
    pub reason: &'static str,
    /// Node, and created and destroyed instances of each pod.
    pub message: String,
    /// True if the change failed.
    pub is_warning: bool,
    /// Name of the node.
    pub node: String,
    /// Pods that have the event too, as `namespace/name`, with messages that contain no other pod. At most 20.
    pub pods: Vec<(String, String)>,
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
        ChangeEvent {
            reason,
            message: change.text(),
            is_warning: false,
            node: change.node.clone(),
            pods: proposed_pods(world, policy, change),
        }
    });
    let ended = before.iter().filter(|change| {
        change.is_in_progress() && !after.changes.iter().any(|one| is_same(one, change))
    });
    let ended = ended.map(|change| {
        let failure = after.failures.iter().find(|failure| failure.node == change.node);
        let (reason, message, end) = match failure {
            Some(failure) => (
                "InstancesFailed",
                format!("{}: {}: {}", change.node, failure.reason, failure.message),
                format!("the change failed: {}", failure.reason),
            ),
            None if change.withdrawn => {
                ("InstancesWithdrawn", change.text(), "the change was withdrawn".to_owned())
            }
            None if is_applied(world, policy, change) => {
                ("InstancesChanged", change.text(), "the instances exist".to_owned())
            }
            None => {
                ("InstancesAbandoned", change.text(), "the change ended without effect".to_owned())
            }
        };
        let text = format!("policy {}: node {}: {end}", policy.name, change.node);
        let pods = change.pods.iter().take(MAX_PODS).map(|pod| (pod.clone(), text.clone()));
        ChangeEvent {
            reason,
            message,
            is_warning: failure.is_some(),
            node: change.node.clone(),
            pods: pods.collect(),
        }
    });
    begun.chain(ended).collect()
}

/// Pods of a change that begins or waits for its approval, and those that it evicts. A proposal that changes while it waits has no second
/// event for a pod.
fn proposed_pods(
    world: &World<'_>,
    policy: &Policy,
    change: &InstanceChange,
) -> Vec<(String, String)> {
    let proposals = world.proposals.iter().filter_map(|all| all.get(&change.node));
    let before = policy.status.changes.iter().find(|one| one.node == change.node);
    let before = before.filter(|before| !change.is_in_progress() && !before.is_in_progress());
    let is_known = |pod: &String| before.is_some_and(|before| before.pods.contains(pod));
    let pods = proposals
        .flat_map(|one| &one.pods)
        .filter(|(pod, _)| change.pods.contains(pod) && !is_known(pod));
    let evictions = change.evictions.iter().filter(|_| change.is_in_progress()).map(|one| {
        let node = &change.node;
        let text = format!(
            "policy {}: may be evicted, because a pending pod needs its place on node {node}",
            policy.name
        );
        (one.pod.clone(), text)
    });
    let text = |instances: &str| {
        let waits = if change.is_in_progress() { "" } else { "waits for approval: " };
        shortened(&format!("policy {}: {waits}{instances}", policy.name))
    };
    let pods = pods.map(|(pod, instances)| (pod.clone(), text(instances)));
    evictions.chain(pods).take(MAX_PODS).collect()
}

/// Returns whether the node reports the layout of the change as applied.
fn is_applied(world: &World<'_>, policy: &Policy, change: &InstanceChange) -> bool {
    let node = world.nodes.get(change.node.as_str());
    node.is_some_and(|node| {
        let record = node.record.of(&policy.uid).filter(|record| change.is_recorded(record));
        record.is_some_and(|record| node.progress(record) == Progress::Applied)
    })
}
