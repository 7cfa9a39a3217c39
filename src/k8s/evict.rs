//! Lists and evicts the node's pods on request, through the Eviction API, which respects disruption budgets and each
//! pod's termination grace period.
//!
//! Callers have a [`Door`] and never wait: they set the desired evictions and read the results. Only one request runs
//! at a time, so that many pods do not delay the agent's other requests. Source: Kubernetes, "API-initiated Eviction".

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod as ApiPod, Toleration};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};

use crate::domain::id::NodeName;
use crate::domain::node::drain::{Answer, Heard, Orders, Pod, PodId, Trouble};
use crate::domain::node::pace::Pace;
use crate::domain::node::{EFFECT, REPARTITIONING};
use crate::k8s::client::{REQUEST, told};
use crate::k8s::node::patience;

/// Retry interval of a pod that its disruption budget protects; `EACH` per pod if there are many, to limit the load on
/// the API server.
const AGAIN: Duration = Duration::from_secs(5);
const EACH: Duration = Duration::from_millis(500);
/// Maximum retry delay after any number of failures, because a drain has a deadline.
const LONGEST: Duration = Duration::from_secs(30);

/// Handle to an [`Usher`], which ends when the handle is dropped.
#[derive(Debug)]
pub struct Door {
    orders: watch::Sender<Orders>,
    /// The API server's responses.
    pub heard: watch::Receiver<Heard>,
}

/// Lists and evicts pods; run it as a task.
#[derive(Debug)]
pub struct Usher {
    pods: Api<ApiPod>,
    node: String,
    orders: watch::Receiver<Orders>,
    heard: watch::Sender<Heard>,
    began: Instant,
    listed: Option<Duration>,
    lists: Pace<()>,
    /// Earliest time of the next list after a failure.
    not_listed_before: Duration,
    asked: BTreeMap<PodId, Asked>,
}

/// State of a pod to evict.
#[derive(Debug, Default)]
struct Asked {
    pace: Pace<()>,
    /// When to retry; `None` after a final response.
    due: Option<Duration>,
}

impl Door {
    /// Creates a handle and the evictor's ends of its channels.
    pub(crate) fn new() -> (Self, watch::Receiver<Orders>, watch::Sender<Heard>) {
        let (order, orders) = watch::channel(Orders::default());
        let (hear, heard) = watch::channel(Heard::default());
        let door = Self {
            orders: order,
            heard,
        };
        (door, orders, hear)
    }

    /// Sets the desired lists and evictions.
    pub fn order(&self, orders: Orders) {
        self.orders.send_if_modified(|known| {
            let differs = *known != orders;
            *known = orders;
            differs
        });
    }
}

impl Usher {
    /// Creates an evictor for the pods of `node`. Sends no request before it runs and has orders.
    pub fn new(client: Client, node: &NodeName) -> (Door, Self) {
        let (door, orders, heard) = Door::new();
        let usher = Self {
            pods: Api::all(client),
            node: node.as_str().to_owned(),
            orders,
            heard,
            began: Instant::now(),
            listed: None,
            lists: Pace::default(),
            not_listed_before: Duration::ZERO,
            asked: BTreeMap::new(),
        };
        (door, usher)
    }

