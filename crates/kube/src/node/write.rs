//! Converts changes of a Node to requests.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use octavo_node::node_object::{NodeWrite, ObservedNode, Taint};
use serde_json::{Value, json};

use crate::client::{self, RequestError};

/// Field manager for changes of fields that others own.
const UPDATE_MANAGER: &str = "octavo-agent-operands";

/// Writes to the Node `name`, last seen as `view`. Returns the updated Node.
pub(super) async fn send(
    nodes: &Api<Node>,
    name: &str,
    view: &ObservedNode,
    write: &NodeWrite,
) -> Result<Node, RequestError> {
    let (params, patch) = request(view, write);
    client::request(nodes.patch(name, &params, &patch)).await
}

/// Builds the patch. The UID protects a Node that was deleted and recreated, and changes that depend on the current
/// value include the resource version.
fn request(view: &ObservedNode, write: &NodeWrite) -> (PatchParams, Patch<Value>) {
    let merge =
        PatchParams { field_manager: Some(UPDATE_MANAGER.to_owned()), ..PatchParams::default() };
    match write {
        NodeWrite::Apply { manager, force, labels, annotations } => {
            let params = PatchParams { force: *force, ..PatchParams::apply(manager) };
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
        let view = ObservedNode { uid: "1".to_owned(), ..ObservedNode::default() };
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
