//! Lists and evicts the node's pods on request, through the Eviction API, which respects disruption budgets and each
//! pod's termination grace period.
//!
//! Callers have a [`EvictionHandle`] and never wait: they set the desired evictions and read the results. Only one request runs
//! at a time, so that many pods do not delay the agent's other requests. Source: Kubernetes, "API-initiated Eviction".

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod as ApiPod, Toleration};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use octavo_model::id::NodeName;
use octavo_node::node::drain::{Answer, ListError, Pod, PodId, PodObservations, PodRequests};
use octavo_node::node::write_backoff::WriteBackoff;
use octavo_node::node::{REPARTITIONING_TAINT, TAINT_EFFECT};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};

use crate::client::{REQUEST_TIMEOUT, requested_delay, told};

/// Retry interval of a pod that its disruption budget protects; `RETRY_INTERVAL_PER_POD` per pod if there are many, to limit the load on
/// the API server.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
const RETRY_INTERVAL_PER_POD: Duration = Duration::from_millis(500);
/// Maximum retry delay after any number of failures, because a drain has a deadline.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// Handle to an [`Evictor`], which ends when the handle is dropped.
#[derive(Debug)]
pub struct EvictionHandle {
    orders: watch::Sender<PodRequests>,
    /// The API server's responses.
    pub results: watch::Receiver<PodObservations>,
}

/// Lists and evicts pods; run it as a task.
#[derive(Debug)]
pub struct Evictor {
    pods: Api<ApiPod>,
    node: String,
    orders: watch::Receiver<PodRequests>,
    heard: watch::Sender<PodObservations>,
    began: Instant,
    listed: Option<Duration>,
    lists: WriteBackoff<()>,
    /// Earliest time of the next list after a failure.
    not_listed_before: Duration,
    asked: BTreeMap<PodId, EvictionState>,
}

/// State of a pod to evict.
#[derive(Debug, Default)]
struct EvictionState {
    pace: WriteBackoff<()>,
    /// When to retry; `None` after a final response.
    due: Option<Duration>,
}

impl EvictionHandle {
    /// Creates a handle and the evictor's ends of its channels.
    pub fn new() -> (
        Self,
        watch::Receiver<PodRequests>,
        watch::Sender<PodObservations>,
    ) {
        let (order, orders) = watch::channel(PodRequests::default());
        let (hear, heard) = watch::channel(PodObservations::default());
        let door = Self {
            orders: order,
            results: heard,
        };
        (door, orders, hear)
    }

    /// Sets the desired lists and evictions.
    pub fn set_orders(&self, orders: PodRequests) {
        self.orders.send_if_modified(|known| {
            let differs = *known != orders;
            *known = orders;
            differs
        });
    }
}

impl Evictor {
    /// Creates an evictor for the pods of `node`. Sends no request before it runs and has orders.
    pub fn new(client: Client, node: &NodeName) -> (EvictionHandle, Self) {
        let (door, orders, heard) = EvictionHandle::new();
        let usher = Self {
            pods: Api::all(client),
            node: node.as_str().to_owned(),
            orders,
            heard,
            began: Instant::now(),
            listed: None,
            lists: WriteBackoff::default(),
            not_listed_before: Duration::ZERO,
            asked: BTreeMap::new(),
        };
        (door, usher)
    }

    /// Runs until the handle is dropped.
    pub async fn run(mut self) {
        loop {
            let orders = self.orders.borrow_and_update().clone();
            self.drop_unwanted(&orders);
            let wait = self.step(&orders).await;
            tokio::select! {
                changed = self.orders.changed() => if changed.is_err() {
                    return;
                },
                () = sleep(wait.unwrap_or_default()), if wait.is_some() => {}
            }
        }
    }

