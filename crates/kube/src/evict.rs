//! Lists and evicts the node's pods on request, through the Eviction API, which respects disruption budgets and each
//! pod's termination grace period.
//!
//! Callers have an [`EvictionHandle`] and never wait: they set the desired evictions and read the results. Only one request runs
//! at a time, so that many pods do not delay the agent's other requests. Source: Kubernetes, "API-initiated Eviction".

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod as ApiPod, Toleration};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use octavo_model::id::NodeName;
use octavo_node::node_object::drain::{
    EvictionResult, ListError, Pod, PodId, PodObservations, PodRequests,
};
use octavo_node::node_object::write_backoff::WriteBackoff;
use octavo_node::node_object::{REPARTITIONING_TAINT, TAINT_EFFECT};
use octavo_toolkit::desired::{self, TaskHandle, TaskState, update};
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::client::{self, RequestError};

/// Retry interval of a pod that its disruption budget protects; `RETRY_INTERVAL_PER_POD` per pod if there are many, to limit the load on
/// the API server.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
const RETRY_INTERVAL_PER_POD: Duration = Duration::from_millis(500);
/// Maximum retry delay after any number of failures, because a drain has a deadline.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// Handle to an [`Evictor`]: the desired lists and evictions, and the API server's responses.
pub type EvictionHandle = TaskHandle<PodRequests, PodObservations>;

/// Lists and evicts pods; run it as a task.
#[derive(Debug)]
pub struct Evictor {
    pods: Api<ApiPod>,
    node: String,
    state: TaskState<PodRequests, PodObservations>,
    began: Instant,
    listed: Option<Duration>,
    list_backoff: WriteBackoff<()>,
    /// Earliest time of the next list after a failure.
    not_listed_before: Duration,
    evictions: BTreeMap<PodId, EvictionState>,
}

/// State of a pod to evict.
#[derive(Debug, Default)]
struct EvictionState {
    backoff: WriteBackoff<()>,
    /// When to retry; `None` after a final response.
    due: Option<Duration>,
}

impl Evictor {
    /// Creates an evictor for the pods of `node`. Sends no request before it runs and has orders.
    pub fn new(client: Client, node: &NodeName) -> (EvictionHandle, Self) {
        let (handle, state) = desired::channel();
        let evictor = Self {
            pods: Api::all(client),
            node: node.as_str().to_owned(),
            state,
            began: Instant::now(),
            listed: None,
            list_backoff: WriteBackoff::default(),
            not_listed_before: Duration::ZERO,
            evictions: BTreeMap::new(),
        };
        (handle, evictor)
    }

    /// Runs until the handle is dropped.
    pub async fn run(mut self) {
        loop {
            let orders = self.state.latest();
            self.drop_unwanted(&orders);
            let wait = self.step(&orders).await;
            if !self.state.wait(wait).await {
                return;
            }
        }
    }

    /// Forgets results that are no longer wanted.
    fn drop_unwanted(&mut self, orders: &PodRequests) {
        let is_on = orders.list.is_some();
        // A pod that was evicted must not be evicted again if the same order is repeated shortly after.
        let is_wanted = |id: &PodId, is_done: bool| orders.evict.contains(id) || (is_on && is_done);
        self.evictions.retain(|id, eviction| is_wanted(id, eviction.due.is_none()));
        if !is_on {
            self.listed = None;
        }
        update(&self.state.observed, |observations| {
            observations.answers.retain(|id, answer| {
                is_wanted(id, matches!(answer, EvictionResult::Ending | EvictionResult::Gone))
            });
            if !is_on {
                observations.pods = None;
                observations.error = None;
            }
        });
    }

