//! Reads and writes our annotations of a pod, with one request each.
//!
//! The pod is read first, because a node's report is only accepted for pods on that node. A write includes the UID that
//! was read, so that it does not affect another pod of the same name. Used by the aggregator, which decides when.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod as ApiPod;
use kube::api::{Patch as ApiPatch, PatchParams};
use kube::{Api, Client};
use octavo_node::workload::{KEYS, Patch, Pod, PodKey};
use serde_json::{Value, json};
use thiserror::Error;

use super::client::{self, RequestError};
use super::nvidia_plugin_config::FIELD_MANAGER;

/// Client for the pods of a cluster.
#[derive(Clone)]
pub struct PodAnnotationClient {
    client: Client,
}

/// Reason why a pod was not read or written.
#[derive(Debug, Error)]
#[error("pod {place}: {source}")]
pub struct PodAnnotationError {
    /// The pod.
    place: PodKey,
    /// The cause.
    source: RequestError,
}

impl std::fmt::Debug for PodAnnotationClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PodAnnotationClient")
    }
}

impl PodAnnotationError {
    /// Returns whether the error concerns only this pod, so that others need not wait.
    pub fn is_pod_specific(&self) -> bool {
        self.source
            .code()
            .is_some_and(|code| (400..500).contains(&code) && !matches!(code, 401 | 408 | 429))
    }

    /// Returns the delay that the server requests.
    pub fn retry_after(&self) -> Option<Duration> {
        self.source.retry_after()
    }
}

impl PodAnnotationClient {
    /// Creates a client for the pods of the cluster of `client`.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Returns the client, for other requests to the same cluster.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Reads a pod; `None` if it does not exist.
    pub async fn read(&self, place: &PodKey) -> Result<Option<Pod>, PodAnnotationError> {
        Ok(request(place, self.api(place).get_opt(place.name())).await?.map(pod))
    }

    /// Writes the differences if it is still the same pod.
    pub async fn write(&self, place: &PodKey, patch: &Patch) -> Result<(), PodAnnotationError> {
        let params =
            PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let patch = ApiPatch::Merge(body(patch));
        let pods = self.api(place);
        request(place, pods.patch(place.name(), &params, &patch)).await.map(|_pod| ())
    }

    fn api(&self, place: &PodKey) -> Api<ApiPod> {
        Api::namespaced(self.client.clone(), place.namespace())
    }
}

async fn request<T>(
    place: &PodKey,
    response: impl Future<Output = kube::Result<T>>,
) -> Result<T, PodAnnotationError> {
    let response = client::request(response).await;
    response.map_err(|source| PodAnnotationError { place: place.clone(), source })
}

fn body(patch: &Patch) -> Value {
    json!({"metadata": {"uid": patch.uid, "annotations": patch.changes}})
}

fn pod(pod: ApiPod) -> Pod {
    let annotations = pod.metadata.annotations.unwrap_or_default().into_iter();
    let status = pod.status.unwrap_or_default();
    // Source: Kubernetes, "Pod Lifecycle": these two phases are final.
    let has_ended = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    Pod {
        uid: pod.metadata.uid.unwrap_or_default(),
        node: pod.spec.and_then(|spec| spec.node_name),
        has_ended,
        annotations: annotations.filter(|(key, _)| KEYS.contains(&key.as_str())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use octavo_node::workload::{MIG_PROFILE_ANNOTATION, TYPE_ANNOTATION};

    use super::*;

    #[test]
    fn relevant_pod_fields_are_read() {
        let read: ApiPod = serde_json::from_value(json!({
            "metadata": {"name": "p", "uid": "u", "annotations": {TYPE_ANNOTATION: "a", "mine": "b"}},
            "spec": {"nodeName": "n", "containers": []},
            "status": {"phase": "Running"},
        }))
        .unwrap();
        let expected = Pod {
            uid: "u".to_owned(),
            node: Some("n".to_owned()),
            has_ended: false,
            annotations: [(TYPE_ANNOTATION.to_owned(), "a".to_owned())].into(),
        };
        assert_eq!(pod(read), expected);
        let ended = json!({"metadata": {}, "status": {"phase": "Failed"}});
        assert!(pod(serde_json::from_value(ended).unwrap()).has_ended);
    }

    #[test]
    fn patch_contains_uid_and_differences_only() {
        let patch = Patch {
            uid: "u".to_owned(),
            changes: [(TYPE_ANNOTATION, Some("a".to_owned())), (MIG_PROFILE_ANNOTATION, None)]
                .into(),
        };
        let expected = json!({"metadata": {"uid": "u", "annotations": {TYPE_ANNOTATION: "a", MIG_PROFILE_ANNOTATION: null}}});
        assert_eq!(body(&patch), expected);
    }
}
