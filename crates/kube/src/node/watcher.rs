//! Watches a Node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Taint as ApiTaint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event as Seen, watcher};
use octavo_node::node_object::{
    COMPAT_FIELD_MANAGER, FIELD_MANAGER, FieldManagers, ObservedNode, SHARING_FIELD_MANAGER, Taint,
};
use octavo_toolkit::desired::{send_if_changed, update};
use serde_json::Value;
use tokio::sync::watch;
use tokio_stream::StreamExt;
use tracing::{debug, info, warn};

use super::NodeReport;
use crate::backoff::ReconnectBackoff;
use crate::client::describe_watch_error;

/// Prefix of our annotations.
const LABEL_PREFIX: &str = "octavo.dev/";

/// Watches a Node and publishes its state.
pub(super) struct NodeWatcher<'a> {
    pub(super) nodes: &'a Api<Node>,
    pub(super) name: &'a str,
    pub(super) view: &'a watch::Sender<Option<Arc<ObservedNode>>>,
    pub(super) report: &'a watch::Sender<NodeReport>,
}

impl NodeWatcher<'_> {
    /// Runs forever.
    pub(super) async fn run(&self) {
        let only = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let mut seen =
            Box::pin(watcher(self.nodes.clone(), only).backoff(ReconnectBackoff::default()));
        let mut last_error = None;
        let mut there = false;
        while let Some(event) = seen.next().await {
            match event {
                // No request was sent yet.
                Ok(Seen::Init) => there = false,
                Ok(event) => {
                    if last_error.take().is_some() {
                        info!("the API server responds again");
                    }
                    self.apply_event(event, &mut there);
                }
                Err(error) => {
                    let error = describe_watch_error(&error);
                    if last_error.as_ref() == Some(&error) {
                        debug!(%error, "still cannot watch the Node");
                    } else {
                        warn!(node = %self.name, %error, "cannot watch the Node; retrying");
                        last_error = Some(error);
                    }
                }
            }
        }
    }

    fn apply_event(&self, event: Seen<Node>, there: &mut bool) {
        match event {
            Seen::Init => {}
            // A list is the current state, even if the server's data was restored from an earlier one.
            Seen::InitApply(node) => {
                *there = true;
                send_if_changed(self.view, Some(Arc::new(observed(node))));
            }
            Seen::Apply(node) => {
                *there = true;
                self.update(node);
            }
            Seen::InitDone if *there => {}
            Seen::InitDone | Seen::Delete(_) => self.mark_deleted(),
        }
        update(self.report, |report| report.is_read = true);
    }

    /// Updates the state, unless it is older than the known one: a watch may lag behind the response to our own write.
    pub(super) fn update(&self, node: Node) {
        let new = observed(node);
        self.view.send_if_modified(|view| {
            let known = view.as_deref();
            if known.is_some_and(|known| is_older(&new, known) || new == *known) {
                return false;
            }
            *view = Some(Arc::new(new));
            true
        });
    }

    fn mark_deleted(&self) {
        if self.view.send_replace(None).is_some() {
            warn!(node = %self.name, "the Node was deleted");
        } else if !self.report.borrow().is_read {
            warn!(node = %self.name, "the Node does not exist yet");
        }
    }
}

/// Returns whether `new` is an earlier version of the same Node. Source: Kubernetes KEP-5504, resource versions of one
/// object can be compared as numbers.
fn is_older(new: &ObservedNode, known: &ObservedNode) -> bool {
    let number = |view: &ObservedNode| view.version.parse::<u128>().ok();
    new.uid == known.uid && number(new).is_some_and(|new| Some(new) < number(known))
}

/// Extracts the relevant fields of `node`.
fn observed(node: Node) -> ObservedNode {
    let meta = node.metadata;
    let mut annotations = meta.annotations.unwrap_or_default();
    annotations.retain(|key, _| key.starts_with(LABEL_PREFIX));
    let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    let status = node.status.unwrap_or_default();
    ObservedNode {
        uid: meta.uid.unwrap_or_default(),
        version: meta.resource_version.unwrap_or_default(),
        labels: meta.labels.unwrap_or_default(),
        annotations,
        taints: taints.into_iter().map(taint).collect(),
        allocatable: extended_resources(status.allocatable.unwrap_or_default()),
        capacity: extended_resources(status.capacity.unwrap_or_default()),
        owners: owners(&meta.managed_fields.unwrap_or_default()),
    }
}

