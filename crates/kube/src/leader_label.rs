//! Label of the pod that serves. A Service of several replicas selects it.
//!
//! Only the leader writes the label. It removes the label from the pods of its predecessors first, so that at most one pod has it.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tracing::warn;

use super::client::{RequestError, request_within};
use super::lease::REQUEST_TIMEOUT;

/// Key of the label.
pub const LEADER_LABEL: &str = "octavo.dev/role";
/// Value of the label.
pub const LEADER: &str = "leader";

/// Client for the label of the leader's pod.
#[derive(Clone)]
pub struct LeaderLabel {
    pods: Api<Pod>,
    /// Name of the pod of this process.
    pod: String,
}

/// A change of the label of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Change<'a> {
    Remove(&'a str),
    Add(&'a str),
}

impl std::fmt::Debug for LeaderLabel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LeaderLabel({})", self.pod)
    }
}

impl LeaderLabel {
    /// Creates a client for this process, which runs in the pod of this name. Sends no request.
    pub fn new(client: Client, namespace: &str, pod: &str) -> Self {
        Self { pods: Api::namespaced(client, namespace), pod: pod.to_owned() }
    }

    /// Moves the label to this pod. Returns whether a pod was changed.
    pub async fn claim(&self) -> Result<bool, RequestError> {
        self.move_label(ListParams::default()).await
    }

    /// Does the same, with a list from the cache of the API server. It can be slightly outdated, but is cheap in a namespace with
    /// thousands of agents.
    pub async fn check(&self) -> Result<bool, RequestError> {
        self.move_label(ListParams::default().match_any()).await
    }

    async fn move_label(&self, list: ListParams) -> Result<bool, RequestError> {
        let list = list.labels(&format!("{LEADER_LABEL}={LEADER}"));
        let labeled = request_within(REQUEST_TIMEOUT, self.pods.list(&list)).await?;
        let labeled: Vec<String> = labeled.iter().map(ResourceExt::name_any).collect();
        let changes = changes(&labeled, &self.pod);
        for change in &changes {
            let (pod, value) = match change {
                Change::Remove(pod) => (pod, None),
                Change::Add(pod) => (pod, Some(LEADER)),
            };
            let patch = Patch::Merge(json!({"metadata": {"labels": {LEADER_LABEL: value}}}));
            let params = PatchParams::default();
            let written = request_within(REQUEST_TIMEOUT, self.pods.patch(pod, &params, &patch));
            match written.await {
                // Deleted in the meantime.
                Err(error) if value.is_none() && error.code() == Some(404) => {}
                // The Services select only pods of the aggregator.
                Err(error) if value.is_none() && error.code() == Some(403) => {
                    warn!(%pod, %error, "cannot remove the label of the leader from another pod");
                }
                written => drop(written?),
            }
        }
        Ok(!changes.is_empty())
    }
}

/// Changes after which only `own` of the `labeled` pods has the label, in their order.
fn changes<'a>(labeled: &'a [String], own: &'a str) -> Vec<Change<'a>> {
    let others = labeled.iter().filter(|pod| *pod != own).map(|pod| Change::Remove(pod));
    let missing = labeled.iter().all(|pod| pod != own).then_some(Change::Add(own));
    others.chain(missing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes_of(labeled: &[&str]) -> Vec<String> {
        let labeled: Vec<String> = labeled.iter().map(|&pod| pod.to_owned()).collect();
        changes(&labeled, "own").iter().map(|change| format!("{change:?}")).collect()
    }

    #[test]
    fn label_is_removed_from_other_pods_before_it_is_added() {
        assert_eq!(changes_of(&[]), [r#"Add("own")"#]);
        assert_eq!(changes_of(&["own"]), [""; 0]);
        assert_eq!(changes_of(&["a", "own"]), [r#"Remove("a")"#]);
        let expected = [r#"Remove("a")"#, r#"Remove("b")"#, r#"Add("own")"#];
        assert_eq!(changes_of(&["a", "b"]), expected);
    }
}
