//! The task that watches a Node and writes differences, and its handle.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use octavo_model::id::NodeName;
use octavo_node::node_object::event_deduplicator::{Change, Subject};
use octavo_node::node_object::event_queue::EventQueue;
use octavo_node::node_object::{DesiredNode, ObservedNode};
use octavo_toolkit::desired::{self, TaskHandle, TaskState};
use tokio::sync::watch;

use super::NodeReport;
use super::patcher::NodePatcher;
use super::watcher::NodeWatcher;
use crate::events::{self, EventObject, EventWriter, OnRefusal};

/// Watches and writes a Node; run it as a task.
#[derive(Debug)]
pub struct NodeController {
    nodes: Api<Node>,
    name: String,
    view: watch::Sender<Option<Arc<ObservedNode>>>,
    state: TaskState<DesiredNode, NodeReport>,
    writer: EventWriter,
    events: events::Receiver<Subject>,
}

/// Handle of a [`NodeController`], which ends when the handle is dropped.
#[derive(Debug)]
pub struct NodeHandle {
    /// The Node; `None` before it was read and while it does not exist.
    pub view: watch::Receiver<Option<Arc<ObservedNode>>>,
    /// The desired state, and the progress of reaching it.
    pub task: TaskHandle<DesiredNode, NodeReport>,
    events: events::Sender<Subject>,
}

impl NodeHandle {
    /// Reports an event about the Node, or retracts unsent ones.
    pub fn report_event(&self, change: Change) {
        self.events.change(change.subject, change.event);
    }

    /// Waits until the Node is in the desired state. Has no timeout.
    pub async fn wait_until_applied(&self) {
        self.task
            .wait_until(|report, generation| report.applied_generation >= Some(generation))
            .await;
    }

    /// Returns why the Node is not yet in the desired state, for users.
    pub fn error(&self) -> String {
        let report = self.task.observed.borrow();
        let known = report.error.clone();
        known.unwrap_or_else(|| {
            let explanation = match (report.is_read, self.view.borrow().is_some()) {
                (true, false) => "the Node does not exist",
                (false, _) => "the API server has not responded",
                (true, true) => "the Node was not updated in time",
            };
            explanation.to_owned()
        })
    }
}

impl NodeController {
    /// Creates a controller for the Node `name`. Sends no request before it runs.
    pub fn new(client: Client, name: &NodeName) -> (NodeHandle, Self) {
        let (view, view_receiver) = watch::channel(None);
        let (task, state) = desired::channel();
        let (event_sender, events) = events::channel(EventQueue::limited());
        let handle = NodeHandle { view: view_receiver, task, events: event_sender };
        let controller = Self {
            nodes: Api::all(client.clone()),
            name: name.as_str().to_owned(),
            view,
            state,
            writer: EventWriter::new(client, name, OnRefusal::Retry),
            events,
        };
        (handle, controller)
    }

    /// Runs until the handle is dropped.
    pub async fn run(self) {
        let Self { nodes, name, view, state, writer, events } = self;
        let TaskState { desired, observed } = state;
        let watcher = NodeWatcher { nodes: &nodes, name: &name, view: &view, report: &observed };
        let patcher = NodePatcher::new(&watcher);
        let object = |_: &Subject| {
            let view = view.borrow();
            view.as_ref().map(|view| EventObject::Node(view.uid.clone()))
        };
        let mut node_seen = view.subscribe();
        let send_events = async {
            // An event needs the Node's UID. The sender lives as long as this future, so the wait ends when a Node is
            // seen.
            if node_seen.wait_for(Option::is_some).await.is_ok() {
                events.send(writer, object).await;
            }
        };
        tokio::select! {
            () = watcher.run() => {}
            () = patcher.run(desired) => {}
            () = send_events => {}
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
    use octavo_node::node_object::event_deduplicator::Event;
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
        let (handle, controller) = NodeController::new(Client::new(service, "default"), &name);
        let began = Instant::now();
        let mut seen = handle.view.clone();
        handle.report_event(Change {
            subject: Subject::Layout,
            event: Some(Event { reason: Reason::Blocked, message: "pid 7".to_owned(), unit: None }),
        });
        let test_steps = async {
            sent.notified().await;
            let waited = began.elapsed();
            assert!(waited >= LIST && waited < 2 * LIST, "{waited:?}");
            // The Node is still watched while the event waits for its response.
            let is_new = |view: &Option<Arc<ObservedNode>>| {
                view.as_ref().is_some_and(|one| one.version == "2")
            };
            let is_seen = seen.wait_for(is_new).await.is_ok();
            assert!(is_seen);
        };
        tokio::select! {
            () = controller.run() => panic!("the controller ends before its handle is dropped"),
            () = test_steps => {}
        }
        drop(handle);
    }
}