fn taint(taint: ApiTaint) -> Taint {
    Taint {
        key: taint.key,
        value: taint.value,
        effect: taint.effect,
        added: taint.time_added.map(|time| time.0.to_string()),
    }
}

/// Extracts extended resources, which have a prefix and are integers.
fn extended_resources(allocatable: BTreeMap<String, Quantity>) -> BTreeMap<String, u64> {
    let extended = allocatable.into_iter().filter(|(name, _)| name.contains('/'));
    extended.filter_map(|(name, quantity)| Some((name, quantity.0.parse().ok()?))).collect()
}

fn owners(entries: &[ManagedFieldsEntry]) -> FieldManagers {
    let mut owners = FieldManagers::default();
    for entry in entries {
        let Some(fields) = &entry.fields_v1 else {
            continue;
        };
        let manager = manager(entry);
        // A pseudo manager for fields from before server-side apply. Source: Kubernetes, "Server-Side Apply".
        if manager == "before-first-apply" {
            continue;
        }
        let metadata = fields.0.get("f:metadata");
        let within = |name| metadata.and_then(|metadata| metadata.get(name));
        add(&mut owners.labels, within("f:labels"), &manager);
        add(&mut owners.annotations, within("f:annotations"), &manager);
    }
    owners
}

/// Returns the manager of an entry. Only applied fields are ours: with other operations, omitting a field later does
/// not remove it.
fn manager(entry: &ManagedFieldsEntry) -> String {
    let name = entry.manager.clone().unwrap_or_default();
    let applied = entry.operation.as_deref() == Some("Apply");
    if !applied
        && matches!(name.as_str(), FIELD_MANAGER | COMPAT_FIELD_MANAGER | SHARING_FIELD_MANAGER)
    {
        return format!("{name} (update)");
    }
    name
}

fn add(owners: &mut BTreeMap<String, BTreeSet<String>>, fields: Option<&Value>, manager: &str) {
    let Some(fields) = fields.and_then(Value::as_object) else {
        return;
    };
    for key in fields.keys().filter_map(|field| field.strip_prefix("f:")) {
        let all = owners.entry(key.to_owned()).or_default();
        all.insert(manager.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_is_read_with_field_managers() {
        let node = serde_json::json!({
            "metadata": {
                "name": "n", "uid": "u", "resourceVersion": "7",
                "labels": {"octavo.dev/type": "a", "kubernetes.io/os": "linux"},
                "annotations": {"octavo.dev/status": "{}", "other": "x"},
                "managedFields": [
                    {"manager": "octavo-agent", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
                     "fieldsV1": {"f:metadata": {"f:labels": {"f:octavo.dev/type": {}}, "f:annotations": {"f:octavo.dev/status": {}}}}},
                    {"manager": "kubelet", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                     "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:kubernetes.io/os": {}}}}},
                    {"manager": "octavo-agent", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                     "fieldsV1": {"f:metadata": {"f:labels": {"f:octavo.dev/type": {}}}}},
                    {"manager": "kubelet", "operation": "Update", "subresource": "status"}
                ]
            },
            "spec": {"taints": [{"key": "k", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}]},
            "status": {"allocatable": {"cpu": "2", "nvidia.com/gpu": "8", "example.com/odd": "1k"}}
        });
        let view = observed(serde_json::from_value(node).unwrap());
        assert_eq!((view.uid.as_str(), view.version.as_str()), ("u", "7"));
        assert_eq!(view.annotations.len(), 1);
        assert_eq!(view.allocatable, [("nvidia.com/gpu".to_owned(), 8)].into());
        assert_eq!(view.taints[0].added.as_deref(), Some("2026-01-01T00:00:00Z"));
        let owners: Vec<&String> = view.owners.labels["octavo.dev/type"].iter().collect();
        assert_eq!(owners, [FIELD_MANAGER, "octavo-agent (update)"]);
        assert!(view.owners.labels.contains_key("kubernetes.io/os"));
        assert_eq!(view.labels_of(FIELD_MANAGER).len(), 1);
    }

    #[test]
    fn empty_node_is_read() {
        let node = serde_json::from_value(serde_json::json!({"metadata": {}})).unwrap();
        assert_eq!(observed(node), ObservedNode::default());
    }
}