    /// Sends one request that is due. Returns the delay until the next.
    async fn step(&mut self, orders: &PodRequests) -> Option<Duration> {
        let now = self.began.elapsed();
        let mut next: Option<Duration> = None;
        if let Some(every) = orders.list {
            let due = self.listed.map_or(now, |at| at.saturating_add(every));
            let wait = due.max(self.not_listed_before).saturating_sub(now);
            if wait.is_zero() {
                self.list().await;
                return Some(Duration::ZERO);
            }
            next = Some(wait);
        }
        for id in &orders.evict {
            let eviction = self.evictions.get(id);
            let due = eviction.map_or(Some(now), |eviction| eviction.due);
            let Some(due) = due else { continue };
            if due <= now {
                self.evict(id, orders.evict.len()).await;
                return Some(Duration::ZERO);
            }
            let wait = due.saturating_sub(now);
            next = Some(next.map_or(wait, |known| known.min(wait)));
        }
        next
    }

    async fn list(&mut self) {
        // The API server's cache suffices, because an eviction names the pod's UID.
        let params =
            ListParams::default().fields(&format!("spec.nodeName={}", self.node)).match_any();
        let response = client::request(self.pods.list(&params)).await;
        let now = self.began.elapsed();
        let failure = match response {
            Ok(list) => {
                let mut all: Vec<Pod> = list.items.into_iter().map(pod).collect();
                all.sort();
                self.listed = Some(now);
                self.list_backoff = WriteBackoff::default();
                update(&self.state.observed, |observations| {
                    observations.pods = Some(all);
                    observations.error = None;
                });
                return;
            }
            Err(error) => error,
        };
        self.not_listed_before = next_attempt(&mut self.list_backoff, now, failure.retry_after());
        let error = match failure.code() {
            Some(403) => ListError::Forbidden,
            Some(_) | None => ListError::Other(failure.describe()),
        };
        if self.state.observed.borrow().error.as_ref() != Some(&error) {
            match &error {
                ListError::Forbidden => {
                    warn!("cannot list the pods of the node: permission denied");
                }
                ListError::Other(error) => warn!(%error, "cannot list the pods of the node"),
            }
        }
        update(&self.state.observed, |observations| observations.error = Some(error));
    }

    async fn evict(&mut self, id: &PodId, count: usize) {
        let pods: Api<ApiPod> = Api::namespaced(self.pods.clone().into_client(), &id.namespace);
        let body = body(id);
        let params = PostParams::default();
        let request = pods.create_subresource::<Value, Value>("eviction", &id.name, &params, &body);
        let (result, retry_delay) = match client::request(request).await {
            Ok(_) => (EvictionResult::Ending, None),
            Err(error) => (classify_error(&error), error.retry_after()),
        };
        let now = self.began.elapsed();
        let eviction = self.evictions.entry(id.clone()).or_default();
        eviction.due = match &result {
            EvictionResult::Ending | EvictionResult::Gone => None,
            EvictionResult::Budget | EvictionResult::Forbidden => {
                let many =
                    RETRY_INTERVAL_PER_POD.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
                let wait = RETRY_INTERVAL.max(many).max(retry_delay.unwrap_or_default());
                Some(now.saturating_add(wait))
            }
            EvictionResult::Refused(_) => {
                Some(next_attempt(&mut eviction.backoff, now, retry_delay))
            }
        };
        if result == EvictionResult::Ending {
            info!(pod = %id.name(), "pod evicted");
        } else {
            debug!(pod = %id.name(), ?result, "pod not evicted");
        }
        update(&self.state.observed, |observations| {
            observations.answers.insert(id.clone(), result);
        });
    }
}

/// Returns the next attempt's time after a failure. The delay is capped at `MAX_RETRY_DELAY` unless the server requests a
/// longer one.
fn next_attempt(
    backoff: &mut WriteBackoff<()>,
    now: Duration,
    retry_delay: Option<Duration>,
) -> Duration {
    backoff.record_failure(now, None);
    let wait = backoff.wait(now, &()).unwrap_or_default().min(MAX_RETRY_DELAY);
    now.saturating_add(wait.max(retry_delay.unwrap_or_default()))
}

