//! The task that watches a Node and writes differences, and its handle.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use octavo_model::id::NodeName;
use octavo_node::node::event_deduplicator::{Change, Subject};
use octavo_node::node::event_queue::EventQueue;
use octavo_node::node::{DesiredNode, View};
use tokio::sync::watch;

use super::patcher::NodePatcher;
use super::report::NodeReport;
use super::watcher::NodeWatcher;
use crate::events::{self, EventObject, EventWriter, OnRefusal};

/// Watches and writes a Node; run it as a task.
#[derive(Debug)]
pub struct NodeController {
    nodes: Api<Node>,
    name: String,
    view: watch::Sender<Option<Arc<View>>>,
    wanted: watch::Receiver<(u64, DesiredNode)>,
    report: watch::Sender<NodeReport>,
    writer: EventWriter,
    events: events::Receiver<Subject>,
}

/// Handle of a [`NodeController`], which ends when the handle is dropped.
#[derive(Debug)]
pub struct NodeHandle {
    /// The Node; `None` before it was read and while it does not exist.
    pub view: watch::Receiver<Option<Arc<View>>>,
    /// The desired state and its generation.
    wanted: watch::Sender<(u64, DesiredNode)>,
    /// Progress and errors.
    pub report: watch::Receiver<NodeReport>,
    events: events::Sender<Subject>,
}

impl NodeHandle {
    /// Reports an event about the Node, or retracts unsent ones.
    pub fn report_event(&self, change: Change) {
        self.events.change(change.subject, change.event);
    }

    /// Waits until the Node is in the desired state. Has no timeout.
    pub async fn wait_until_applied(&self) {
        let turn = self.wanted.borrow().0;
        let settled = |report: &NodeReport| report.applied_generation >= Some(turn);
        let mut report = self.report.clone();
        let _gone = report.wait_for(settled).await;
    }

    /// Returns why the Node is not yet in the desired state, for users.
    pub fn trouble(&self) -> String {
        let report = self.report.borrow();
        let known = report.trouble.clone();
        known.unwrap_or_else(|| {
            let told = match (report.is_read, self.view.borrow().is_some()) {
                (true, false) => "there is no such Node",
                (false, _) => "the API server has not answered",
                (true, true) => "it does not take them in time",
            };
            told.to_owned()
        })
    }

    /// Changes the desired state.
    pub fn update_desired(&self, change: impl FnOnce(&mut DesiredNode)) {
        self.wanted.send_if_modified(|(turn, wanted)| {
            let before = wanted.clone();
            change(wanted);
            let differs = *wanted != before;
            *turn = turn.saturating_add(u64::from(differs));
            differs
        });
    }
}

impl NodeController {
    /// Creates a controller for the Node `name`. Sends no request before it runs.
    pub fn new(client: Client, name: &NodeName) -> (NodeHandle, Self) {
        let (view, seen) = watch::channel(None);
        let (want, wanted) = watch::channel((0, DesiredNode::default()));
        let (report, reported) = watch::channel(NodeReport::default());
        let (tell, events) = events::channel(EventQueue::limited());
        let link = NodeHandle {
            view: seen,
            wanted: want,
            report: reported,
            events: tell,
        };
        let keeper = Self {
            nodes: Api::all(client.clone()),
            name: name.as_str().to_owned(),
            view,
            wanted,
            report,
            writer: EventWriter::new(client, name, OnRefusal::Retry),
            events,
        };
        (link, keeper)
    }

    /// Runs until the handle is dropped.
    pub async fn run(self) {
        let Self {
            nodes,
            name,
            view,
            wanted,
            report,
            writer,
            events,
        } = self;
        let eyes = NodeWatcher {
            nodes: &nodes,
            name: &name,
            view: &view,
            report: &report,
        };
        let hands = NodePatcher::new(&eyes);
        let seen = view.subscribe();
        let about = |_: &Subject| {
            let view = seen.borrow();
            view.as_ref()
                .map(|view| EventObject::Node(view.uid.clone()))
        };
        let mut first = view.subscribe();
        let telling = async {
            // An event needs the Node's UID. The sender lives as long as this future, so the wait ends when a Node is
            // seen.
            let is_there = first.wait_for(Option::is_some).await.is_ok();
            if is_there {
                events.send(writer, about).await;
            }
        };
        tokio::select! {
            () = eyes.run() => {}
            () = hands.run(wanted) => {}
            () = telling => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::pending;
    use std::time::Duration;

    use hyper::{Method, Request, Response, StatusCode};
    use kube::client::Body;
    use octavo_model::reason::Reason;
    use octavo_node::node::event_deduplicator::Event;
    use serde_json::json;
    use tokio::sync::Notify;
    use tokio::time::{Instant, sleep};

    use super::*;

    const LIST: Duration = Duration::from_secs(2);

    /// Lists one Node after a delay, reports a change of it later, and signals an event, which never gets a response.
    async fn answer(request: Request<Body>, event: &Notify) -> Response<Body> {
        let is_watch = request.uri().query().unwrap_or("").contains("watch=true");
        if *request.method() == Method::POST {
            event.notify_one();
        }
        if *request.method() != Method::GET {
            pending::<()>().await;
        }
        sleep(LIST).await;
        let node = |version: &str| {
            let metadata = json!({"name": "node-a", "uid": "u", "resourceVersion": version});
            json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata})
        };
        let text = if is_watch {
            format!("{}\n", json!({"type": "MODIFIED", "object": node("2")}))
        } else {
            let metadata = json!({"resourceVersion": "1"});
            json!({"apiVersion": "v1", "kind": "NodeList", "metadata": metadata, "items": [node("1")]}).to_string()
        };
        let response = Response::builder().status(StatusCode::OK);
        let body = Body::from(text.into_bytes());
        response.body(body).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn event_reported_before_node_is_read_is_sent_later() {
        let event = Arc::new(Notify::new());
        let sent = Arc::clone(&event);
        let service = tower::service_fn(move |request: Request<Body>| {
            let event = Arc::clone(&event);
            async move { Ok::<_, Infallible>(answer(request, &event).await) }
        });
        let name: NodeName = "node-a".parse().unwrap();
        let (link, keeper) = NodeController::new(Client::new(service, "default"), &name);
        let began = Instant::now();
        let mut seen = link.view.clone();
        link.report_event(Change {
            subject: Subject::Layout,
            event: Some(Event {
                reason: Reason::Blocked,
                message: "pid 7".to_owned(),
                unit: None,
            }),
        });
        let story = async {
            sent.notified().await;
            let waited = began.elapsed();
            assert!(waited >= LIST && waited < 2 * LIST, "{waited:?}");
            // The Node is still watched while the event waits for its response.
            let is_new =
                |view: &Option<Arc<View>>| view.as_ref().is_some_and(|one| one.version == "2");
            let is_seen = seen.wait_for(is_new).await.is_ok();
            assert!(is_seen);
        };
        tokio::select! {
            () = keeper.run() => panic!("the link is not dropped"),
            () = story => {}
        }
        drop(link);
    }
}
