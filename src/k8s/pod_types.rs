//! Reads and writes our annotations of a pod, with one request each.
//!
//! The pod is read first, because a node's report is only accepted for pods on that node. A write includes the UID that
//! was read, so that it does not affect another pod of the same name. Used by the aggregator, which decides when.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod as ApiPod;
use kube::api::{Patch as ApiPatch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use thiserror::Error;
use tokio::time::timeout;

use super::client::{ConnectError, Program, REQUEST, connect, told};
use super::node::patience;
use super::plugin_config::MANAGER;
use crate::domain::workload::{KEYS, Patch, Place, Pod};

/// Client for the pods of a cluster.
#[derive(Clone)]
pub struct Pods {
    client: Client,
}

/// Reason why a pod was not read or written.
#[derive(Debug, Error)]
pub enum PodTypeError {
    /// The API server refused the request or is unreachable.
    #[error("pod {place}: {}", told(.source))]
    Refused {
        /// The pod.
        place: Place,
        /// The cause.
        source: Box<kube::Error>,
    },
    /// No response.
    #[error("pod {0}: the API server does not answer within {REQUEST:?}")]
    Late(Place),
}

impl std::fmt::Debug for Pods {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pods")
    }
}

impl PodTypeError {
    /// Returns whether the error concerns only this pod, so that others need not wait.
    pub fn is_of_the_pod(&self) -> bool {
        match self {
            Self::Refused { source, .. } => {
                matches!(&**source, kube::Error::Api(status)
                    if (400..500).contains(&status.code) && !matches!(status.code, 401 | 408 | 429))
            }
            Self::Late(_) => false,
        }
    }

    /// Returns the delay that the server requests.
    pub fn patience(&self) -> Option<Duration> {
        match self {
            Self::Refused { source, .. } => patience(source),
            Self::Late(_) => None,
        }
    }
}

impl Pods {
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
    pub async fn read(&self, place: &Place) -> Result<Option<Pod>, PodTypeError> {
        let answer = timeout(REQUEST, self.of(place).get_opt(place.name())).await;
        Ok(answered(place, answer)?.map(pod))
    }

    /// Writes the differences if it is still the same pod.
    pub async fn write(&self, place: &Place, patch: &Patch) -> Result<(), PodTypeError> {
        let params = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = ApiPatch::Merge(body(patch));
        let pods = self.of(place);
        let answer = timeout(REQUEST, pods.patch(place.name(), &params, &patch)).await;
        answered(place, answer).map(|_now| ())
    }

    fn of(&self, place: &Place) -> Api<ApiPod> {
        Api::namespaced(self.client.clone(), place.namespace())
    }
}

fn answered<T, E>(place: &Place, answer: Result<kube::Result<T>, E>) -> Result<T, PodTypeError> {
    match answer {
        Ok(Ok(object)) => Ok(object),
        Ok(Err(error)) => Err(PodTypeError::Refused {
            place: place.clone(),
            source: Box::new(error),
        }),
        Err(_late) => Err(PodTypeError::Late(place.clone())),
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
    use super::*;
    use crate::domain::workload::{MIG_PROFILE, TYPE};

    #[test]
    fn of_a_pod_that_is_kept_which_decides() {
        let read: ApiPod = serde_json::from_value(json!({
            "metadata": {"name": "p", "uid": "u", "annotations": {TYPE: "a", "mine": "b"}},
            "spec": {"nodeName": "n", "containers": []},
            "status": {"phase": "Running"},
        }))
        .unwrap();
        let expected = Pod {
            uid: "u".to_owned(),
            node: Some("n".to_owned()),
            has_ended: false,
            annotations: [(TYPE.to_owned(), "a".to_owned())].into(),
        };
        assert_eq!(pod(read), expected);
        let ended = json!({"metadata": {}, "status": {"phase": "Failed"}});
        assert!(pod(serde_json::from_value(ended).unwrap()).has_ended);
    }

    #[test]
    fn a_patch_names_the_uid_and_nothing_but_what_differs() {
        let patch = Patch {
            uid: "u".to_owned(),
            changes: [(TYPE, Some("a".to_owned())), (MIG_PROFILE, None)].into(),
        };
        let expected =
            json!({"metadata": {"uid": "u", "annotations": {TYPE: "a", MIG_PROFILE: null}}});
        assert_eq!(body(&patch), expected);
    }
}
