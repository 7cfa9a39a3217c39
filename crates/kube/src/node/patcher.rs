//! Writes the differences between a Node and its desired state.

use std::collections::BTreeMap;
use std::time::Duration;

use octavo_node::node::write_backoff::WriteBackoff;
use octavo_node::node::{DesiredNode, NodeWrite, View, diff_node};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};

use super::watcher::NodeWatcher;
use super::write;

/// After this many consecutive conflicts, a conflict counts as an error.
const MAX_CONFLICTS: u32 = 3;
/// After this many reverted writes, another writer is assumed.
const MAX_REVERTS: u32 = 3;

/// Writes a Node.
pub(super) struct NodePatcher<'a> {
    watcher: &'a NodeWatcher<'a>,
    began: Instant,
    /// Retry state by the part that is written, so that a refused one does not delay the others.
    paces: BTreeMap<String, WriteBackoff<NodeWrite>>,
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
            paces: BTreeMap::new(),
            errors: BTreeMap::new(),
            logged_generation: None,
        }
    }

    /// Writes differences until the sender of `wanted` is dropped.
    pub(super) async fn run(mut self, mut wanted: watch::Receiver<(u64, DesiredNode)>) {
        let mut seen = self.watcher.view.subscribe();
        loop {
            let view = seen.borrow_and_update().clone();
            let (turn, what) = wanted.borrow_and_update().clone();
            let wait = match view {
                Some(view) => self.reconcile(&view, turn, &what).await,
                None => None,
            };
            tokio::select! {
                changed = wanted.changed() => if changed.is_err() {
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
        view: &View,
        turn: u64,
        wanted: &DesiredNode,
    ) -> Option<Duration> {
        let decision = diff_node(view, wanted);
        let said = wanted.uid.as_ref() == Some(&view.uid) && decision.writes.is_empty();
        self.watcher.report.send_if_modified(|report| {
            let before = report.clone();
            report.applied_generation = said.then_some(turn);
            report.foreign_keys.clone_from(&decision.conflicts);
            *report != before
        });
        if said && self.logged_generation != Some(turn) {
            debug!("nothing to write to the Node");
            self.logged_generation = Some(turn);
        }
        let now = self.began.elapsed();
        let mut soonest = None;
        for write in decision.writes {
            let pace = self.paces.entry(write_target(&write)).or_default();
            if let Some(wait) = pace.wait(now, &write) {
                soonest = Some(soonest.map_or(wait, |known: Duration| known.min(wait)));
                continue;
            }
            self.write(view, write).await;
            return Some(Duration::ZERO);
        }
        soonest
    }

    async fn write(&mut self, view: &View, write: NodeWrite) {
        let done = write::send(self.watcher.nodes, self.watcher.name, view, &write).await;
        let now = self.began.elapsed();
        let slot = write_target(&write);
        let pace = self.paces.entry(slot.clone()).or_default();
        let trouble = match done {
            Ok(node) => {
                info!("the Node was written: {}", describe_write(&write));
                pace.record_write(now, write);
                let fought = pace.reverts() >= MAX_REVERTS;
                self.watcher.update(node);
                fought.then(|| {
                    "somebody undoes what is written to the Node: is there another agent for it?"
                        .to_owned()
                })
            }
            Err(error) => {
                pace.record_failure(now, error.retry_after());
                if error.is_conflict() && pace.failures() < MAX_CONFLICTS {
                    debug!("somebody was faster: {error}");
                    return;
                }
                Some(error.to_string())
            }
        };
        self.set_error(slot, trouble);
    }

    /// Logs an error once and stores it while it lasts.
    fn set_error(&mut self, slot: String, trouble: Option<String>) {
        if self.errors.get(&slot) == trouble.as_ref() {
            return;
        }
        if let Some(trouble) = trouble {
            warn!("{trouble}; it is tried again later");
            self.errors.insert(slot, trouble);
        } else {
            info!("the Node can be written again");
            self.errors.remove(&slot);
        }
        let trouble = self.errors.values().next().cloned();
        self.watcher
            .report
            .send_modify(|report| report.trouble = trouble);
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
        NodeWrite::Apply {
            manager,
            labels,
            annotations,
            ..
        } => format!(
            "{} labels and {} annotations as {manager}",
            labels.len(),
            annotations.len()
        ),
        NodeWrite::Taints(taints) => format!("{} taints", taints.len()),
        NodeWrite::Replace { key, from, to } => format!("{key} from {from} to {to}"),
    }
}