    /// Forgets results that are no longer wanted.
    fn drop_unwanted(&mut self, orders: &PodRequests) {
        let is_on = orders.list.is_some();
        // A pod that was evicted must not be evicted again if the same order is repeated shortly after.
        let is_wanted = |id: &PodId, is_done: bool| orders.evict.contains(id) || (is_on && is_done);
        self.asked
            .retain(|id, asked| is_wanted(id, asked.due.is_none()));
        if !is_on {
            self.listed = None;
        }
        self.heard.send_if_modified(|heard| {
            let before = heard.clone();
            heard.answers.retain(|id, answer| {
                is_wanted(id, matches!(answer, Answer::Ending | Answer::Gone))
            });
            if !is_on {
                heard.pods = None;
                heard.trouble = None;
            }
            *heard != before
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
            let asked = self.asked.get(id);
            let due = asked.map_or(Some(now), |asked| asked.due);
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
        let params = ListParams::default()
            .fields(&format!("spec.nodeName={}", self.node))
            .match_any();
        let answer = timeout(REQUEST_TIMEOUT, self.pods.list(&params)).await;
        let now = self.began.elapsed();
        let asked = retry_after(&answer);
        let trouble = match answer {
            Ok(Ok(list)) => {
                let mut all: Vec<Pod> = list.items.into_iter().map(pod).collect();
                all.sort();
                self.listed = Some(now);
                self.lists = WriteBackoff::default();
                self.update_results(|heard| {
                    heard.pods = Some(all);
                    heard.trouble = None;
                });
                return;
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => ListError::Forbidden,
            Ok(Err(error)) => ListError::Other(told(&error)),
            Err(_late) => ListError::Other("the API server does not answer".to_owned()),
        };
        self.not_listed_before = next_attempt(&mut self.lists, now, asked);
        if self.heard.borrow().trouble.as_ref() != Some(&trouble) {
            match &trouble {
                ListError::Forbidden => warn!("the node's pods cannot be listed: we may not"),
                ListError::Other(trouble) => warn!("the node's pods cannot be listed: {trouble}"),
            }
        }
        self.update_results(|heard| heard.trouble = Some(trouble));
    }

    async fn evict(&mut self, id: &PodId, count: usize) {
        let pods: Api<ApiPod> = Api::namespaced(self.pods.clone().into_client(), &id.namespace);
        let body = body(id);
        let params = PostParams::default();
        let request = pods.create_subresource::<Value, Value>("eviction", &id.name, &params, &body);
        let reply = timeout(REQUEST_TIMEOUT, request).await;
        let patience = retry_after(&reply);
        let answer = match reply {
            Ok(Ok(_)) => Answer::Ending,
            Ok(Err(error)) => classify_error(&error),
            Err(_late) => Answer::Refused("the API server does not answer".to_owned()),
        };
        let now = self.began.elapsed();
        let asked = self.asked.entry(id.clone()).or_default();
        asked.due = match &answer {
            Answer::Ending | Answer::Gone => None,
            Answer::Budget | Answer::Forbidden => {
                let many =
                    RETRY_INTERVAL_PER_POD.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
                let wait = RETRY_INTERVAL.max(many).max(patience.unwrap_or_default());
                Some(now.saturating_add(wait))
            }
            Answer::Refused(_) => Some(next_attempt(&mut asked.pace, now, patience)),
        };
        if answer == Answer::Ending {
            info!("pod {}: evicted", id.name());
        } else {
            debug!("pod {}: not evicted: {answer:?}", id.name());
        }
        self.update_results(|heard| {
            heard.answers.insert(id.clone(), answer);
        });
    }

    fn update_results(&self, change: impl FnOnce(&mut PodObservations)) {
        self.heard.send_if_modified(|heard| {
            let before = heard.clone();
            change(heard);
            *heard != before
        });
    }
}

/// Returns the delay that the server requests.
fn retry_after<T, E>(answer: &Result<kube::Result<T>, E>) -> Option<Duration> {
    let Ok(Err(error)) = answer else { return None };
    requested_delay(error)
}

/// Returns the next attempt's time after a failure. The delay is capped at `MAX_RETRY_DELAY` unless the server requests a
/// longer one.
fn next_attempt(
    pace: &mut WriteBackoff<()>,
    now: Duration,
    patience: Option<Duration>,
) -> Duration {
    pace.record_failure(now, None);
    let wait = pace.wait(now, &()).unwrap_or_default().min(MAX_RETRY_DELAY);
    now.saturating_add(wait.max(patience.unwrap_or_default()))
}

/// Returns the eviction of this pod. The UID protects a later pod of the same name. The grace period is the pod's own.
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
fn classify_error(error: &kube::Error) -> Answer {
    let refused = || Answer::Refused(told(error));
    let kube::Error::Api(status) = error else {
        return refused();
    };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let budget = causes
        .into_iter()
        .any(|cause| cause.reason == "DisruptionBudget");
    match status.code {
        404 => Answer::Gone,
        409 if status.message.contains("UID") => Answer::Gone,
        429 if budget => Answer::Budget,
        // A denying webhook returns the same code, but may decide otherwise later.
        403 if status.message.contains("cannot create resource") => Answer::Forbidden,
        _ => refused(),
    }
}

/// Extracts the relevant fields of a pod.
fn pod(pod: ApiPod) -> Pod {
    let meta = pod.metadata;
    let spec = pod.spec.unwrap_or_default();
    let annotations = meta.annotations.unwrap_or_default();
    let owners = meta.owner_references.unwrap_or_default();
    let controller = owners
        .into_iter()
        .find(|owner| owner.controller == Some(true));
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
        let mut pace = WriteBackoff::default();
        let mut last = Duration::ZERO;
        for _ in 0..20 {
            let wait = next_attempt(&mut pace, last, None).saturating_sub(last);
            assert!(!wait.is_zero() && wait <= MAX_RETRY_DELAY, "{wait:?}");
            last = next_attempt(&mut pace, last, None);
        }
        let status = json!({"code": 429, "message": "", "details": {"retryAfterSeconds": 70}});
        let status: kube::core::Status = serde_json::from_value(status).unwrap();
        let reply: Result<kube::Result<()>, ()> = Ok(Err(kube::Error::Api(Box::new(status))));
        let asked = retry_after(&reply);
        let due = next_attempt(&mut pace, last, asked);
        assert_eq!(due.saturating_sub(last), Duration::from_secs(70));
        assert_eq!(retry_after::<(), ()>(&Ok(Ok(()))), None);
    }

    #[test]
    fn responses_are_classified() {
        let of = |code: u16, message: &str, cause: Option<&str>| {
            let causes: Vec<Value> = cause
                .map(|cause| json!({"reason": cause}))
                .into_iter()
                .collect();
            let status = json!({"code": code, "message": message, "details": {"causes": causes}});
            let status: kube::core::Status = serde_json::from_value(status).unwrap();
            classify_error(&kube::Error::Api(Box::new(status)))
        };
        assert_eq!(of(404, "pods \"a\" not found", None), Answer::Gone);
        let other = "Precondition failed: UID in precondition: a, UID in object meta: b";
        assert_eq!(of(409, other, None), Answer::Gone);
        assert_eq!(
            of(429, "Cannot evict pod", Some("DisruptionBudget")),
            Answer::Budget
        );
        let role = "pods \"a\" is forbidden: User \"x\" cannot create resource \"pods/eviction\"";
        assert_eq!(of(403, role, None), Answer::Forbidden);
        for (code, message) in [
            (429, "slow down"),
            (403, "a webhook denied it"),
            (409, "again"),
            (500, "two budgets"),
        ] {
            let Answer::Refused(why) = of(code, message, None) else {
                panic!("{code}")
            };
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
            id: PodId {
                namespace: "a".to_owned(),
                name: "b".to_owned(),
                uid: "c".to_owned(),
            },
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
            (
                json!({"key": REPARTITIONING_TAINT, "operator": "Exists"}),
                true,
            ),
            (
                json!({"key": REPARTITIONING_TAINT, "operator": "Exists", "effect": "NoSchedule"}),
                true,
            ),
            (json!({"key": REPARTITIONING_TAINT}), true),
            (
                json!({"key": REPARTITIONING_TAINT, "operator": "Equal", "value": "now"}),
                false,
            ),
            (
                json!({"key": REPARTITIONING_TAINT, "operator": "Exists", "effect": "NoExecute"}),
                false,
            ),
            (
                json!({"key": "nvidia.com/gpu", "operator": "Exists"}),
                false,
            ),
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
