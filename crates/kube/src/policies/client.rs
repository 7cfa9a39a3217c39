//! Requests of the controller of policies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::Request;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use octavo_fleet::cluster::{ClusterNode, PodKey, Taint};
use octavo_policy::record::{FINALIZER, RECORD_ANNOTATION};
use octavo_policy::{NodePatch, Policy, PolicyStatus, crd};
use serde_json::{Value, json};
use thiserror::Error;

use super::object;
use crate::client::{RequestError, request_within};
use crate::cluster::{NodeVersion, read_node};

/// Request timeout, shorter than the time for which the Lease stays valid after the last permitted write.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// Field manager of all writes.
const FIELD_MANAGER: &str = "octavo-policies";
/// Namespace of events about cluster-scoped objects. Source: Kubernetes, `client-go/tools/record`.
const EVENT_NAMESPACE: &str = "default";
/// Maximum length of the beginning of an event's name, in bytes.
const MAX_EVENT_NAME: usize = 200;

/// Numbers of requests since the start.
#[derive(Debug, Clone, Default)]
pub struct PolicyRequests {
    reads: Arc<AtomicU64>,
    writes: Arc<AtomicU64>,
    failures: Arc<AtomicU64>,
}

/// Client for policies and their nodes.
#[derive(Clone)]
pub struct PolicyClient {
    client: Client,
    requests: PolicyRequests,
}

/// Failed request of the controller.
#[derive(Debug, Error)]
#[error("{object}: {source}")]
pub struct PolicyRequestError {
    /// The object.
    object: String,
    /// The cause.
    source: RequestError,
}

/// Object of an event.
#[derive(Debug, Clone, Copy)]
pub enum EventObject<'a> {
    /// A policy.
    Policy(&'a Policy),
    /// A pod, and its UID.
    Pod(&'a PodKey, &'a str),
}

impl std::fmt::Display for EventObject<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Policy(policy) => f.write_str(&about(&policy.name)),
            Self::Pod(pod, _uid) => write!(f, "pod {pod}"),
        }
    }
}

impl EventObject<'_> {
    /// Namespace of the event. The API server requires that of the object.
    fn namespace(&self) -> &str {
        match self {
            Self::Policy(_) => EVENT_NAMESPACE,
            Self::Pod(pod, _uid) => &pod.namespace,
        }
    }

    fn reference(&self) -> ObjectReference {
        match self {
            Self::Policy(policy) => ObjectReference {
                api_version: Some(format!("{}/{}", crd::GROUP, crd::VERSION)),
                kind: Some(crd::KIND.to_owned()),
                name: Some(policy.name.clone()),
                uid: Some(policy.uid.clone()),
                ..ObjectReference::default()
            },
            Self::Pod(pod, uid) => ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                namespace: Some(pod.namespace.clone()),
                name: Some(pod.name.clone()),
                uid: Some((*uid).to_owned()),
                ..ObjectReference::default()
            },
        }
    }
}

impl std::fmt::Debug for PolicyClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PolicyClient")
    }
}

impl PolicyRequests {
    /// Requests by kind: read, write, and failed ones of either kind.
    pub fn counts(&self) -> [(&'static str, u64); 3] {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [("read", get(&self.reads)), ("write", get(&self.writes)), ("failed", get(&self.failures))]
    }
}

impl PolicyRequestError {
    /// Returns whether another writer changed or deleted the object in the meantime.
    pub fn is_outdated(&self) -> bool {
        matches!(self.source.code(), Some(404 | 409))
    }

    /// Returns whether the API server refused this object, so that others need not wait.
    pub fn is_refusal(&self) -> bool {
        matches!(self.source.code(), Some(400 | 403 | 422))
    }

    /// Returns the delay that the server requests.
    pub fn retry_after(&self) -> Option<Duration> {
        self.source.retry_after()
    }
}

impl PolicyClient {
    /// Creates a client for the cluster of `client`.
    pub fn new(client: Client) -> Self {
        Self { client, requests: PolicyRequests::default() }
    }

    /// Returns the client, for other requests to the same cluster.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Counters of the requests.
    pub fn requests(&self) -> PolicyRequests {
        self.requests.clone()
    }