/// Returns the eviction of this pod. The UID protects a later pod of the same name. The grace period is the pod's own.
/// `Api::evict` does not do that: kube 5.0 sends the options as `delete_options`, which the API server ignores.
fn body(id: &PodId) -> Value {
    json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": id.name, "namespace": id.namespace},
        "deleteOptions": {"preconditions": {"uid": id.uid}},
    })
}

/// Converts an error response. Source: Kubernetes, `pkg/registry/core/pod/storage/eviction.go`: the cause
/// `DisruptionBudget` distinguishes a budget from other reasons for 429.
fn classify_error(error: &RequestError) -> EvictionResult {
    let refused = || EvictionResult::Refused(error.describe());
    let RequestError::Refused(cause) = error else {
        return refused();
    };
    let kube::Error::Api(status) = &**cause else {
        return refused();
    };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let budget = causes.into_iter().any(|cause| cause.reason == "DisruptionBudget");
    match status.code {
        404 => EvictionResult::Gone,
        409 if status.message.contains("UID") => EvictionResult::Gone,
        429 if budget => EvictionResult::Budget,
        // A denying webhook returns the same code, but may decide otherwise later.
        403 if status.message.contains("cannot create resource") => EvictionResult::Forbidden,
        _ => refused(),
    }
}

/// Extracts the relevant fields of a pod.
fn pod(pod: ApiPod) -> Pod {
    let meta = pod.metadata;
    let spec = pod.spec.unwrap_or_default();
    let annotations = meta.annotations.unwrap_or_default();
    let owners = meta.owner_references.unwrap_or_default();
    let controller = owners.into_iter().find(|owner| owner.controller == Some(true));
    let phase = pod.status.and_then(|status| status.phase);
    Pod {
        id: PodId {
            namespace: meta.namespace.unwrap_or_default(),
            name: meta.name.unwrap_or_default(),
            uid: meta.uid.unwrap_or_default(),
        },
        controller: controller.map(|owner| owner.kind),
        mirrors: annotations.get("kubernetes.io/config.mirror").cloned(),
        priority: spec.priority.unwrap_or_default(),
        priority_class: spec.priority_class_name,
        tolerates: spec.tolerations.iter().flatten().any(tolerates),
        is_finished: matches!(phase.as_deref(), Some("Succeeded" | "Failed")),
        is_ending: meta.deletion_timestamp.is_some(),
    }
}

