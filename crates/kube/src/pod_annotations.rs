//! Reads and writes our annotations of a pod, with one request each.
//!
//! The pod is read first, because a node's report is only accepted for pods on that node. A write includes the UID that
//! was read, so that it does not affect another pod of the same name. Used by the aggregator, which decides when.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod as ApiPod;
use kube::api::{Patch as ApiPatch, PatchParams};
use kube::{Api, Client};
use octavo_node::workload::{KEYS, Patch, Pod, PodKey};
use serde_json::{Value, json};
use thiserror::Error;
use tokio::time::timeout;

use super::client::{ConnectError, Program, REQUEST_TIMEOUT, connect, requested_delay, told};
use super::nvidia_plugin_config::FIELD_MANAGER;

/// Client for the pods of a cluster.
#[derive(Clone)]
pub struct PodAnnotationClient {
    client: Client,
}

/// Reason why a pod was not read or written.
#[derive(Debug, Error)]
pub enum PodAnnotationError {
    /// The API server refused the request or is unreachable.
    #[error("pod {place}: {}", told(.source))]
    Refused {
        /// The pod.
        place: PodKey,
        /// The cause.
        source: Box<kube::Error>,
    },
    /// No response.
    #[error("pod {0}: the API server does not answer within {REQUEST_TIMEOUT:?}")]
    TimedOut(PodKey),
}

impl std::fmt::Debug for PodAnnotationClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pods")
    }
}

impl PodAnnotationError {
    /// Returns whether the error concerns only this pod, so that others need not wait.
    pub fn is_pod_specific(&self) -> bool {
        match self {
            Self::Refused { source, .. } => {
                matches!(&**source, kube::Error::Api(status)
                    if (400..500).contains(&status.code) && !matches!(status.code, 401 | 408 | 429))
            }
            Self::TimedOut(_) => false,
        }
    }

    /// Returns the delay that the server requests.
    pub fn patience(&self) -> Option<Duration> {
        match self {
            Self::Refused { source, .. } => requested_delay(source),
            Self::TimedOut(_) => None,
        }
    }
}

impl PodAnnotationClient {
    /// Connects to the cluster of `kubeconfig`, or to the one of the current pod. Sends no request yet.
    pub async fn connect(kubeconfig: Option<&Path>) -> Result<Self, ConnectError> {
        let client = connect(kubeconfig, Program::Aggregator).await?;
        Ok(Self { client })
    }

    /// Returns the client, for other requests to the same cluster.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Reads a pod; `None` if it does not exist.
    pub async fn read(&self, place: &PodKey) -> Result<Option<Pod>, PodAnnotationError> {
        let answer = timeout(REQUEST_TIMEOUT, self.of(place).get_opt(place.name())).await;
        Ok(answered(place, answer)?.map(pod))
    }

    /// Writes the differences if it is still the same pod.
    pub async fn write(&self, place: &PodKey, patch: &Patch) -> Result<(), PodAnnotationError> {
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = ApiPatch::Merge(body(patch));
        let pods = self.of(place);
        let answer = timeout(REQUEST_TIMEOUT, pods.patch(place.name(), &params, &patch)).await;
        answered(place, answer).map(|_now| ())
    }

    fn of(&self, place: &PodKey) -> Api<ApiPod> {
        Api::namespaced(self.client.clone(), place.namespace())
    }
}

fn answered<T, E>(
    place: &PodKey,
    answer: Result<kube::Result<T>, E>,
) -> Result<T, PodAnnotationError> {
    match answer {
        Ok(Ok(object)) => Ok(object),
        Ok(Err(error)) => Err(PodAnnotationError::Refused {
            place: place.clone(),
            source: Box::new(error),
        }),
        Err(_late) => Err(PodAnnotationError::TimedOut(place.clone())),
    }
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
        annotations: annotations
            .filter(|(key, _)| KEYS.contains(&key.as_str()))
            .collect(),
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
            changes: [
                (TYPE_ANNOTATION, Some("a".to_owned())),
                (MIG_PROFILE_ANNOTATION, None),
            ]
            .into(),
        };
        let expected = json!({"metadata": {"uid": "u", "annotations": {TYPE_ANNOTATION: "a", MIG_PROFILE_ANNOTATION: null}}});
        assert_eq!(body(&patch), expected);
    }
}