    /// Lists all policies. A cluster without the kind has none.
    pub async fn list(&self) -> Result<Vec<Policy>, PolicyRequestError> {
        let policies = self.policies();
        let listed = self
            .send(
                "accelerator policies",
                &self.requests.reads,
                policies.list(&ListParams::default()),
            )
            .await;
        match listed {
            Ok(listed) => Ok(listed.items.iter().map(object::policy).collect()),
            Err(error) if error.source.code() == Some(404) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Returns whether the policy with this name has this UID.
    pub async fn exists(&self, name: &str, uid: &str) -> Result<bool, PolicyRequestError> {
        let policies = self.policies();
        let found =
            self.send(&about(name), &self.requests.reads, policies.get_metadata_opt(name)).await?;
        Ok(found.is_some_and(|found| found.metadata.uid.as_deref() == Some(uid)))
    }

    /// Replaces the status of this version of a policy, and returns the new version.
    pub async fn write_status(
        &self,
        policy: &Policy,
        status: &PolicyStatus,
    ) -> Result<Policy, PolicyRequestError> {
        let status = serde_json::to_value(status).unwrap_or_default();
        // Absent fields must be removed, and a merge patch retains them.
        let status =
            with_removals(status, &serde_json::to_value(&policy.status).unwrap_or_default());
        let patch = json!({"metadata": {"resourceVersion": policy.version}, "status": status});
        let policies = self.policies();
        let (params, patch) = (params(), Patch::Merge(patch));
        let request = policies.patch_status(&policy.name, &params, &patch);
        let written = self.send(&about(&policy.name), &self.requests.writes, request).await?;
        Ok(object::policy(&written))
    }

    /// Adds or removes the finalizer of this version of a policy, and returns the new version.
    pub async fn set_finalizer(
        &self,
        policy: &Policy,
        is_set: bool,
    ) -> Result<Policy, PolicyRequestError> {
        let policies = self.policies();
        let name = about(&policy.name);
        let object =
            self.send(&name, &self.requests.reads, policies.get_metadata(&policy.name)).await?;
        let mut finalizers = object.metadata.finalizers.unwrap_or_default();
        finalizers.retain(|one| one != FINALIZER);
        if is_set {
            finalizers.push(FINALIZER.to_owned());
        }
        let version = object.metadata.resource_version;
        let patch = json!({"metadata": {"resourceVersion": version, "finalizers": finalizers}});
        let (params, patch) = (params(), Patch::Merge(patch));
        let written = self
            .send(&name, &self.requests.writes, policies.patch(&policy.name, &params, &patch))
            .await?;
        Ok(object::policy(&written))
    }

    /// Reads a node with its version; `None` if it does not exist.
    pub async fn read_node(
        &self,
        name: &str,
    ) -> Result<Option<(ClusterNode, NodeVersion)>, PolicyRequestError> {
        let request =
            kube::core::Request::new("/api/v1/nodes").get(name, &kube::api::GetParams::default());
        let object = format!("node {name}");
        let Ok(request) = request else { return Ok(None) };
        match self.send(&object, &self.requests.reads, read_node(&self.client, request)).await {
            Ok(node) => Ok(Some(node)),
            Err(error) if error.source.code() == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Applies a patch to this version of a node, and returns the node.
    pub async fn patch_node(
        &self,
        name: &str,
        version: &NodeVersion,
        patch: &NodePatch,
    ) -> Result<ClusterNode, PolicyRequestError> {
        let patch = Patch::Merge(node_patch(version, patch));
        let request: Result<Request<Vec<u8>>, _> =
            kube::core::Request::new("/api/v1/nodes").patch(name, &params(), &patch);
        let object = format!("node {name}");
        let request =
            async { read_node(&self.client, request.map_err(kube::Error::BuildRequest)?).await };
        self.send(&object, &self.requests.writes, request).await.map(|(node, _)| node)
    }

    /// Creates an event about a policy or a pod.
    pub async fn create_event(
        &self,
        about: EventObject<'_>,
        reason: &str,
        message: &str,
        is_warning: bool,
    ) -> Result<(), PolicyRequestError> {
        let event = event(about, reason, message, is_warning);
        let events: Api<Event> = Api::namespaced(self.client.clone(), about.namespace());
        let params = PostParams::default();
        self.send(&about.to_string(), &self.requests.writes, events.create(&params, &event))
            .await
            .map(|_event| ())
    }

    fn policies(&self) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &object::resource())
    }

    async fn send<T>(
        &self,
        object: &str,
        counter: &AtomicU64,
        response: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, PolicyRequestError> {
        counter.fetch_add(1, Ordering::Relaxed);
        request_within(REQUEST_TIMEOUT, response).await.map_err(|source| {
            self.requests.failures.fetch_add(1, Ordering::Relaxed);
            PolicyRequestError { object: object.to_owned(), source }
        })
    }
}

fn about(policy: &str) -> String {
    format!("accelerator policy {policy}")
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

/// Sets fields that only `before` has to null, at the top level.
fn with_removals(mut status: Value, before: &Value) -> Value {
    if let (Value::Object(fields), Value::Object(before)) = (&mut status, before) {
        for key in before.keys() {
            fields.entry(key).or_insert(Value::Null);
        }
    }
    status
}

/// The taints after a patch. Those that it keeps retain all their fields, such as `timeAdded`.
fn all_taints(before: &[Value], after: &[Taint]) -> Vec<Value> {
    let parse = |taint: &Value| serde_json::from_value::<Taint>(taint.clone()).ok();
    let unchanged = before.iter().filter(|one| parse(one).is_none_or(|one| after.contains(&one)));
    let is_new = |one: &&Taint| before.iter().all(|known| parse(known).as_ref() != Some(*one));
    unchanged.cloned().chain(after.iter().filter(is_new).map(|one| json!(one))).collect()
}

/// One merge patch of the labels, all taints, the annotations and the record.
fn node_patch(version: &NodeVersion, patch: &NodePatch) -> Value {
    let record = patch.record.as_ref();
    let record = record.map(|record| serde_json::to_string(record).unwrap_or_default());
    let mut annotations = patch.annotations.clone();
    annotations.insert(RECORD_ANNOTATION.to_owned(), record);
    let mut metadata =
        json!({"resourceVersion": version.resource_version, "annotations": annotations});
    if let (Value::Object(metadata), false) = (&mut metadata, patch.labels.is_empty()) {
        metadata.insert("labels".to_owned(), json!(patch.labels));
    }
    match &patch.taints {
        Some(taints) => {
            let taints = all_taints(&version.taints, taints);
            json!({"metadata": metadata, "spec": {"taints": taints}})
        }
        None => json!({"metadata": metadata}),
    }
}

fn event(about: EventObject<'_>, reason: &str, message: &str, is_warning: bool) -> Event {
    let now = Timestamp::now();
    let object = about.reference();
    let name = object.name.as_deref().unwrap_or_default();
    Event {
        metadata: ObjectMeta {
            // Within the length limit of names.
            generate_name: Some(format!("{}.", name.get(..MAX_EVENT_NAME).unwrap_or(name))),
            namespace: Some(about.namespace().to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: object,
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        type_: Some(if is_warning { "Warning" } else { "Normal" }.to_owned()),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        count: Some(1),
        reporting_component: FIELD_MANAGER.to_owned().into(),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use octavo_fleet::cluster::Effect;
    use octavo_policy::record::{DRAIN_ANNOTATION, NodeRecord};

    use super::*;

    #[test]
    fn p2_labels_taints_and_record_are_one_patch_of_one_version() {
        let named = |key: &str| Taint {
            key: key.to_owned(),
            value: String::new(),
            effect: Effect::NoSchedule,
        };
        let (taint, cordon) = (named("gpu"), named("node.kubernetes.io/unschedulable"));
        let version = NodeVersion {
            resource_version: "7".to_owned(),
            taints: vec![
                json!({"key": cordon.key, "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}),
                json!({"key": "old", "effect": "NoSchedule"}),
                json!({"key": "later", "effect": "NoReplicate"}),
            ],
        };
        let record = NodeRecord {
            policy: "a".to_owned(),
            uid: "u".to_owned(),
            revision: "r".to_owned(),
            rollout: 1,
            since: "2026-01-01T00:00:00Z".parse().unwrap(),
            layout: None,
            was_reported: false,
            labels: [("tier".to_owned(), "gold".to_owned())].into(),
            taints: vec![taint.clone()],
            drain: None,
            changes: Vec::new(),
            evictions: Vec::new(),
            withdrawn: None,
        };
        let labels =
            [("tier".to_owned(), Some("gold".to_owned())), ("old".to_owned(), None)].into();
        let patch = node_patch(
            &version,
            &NodePatch {
                labels,
                annotations: [(DRAIN_ANNOTATION.to_owned(), Some("affected,10m".to_owned()))]
                    .into(),
                taints: Some(vec![taint, cordon]),
                record: Some(record),
            },
        );
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        assert_eq!(patch["metadata"]["labels"], json!({"tier": "gold", "old": null}));
        // The time of a kept taint stays, and a taint that this version does not know.
        let gpu = json!({"key": "gpu", "effect": "NoSchedule"});
        assert_eq!(patch["spec"]["taints"], json!([version.taints[0], version.taints[2], gpu]));
        let text = patch["metadata"]["annotations"][RECORD_ANNOTATION].as_str().unwrap();
        assert_eq!(patch["metadata"]["annotations"][DRAIN_ANNOTATION], "affected,10m");
        assert!(text.contains("gold") && text.contains("NoSchedule"), "{text}");
        let removal = node_patch(&version, &NodePatch::default());
        assert_eq!(
            removal,
            json!({"metadata": {"resourceVersion": "7", "annotations": {RECORD_ANNOTATION: null}}})
        );
        assert_eq!(
            with_removals(json!({"a": 1}), &json!({"a": 2, "stop": {}})),
            json!({"a": 1, "stop": null})
        );
    }

    #[test]
    fn m21_event_about_a_pod_is_in_its_namespace() {
        let name = "n".repeat(253);
        let pod = PodKey { namespace: "team-a".to_owned(), name: name.clone() };
        let event = event(EventObject::Pod(&pod, "v"), "InstancesChanging", "create", false);
        assert_eq!(event.metadata.namespace.as_deref(), Some("team-a"));
        assert_eq!(event.metadata.generate_name.map(|name| name.len()), Some(MAX_EVENT_NAME + 1));
        let object = event.involved_object;
        assert_eq!((object.kind.as_deref(), object.name), (Some("Pod"), Some(name)));
        assert_eq!(
            (object.namespace.as_deref(), object.uid.as_deref()),
            (Some("team-a"), Some("v"))
        );
    }
}
