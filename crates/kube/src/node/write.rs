//! Converts changes of a Node to requests.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use octavo_node::node::{NodeWrite, Taint, View};
use serde_json::{Value, json};
use thiserror::Error;
use tokio::time::timeout;

use crate::client::{REQUEST_TIMEOUT, requested_delay, told};

/// Field manager for changes of fields that others own.
const UPDATE_MANAGER: &str = "octavo-agent-operands";

/// Error that prevents a write of a Node.
#[derive(Debug, Error)]
pub(super) enum WriteError {
    /// The API server refused the request or is unreachable.
    #[error("cannot write the Node: {}", told(.0))]
    Refused(Box<kube::Error>),
    /// No response.
    #[error("cannot write the Node: the API server does not answer within {REQUEST_TIMEOUT:?}")]
    Late,
}

impl WriteError {
    /// Returns the delay that the server requests.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused(error) => requested_delay(error),
            Self::Late => None,
        }
    }

    /// Returns whether the write conflicted with another one, so that the Node differs from the expected state.
    pub(super) fn is_conflict(&self) -> bool {
        match self {
            Self::Refused(error) => {
                matches!(&**error, kube::Error::Api(status) if status.code == 409)
            }
            Self::Late => false,
        }
    }
}

/// Writes to the Node `name`, last seen as `view`. Returns the updated Node.
pub(super) async fn send(
    nodes: &Api<Node>,
    name: &str,
    view: &View,
    write: &NodeWrite,
) -> Result<Node, WriteError> {
    let (params, patch) = request(view, write);
    match timeout(REQUEST_TIMEOUT, nodes.patch(name, &params, &patch)).await {
        Ok(done) => done.map_err(|error| WriteError::Refused(Box::new(error))),
        Err(_late) => Err(WriteError::Late),
    }
}

/// Builds the patch. The UID protects a Node that was deleted and recreated, and changes that depend on the current
/// value include the resource version.
fn request(view: &View, write: &NodeWrite) -> (PatchParams, Patch<Value>) {
    let merge = PatchParams {
        field_manager: Some(UPDATE_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    match write {
        NodeWrite::Apply {
            manager,
            force,
            labels,
            annotations,
        } => {
            let params = PatchParams {
                force: *force,
                ..PatchParams::apply(manager)
            };
            // Omit an empty set, so that a manager without any field is removed from the managed fields.
            let mut metadata = json!({"uid": view.uid});
            for (name, set) in [("labels", labels), ("annotations", annotations)] {
                if let Some(fields) = metadata.as_object_mut().filter(|_| !set.is_empty()) {
                    fields.insert(name.to_owned(), json!(set));
                }
            }
            let body = json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata});
            (params, Patch::Apply(body))
        }
        NodeWrite::Taints(taints) => {
            let taints: Vec<Value> = taints.iter().map(taint).collect();
            let body = json!({
                "metadata": {"resourceVersion": view.version, "uid": view.uid},
                "spec": {"taints": taints},
            });
            (merge, Patch::Merge(body))
        }
        NodeWrite::Replace { key, to, .. } => {
            let body = json!({
                "metadata": {"resourceVersion": view.version, "uid": view.uid, "labels": {key: to}},
            });
            (merge, Patch::Merge(body))
        }
    }
}

fn taint(taint: &Taint) -> Value {
    let mut body = json!({"key": taint.key, "effect": taint.effect});
    if let Some(fields) = body.as_object_mut() {
        let rest = [("value", &taint.value), ("timeAdded", &taint.added)];
        for (name, value) in rest {
            if let Some(value) = value {
                fields.insert(name.to_owned(), Value::String(value.clone()));
            }
        }
    }
    body
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn metadata(labels: &[(&str, &str)]) -> Value {
        let text = |&(key, value): &(&str, &str)| (key.to_owned(), value.to_owned());
        let write = NodeWrite::Apply {
            manager: "octavo-agent",
            force: false,
            labels: labels.iter().map(text).collect(),
            annotations: BTreeMap::new(),
        };
        let view = View {
            uid: "1".to_owned(),
            ..View::default()
        };
        match request(&view, &write) {
            (_, Patch::Apply(body)) => body["metadata"].clone(),
            (_, patch) => panic!("{patch:?}"),
        }
    }

    #[test]
    fn empty_sets_are_omitted() {
        let labels = json!({"uid": "1", "labels": {"octavo.dev/count": "8"}});
        assert_eq!(metadata(&[("octavo.dev/count", "8")]), labels);
        assert_eq!(metadata(&[]), json!({"uid": "1"}));
    }
}
