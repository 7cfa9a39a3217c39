//! Events about policies and the pods of their changes.

use std::time::Duration;

use octavo_access::audit::AuditLog;
use octavo_fleet::cluster::{ClusterSnapshot, PodKey};
use octavo_kube::policies::{EventObject, PolicyClient};
use octavo_ledger::audit::PolicyEvent;
use octavo_policy::{ChangeEvent, Policy, PolicyState, PolicyStatus};
use tokio::time::timeout;
use tracing::{debug, info};

/// Maximum time for the events of a decision. The status has the same information, so omitted events are not repeated.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// Maximum number of events about pods for one status.
const MAX_POD_EVENTS: usize = 100;

/// A written status that has no events yet.
#[derive(Debug)]
pub(super) struct Announcement {
    policy: Policy,
    changes: Vec<ChangeEvent>,
    /// The new state with its explanation, if it differs.
    state: Option<(PolicyState, String)>,
}

impl Announcement {
    /// Logs and audits what a written status changes.
    pub(super) fn new(
        before: &Policy,
        status: &PolicyStatus,
        changes: &[ChangeEvent],
        audit: &AuditLog,
    ) -> Self {
        for ChangeEvent { reason, message, .. } in changes {
            info!(policy = %before.name, reason, %message, "instances for pending pods");
        }
        let (old, new) = (before.status.state, status.state);
        let is_new = old != new && new != PolicyState::Unknown;
        let state = is_new.then(|| (new, explanation(status)));
        if let Some((state, message)) = &state {
            info!(policy = %before.name, %state, %message, "accelerator policy");
            audit.record_policy(PolicyEvent {
                policy: before.name.clone(),
                revision: status.revision.clone(),
                before: old.to_string(),
                after: state.to_string(),
                message: message.clone(),
            });
        }
        Self { policy: before.clone(), changes: changes.to_vec(), state }
    }

    /// Creates the events, those of the policy first. Returns whether the API server answered.
    async fn create(&self, client: &PolicyClient, cluster: &ClusterSnapshot) -> bool {
        let about = EventObject::Policy(&self.policy);
        if let Some((state, message)) = &self.state {
            let reason = ((*state).into(), is_warning(*state));
            if !create_event(client, about, reason, message).await {
                return false;
            }
        }
        for change in &self.changes {
            let reason = (change.reason, change.is_warning);
            if !create_event(client, about, reason, &change.message).await {
                return false;
            }
        }
        let mut count = 0;
        for change in &self.changes {
            let reason = (change.reason, change.is_warning);
            for (pod, message) in &change.pods {
                let Some((key, uid)) = changed_pod(cluster, pod, &change.node) else { continue };
                if count == MAX_POD_EVENTS {
                    return true;
                }
                count += 1;
                if !create_event(client, EventObject::Pod(key, uid), reason, message).await {
                    return false;
                }
            }
        }
        true
    }
}

/// Creates all events, unless the API server does not answer or takes too long.
pub(super) async fn create(
    client: &PolicyClient,
    cluster: &ClusterSnapshot,
    announcements: Vec<Announcement>,
) {
    let all = async {
        for one in &announcements {
            if !one.create(client, cluster).await {
                return;
            }
        }
    };
    if timeout(TIME_LIMIT, all).await.is_err() {
        debug!("events omitted: the API server takes too long");
    }
}

fn is_warning(state: PolicyState) -> bool {
    matches!(
        state,
        PolicyState::Refused
            | PolicyState::Stopped
            | PolicyState::Conflict
            | PolicyState::RollingBack
    )
}

/// Progress of the roll-out, and what it waits for.
fn explanation(status: &PolicyStatus) -> String {
    let why = match (&status.stop, status.condition("Accepted")) {
        (Some(stop), _) => stop.message.clone(),
        (None, Some(accepted)) if accepted.status == "False" => accepted.message.clone(),
        (None, _) => {
            status.waits_for.as_ref().map(|what| format!("waits for {what}")).unwrap_or_default()
        }
    };
    let nodes = status.nodes;
    let message = format!(
        "revision {}: {} of {} nodes applied; {why}",
        status.revision, nodes.applied, nodes.selected
    );
    message.trim_end_matches("; ").to_owned()
}

/// Creates an event. Returns whether the API server answered.
async fn create_event(
    client: &PolicyClient,
    about: EventObject<'_>,
    (reason, is_warning): (&str, bool),
    message: &str,
) -> bool {
    match client.create_event(about, reason, message, is_warning).await {
        Ok(()) => true,
        Err(error) => {
            debug!(%error, "event not created");
            error.is_refusal() || error.is_outdated()
        }
    }
}

/// Key and UID of a pod that requests devices and waits for a node or is on this node. `pod` is `namespace/name`. Other names in a stored
/// status have no event.
fn changed_pod<'a>(
    snapshot: &'a ClusterSnapshot,
    pod: &str,
    node: &str,
) -> Option<(&'a PodKey, &'a str)> {
    let pod = snapshot.pod(pod)?;
    let is_here = pod.is_pending() || pod.node.as_deref() == Some(node);
    Some((&pod.key, pod.uid.as_deref()?)).filter(|_| is_here)
}

#[cfg(test)]
mod tests {
    use octavo_fleet::cluster::{ClusterPod, Phase};

    use super::*;

    #[test]
    fn m21_only_a_waiting_pod_or_one_of_the_node_has_events() {
        let pod = |name: &str, phase: Phase, node: Option<&str>| ClusterPod {
            key: PodKey { namespace: "team".to_owned(), name: name.to_owned() },
            uid: Some(format!("uid-{name}")),
            phase,
            node: node.map(str::to_owned),
            ..ClusterPod::default()
        };
        let plain = ClusterPod { uid: None, ..pod("plain", Phase::Pending, None) };
        let pods = [
            pod("waits", Phase::Pending, None),
            pod("here", Phase::Bound, Some("gpu-1")),
            pod("elsewhere", Phase::Bound, Some("gpu-2")),
            pod("ended", Phase::Finished, None),
            plain,
        ];
        let snapshot = ClusterSnapshot::new([], pods);
        let uid = |pod: &str| changed_pod(&snapshot, pod, "gpu-1").map(|(_, uid)| uid.to_owned());
        assert_eq!(uid("team/waits").as_deref(), Some("uid-waits"));
        assert_eq!(uid("team/here").as_deref(), Some("uid-here"));
        for other in ["team/elsewhere", "team/ended", "team/plain", "kube-system/waits", "waits"] {
            assert_eq!(uid(other), None, "{other}");
        }
    }
}
