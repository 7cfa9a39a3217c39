//! Writes the differences between a Node and its desired state.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use octavo_node::node_object::write_backoff::WriteBackoff;
use octavo_node::node_object::{DesiredNode, NodeWrite, ObservedNode, Taint, diff_node};
use octavo_toolkit::desired::{Desired, update};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};

use super::watcher::NodeWatcher;
use crate::client;

/// Field manager for changes of fields that others own.
const UPDATE_MANAGER: &str = "octavo-agent-operands";
/// After this many consecutive conflicts, a conflict counts as an error.
const MAX_CONFLICTS: u32 = 3;
/// After this many reverted writes, another writer is assumed.
const MAX_REVERTS: u32 = 3;

/// Writes a Node.
pub(super) struct NodePatcher<'a> {
    watcher: &'a NodeWatcher<'a>,
    began: Instant,
    /// Retry state by the part that is written, so that a refused one does not delay the others.
    backoffs: BTreeMap<String, WriteBackoff<NodeWrite>>,
    /// Errors by the part that is written.
    errors: BTreeMap<String, String>,
    /// The generation last logged as settled.
    logged_generation: Option<u64>,
}

impl<'a> NodePatcher<'a> {
    /// Creates a writer for the Node that `watcher` watches.
    pub(super) fn new(watcher: &'a NodeWatcher<'a>) -> Self {
        Self {
            watcher,
            began: Instant::now(),
            backoffs: BTreeMap::new(),
            errors: BTreeMap::new(),
            logged_generation: None,
        }
    }

    /// Writes differences until the sender of `desired` is dropped.
    pub(super) async fn run(mut self, mut desired: watch::Receiver<Desired<DesiredNode>>) {
        let mut seen = self.watcher.view.subscribe();
        loop {
            let view = seen.borrow_and_update().clone();
            let desired_node = desired.borrow_and_update().clone();
            let wait = match view {
                Some(view) => {
                    self.reconcile(&view, desired_node.generation, &desired_node.state).await
                }
                None => None,
            };
            tokio::select! {
                changed = desired.changed() => if changed.is_err() {
                    return;
                },
                _ = seen.changed() => {}
                () = sleep(wait.unwrap_or_default()), if wait.is_some() => {}
            }
        }
    }

    /// Performs one write that is permitted now. Returns the delay until the next.
    async fn reconcile(
        &mut self,
        view: &ObservedNode,
        generation: u64,
        desired_node: &DesiredNode,
    ) -> Option<Duration> {
        let decision = diff_node(view, desired_node);
        let is_applied = desired_node.uid.as_ref() == Some(&view.uid) && decision.writes.is_empty();
        update(self.watcher.report, |report| {
            report.applied_generation = is_applied.then_some(generation);
            report.foreign_keys.clone_from(&decision.conflicts);
        });
        if is_applied && self.logged_generation != Some(generation) {
            debug!("the Node is up to date");
            self.logged_generation = Some(generation);
        }
        let now = self.began.elapsed();
        let mut next_write = None;
        for write in decision.writes {
            let backoff = self.backoffs.entry(write_target(&write)).or_default();
            if let Some(wait) = backoff.wait(now, &write) {
                next_write = Some(next_write.map_or(wait, |known: Duration| known.min(wait)));
                continue;
            }
            self.write(view, write).await;
            return Some(Duration::ZERO);
        }
        next_write
    }

    async fn write(&mut self, view: &ObservedNode, write: NodeWrite) {
        let (params, patch) = request(view, &write);
        let NodeWatcher { nodes, name, .. } = self.watcher;
        let done = client::request(nodes.patch(name, &params, &patch)).await;
        let now = self.began.elapsed();
        let target = write_target(&write);
        let backoff = self.backoffs.entry(target.clone()).or_default();
        let error = match done {
            Ok(node) => {
                info!(change = %describe_write(&write), "Node updated");
                backoff.record_write(now, write);
                let is_reverted = backoff.reverts() >= MAX_REVERTS;
                self.watcher.update(node);
                is_reverted.then(|| {
                    "another writer keeps reverting changes to the Node; check for a second agent"
                        .to_owned()
                })
            }
            Err(error) => {
                backoff.record_failure(now, error.retry_after());
                if error.code() == Some(409) && backoff.failures() < MAX_CONFLICTS {
                    debug!(%error, "conflict with another writer of the Node");
                    return;
                }
                Some(format!("cannot update the Node: {error}"))
            }
        };
        self.set_error(target, error);
    }

    /// Logs an error once and stores it while it lasts.
    fn set_error(&mut self, target: String, error: Option<String>) {
        if self.errors.get(&target) == error.as_ref() {
            return;
        }
        if let Some(error) = error {
            warn!(%error, "the Node is not up to date; retrying");
            self.errors.insert(target, error);
        } else {
            info!("updating the Node works again");
            self.errors.remove(&target);
        }
        let error = self.errors.values().next().cloned();
        self.watcher.report.send_modify(|report| report.error = error);
    }
}

fn write_target(write: &NodeWrite) -> String {
    match write {
        NodeWrite::Apply { manager, .. } => (*manager).to_owned(),
        NodeWrite::Taints(_) => "taints".to_owned(),
        NodeWrite::Replace { key, .. } => key.clone(),
    }
}

fn describe_write(write: &NodeWrite) -> String {
    match write {
        NodeWrite::Apply { manager, labels, annotations, .. } => {
            format!("{} labels and {} annotations as {manager}", labels.len(), annotations.len())
        }
        NodeWrite::Taints(taints) => format!("{} taints", taints.len()),
        NodeWrite::Replace { key, from, to } => format!("{key} changed from {from} to {to}"),
    }
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