/// Returns whether a pod with this toleration tolerates our taint, which has no value. Source: Kubernetes,
/// `Toleration.ToleratesTaint`.
fn tolerates(toleration: &Toleration) -> bool {
    let all = |text: &Option<String>, one: &str| {
        let text = text.as_deref().unwrap_or_default();
        text.is_empty() || text == one
    };
    let equal = match toleration.operator.as_deref() {
        Some("Exists") => true,
        None | Some("" | "Equal") => toleration.value.as_deref().unwrap_or_default().is_empty(),
        Some(_) => false,
    };
    equal && all(&toleration.key, REPARTITIONING_TAINT) && all(&toleration.effect, TAINT_EFFECT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eviction_has_uid_precondition_and_default_grace_period() {
        let id = PodId {
            namespace: "team-a".to_owned(),
            name: "notebook-7".to_owned(),
            uid: "u".to_owned(),
        };
        let expected = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": "notebook-7", "namespace": "team-a"},
            "deleteOptions": {"preconditions": {"uid": "u"}},
        });
        assert_eq!(body(&id), expected);
    }

    #[test]
    fn retry_delay_is_capped_unless_server_requests_more() {
        let mut backoff = WriteBackoff::default();
        let mut last = Duration::ZERO;
        for _ in 0..20 {
            let wait = next_attempt(&mut backoff, last, None).saturating_sub(last);
            assert!(!wait.is_zero() && wait <= MAX_RETRY_DELAY, "{wait:?}");
            last = next_attempt(&mut backoff, last, None);
        }
        let status = json!({"code": 429, "message": "", "details": {"retryAfterSeconds": 70}});
        let status: kube::core::Status = serde_json::from_value(status).unwrap();
        let error = RequestError::Refused(Box::new(kube::Error::Api(Box::new(status))));
        let due = next_attempt(&mut backoff, last, error.retry_after());
        assert_eq!(due.saturating_sub(last), Duration::from_secs(70));
    }

    #[test]
    fn responses_are_classified() {
        let of = |code: u16, message: &str, cause: Option<&str>| {
            let causes: Vec<Value> =
                cause.map(|cause| json!({"reason": cause})).into_iter().collect();
            let status = json!({"code": code, "message": message, "details": {"causes": causes}});
            let status: kube::core::Status = serde_json::from_value(status).unwrap();
            let error = kube::Error::Api(Box::new(status));
            classify_error(&RequestError::Refused(Box::new(error)))
        };
        assert_eq!(of(404, "pods \"a\" not found", None), EvictionResult::Gone);
        let other = "Precondition failed: UID in precondition: a, UID in object meta: b";
        assert_eq!(of(409, other, None), EvictionResult::Gone);
        assert_eq!(of(429, "Cannot evict pod", Some("DisruptionBudget")), EvictionResult::Budget);
        let role = "pods \"a\" is forbidden: User \"x\" cannot create resource \"pods/eviction\"";
        assert_eq!(of(403, role, None), EvictionResult::Forbidden);
        for (code, message) in
            [(429, "slow down"), (403, "a webhook denied it"), (409, "again"), (500, "two budgets")]
        {
            let EvictionResult::Refused(why) = of(code, message, None) else { panic!("{code}") };
            assert!(why.contains(message), "{why}");
        }
    }

    #[test]
    fn relevant_pod_fields_are_read() {
        let read = pod(serde_json::from_value(json!({
            "metadata": {"namespace": "a", "name": "b", "uid": "c", "deletionTimestamp": "2026-01-01T00:00:00Z",
                "annotations": {"kubernetes.io/config.mirror": "d"},
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "1"},
                    {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "2", "controller": true}]},
            "spec": {"priority": 2_000_001_000, "priorityClassName": "system-node-critical", "containers": []},
            "status": {"phase": "Failed"},
        })).unwrap());
        let expected = Pod {
            id: PodId { namespace: "a".to_owned(), name: "b".to_owned(), uid: "c".to_owned() },
            controller: Some("Node".to_owned()),
            mirrors: Some("d".to_owned()),
            priority: 2_000_001_000,
            priority_class: Some("system-node-critical".to_owned()),
            tolerates: false,
            is_finished: true,
            is_ending: true,
        };
        assert_eq!(read, expected);
        for (toleration, expected) in [
            (json!({"operator": "Exists"}), true),
            (json!({"key": REPARTITIONING_TAINT, "operator": "Exists"}), true),
            (
                json!({"key": REPARTITIONING_TAINT, "operator": "Exists", "effect": "NoSchedule"}),
                true,
            ),
            (json!({"key": REPARTITIONING_TAINT}), true),
            (json!({"key": REPARTITIONING_TAINT, "operator": "Equal", "value": "now"}), false),
            (
                json!({"key": REPARTITIONING_TAINT, "operator": "Exists", "effect": "NoExecute"}),
                false,
            ),
            (json!({"key": "nvidia.com/gpu", "operator": "Exists"}), false),
        ] {
            let body =
                json!({"metadata": {}, "spec": {"containers": [], "tolerations": [toleration]}});
            let read = pod(serde_json::from_value(body).unwrap());
            assert_eq!(read.tolerates, expected, "{toleration}");
        }
        let bare = json!({"metadata": {}});
        assert_eq!(pod(serde_json::from_value(bare).unwrap()), Pod::default());
    }
}