    /// Runs until the handle is dropped.
    pub async fn run(mut self) {
        loop {
            let orders = self.orders.borrow_and_update().clone();
            self.forget(&orders);
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
    fn forget(&mut self, orders: &Orders) {
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
    async fn step(&mut self, orders: &Orders) -> Option<Duration> {
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
        let answer = timeout(REQUEST, self.pods.list(&params)).await;
        let now = self.began.elapsed();
        let asked = asks_for(&answer);
        let trouble = match answer {
            Ok(Ok(list)) => {
                let mut all: Vec<Pod> = list.items.into_iter().map(pod).collect();
                all.sort();
                self.listed = Some(now);
                self.lists = Pace::default();
                self.hear(|heard| {
                    heard.pods = Some(all);
                    heard.trouble = None;
                });
                return;
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => Trouble::Forbidden,
            Ok(Err(error)) => Trouble::Other(told(&error)),
            Err(_late) => Trouble::Other("the API server does not answer".to_owned()),
        };
        self.not_listed_before = after(&mut self.lists, now, asked);
        if self.heard.borrow().trouble.as_ref() != Some(&trouble) {
            match &trouble {
                Trouble::Forbidden => warn!("the node's pods cannot be listed: we may not"),
                Trouble::Other(trouble) => warn!("the node's pods cannot be listed: {trouble}"),
            }
        }
        self.hear(|heard| heard.trouble = Some(trouble));
    }

    async fn evict(&mut self, id: &PodId, count: usize) {
        let pods: Api<ApiPod> = Api::namespaced(self.pods.clone().into_client(), &id.namespace);
        let body = body(id);
        let params = PostParams::default();
        let request = pods.create_subresource::<Value, Value>("eviction", &id.name, &params, &body);
        let reply = timeout(REQUEST, request).await;
        let patience = asks_for(&reply);
        let answer = match reply {
            Ok(Ok(_)) => Answer::Ending,
            Ok(Err(error)) => answer(&error),
            Err(_late) => Answer::Refused("the API server does not answer".to_owned()),
        };
        let now = self.began.elapsed();
        let asked = self.asked.entry(id.clone()).or_default();
        asked.due = match &answer {
            Answer::Ending | Answer::Gone => None,
            Answer::Budget | Answer::Forbidden => {
                let many = EACH.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
                let wait = AGAIN.max(many).max(patience.unwrap_or_default());
                Some(now.saturating_add(wait))
            }
            Answer::Refused(_) => Some(after(&mut asked.pace, now, patience)),
        };
        if answer == Answer::Ending {
            info!("pod {}: evicted", id.name());
        } else {
            debug!("pod {}: not evicted: {answer:?}", id.name());
        }
        self.hear(|heard| {
            heard.answers.insert(id.clone(), answer);
        });
    }

    fn hear(&self, change: impl FnOnce(&mut Heard)) {
        self.heard.send_if_modified(|heard| {
            let before = heard.clone();
            change(heard);
            *heard != before
        });
    }
}

/// Returns the delay that the server requests.
fn asks_for<T, E>(answer: &Result<kube::Result<T>, E>) -> Option<Duration> {
    let Ok(Err(error)) = answer else { return None };
    patience(error)
}

/// Returns the next attempt's time after a failure. The delay is capped at `LONGEST` unless the server requests a
/// longer one.
fn after(pace: &mut Pace<()>, now: Duration, patience: Option<Duration>) -> Duration {
    pace.failed(now, None);
    let wait = pace.wait(now, &()).unwrap_or_default().min(LONGEST);
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
fn answer(error: &kube::Error) -> Answer {
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
    equal && all(&toleration.key, REPARTITIONING) && all(&toleration.effect, EFFECT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eviction_names_the_very_pod_and_leaves_its_time_to_end_to_it() {
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
    fn what_fails_is_tried_again_within_half_a_minute_or_when_the_server_wants_it() {
        let mut pace = Pace::default();
        let mut last = Duration::ZERO;
        for _ in 0..20 {
            let wait = after(&mut pace, last, None).saturating_sub(last);
            assert!(!wait.is_zero() && wait <= LONGEST, "{wait:?}");
            last = after(&mut pace, last, None);
        }
        let status = json!({"code": 429, "message": "", "details": {"retryAfterSeconds": 70}});
        let status: kube::core::Status = serde_json::from_value(status).unwrap();
        let reply: Result<kube::Result<()>, ()> = Ok(Err(kube::Error::Api(Box::new(status))));
        let asked = asks_for(&reply);
        let due = after(&mut pace, last, asked);
        assert_eq!(due.saturating_sub(last), Duration::from_secs(70));
        assert_eq!(asks_for::<(), ()>(&Ok(Ok(()))), None);
    }

    #[test]
    fn every_answer_is_told_from_every_other() {
        let of = |code: u16, message: &str, cause: Option<&str>| {
            let causes: Vec<Value> = cause
                .map(|cause| json!({"reason": cause}))
                .into_iter()
                .collect();
            let status = json!({"code": code, "message": message, "details": {"causes": causes}});
            let status: kube::core::Status = serde_json::from_value(status).unwrap();
            answer(&kube::Error::Api(Box::new(status)))
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
    fn a_pod_is_read_with_what_decides_whether_it_may_be_evicted() {
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
            (json!({"key": REPARTITIONING, "operator": "Exists"}), true),
            (
                json!({"key": REPARTITIONING, "operator": "Exists", "effect": "NoSchedule"}),
                true,
            ),
            (json!({"key": REPARTITIONING}), true),
            (
                json!({"key": REPARTITIONING, "operator": "Equal", "value": "now"}),
                false,
            ),
            (
                json!({"key": REPARTITIONING, "operator": "Exists", "effect": "NoExecute"}),
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
