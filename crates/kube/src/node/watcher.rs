//! Watches a Node.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::runtime::watcher::{self, watcher};
use kube::runtime::{WatchStreamExt, watcher::Event as Seen};
use octavo_node::node_object::ObservedNode;
use octavo_toolkit::desired::{send_if_changed, update};
use tokio::sync::watch;
use tokio_stream::StreamExt;
use tracing::{debug, info, warn};

use super::{NodeReport, read};
use crate::backoff::ReconnectBackoff;
use crate::client::describe_watch_error;

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
                send_if_changed(self.view, Some(Arc::new(read::view(node))));
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
        let new = read::view(node);
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
