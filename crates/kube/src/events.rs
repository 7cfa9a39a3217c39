//! Creates events, with one request each.
//!
//! Events are created and never modified, so `create` is the only permission needed. `kube::runtime::events::Recorder`
//! also needs `patch`, and both for the group `events.k8s.io`. An event waits in an
//! [`EventQueue`] until the API server accepts it. While the API server is unavailable or refuses events, only the
//! latest event of each subject is retained.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event as ApiEvent;
use kube::api::PostParams;
use kube::{Api, Client};
use octavo_model::id::NodeName;
use octavo_model::reason::Reason;
use octavo_node::node_object::drain::PodId;
use octavo_node::node_object::event_deduplicator::Event;
use octavo_node::node_object::event_queue::{EventQueue, QueuedEvent};
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, warn};

use crate::backoff::{MAX_DELAY, ReconnectBackoff};
use crate::client::{REQUEST_TIMEOUT, describe_error, requested_delay};

/// Namespace of events about cluster-scoped objects. Source: Kubernetes, `client-go/tools/record`.
const DEFAULT_NAMESPACE: &str = "default";
/// Maximum delay before the next attempt if the API server refuses events, which may take an administrator to fix.
const MAX_REFUSED_WAIT: Duration = Duration::from_mins(5);
/// Pod events are dropped after this time. Source: Kubernetes, kube-apiserver, default of `--event-ttl`.
const MAX_POD_EVENT_AGE: Duration = Duration::from_hours(1);

/// The object of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EventObject {
    /// This machine's Node, by UID.
    Node(String),
    /// A pod on this machine.
    Pod(PodId),
}

/// Creates events about a machine and its pods.
pub(super) struct EventWriter {
    client: Client,
    node: String,
    backoff: ReconnectBackoff,
    on_refusal: OnRefusal,
    refused: bool,
}

/// Handling of an event that the API server refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnRefusal {
    /// Retry: its object continues to exist.
    Retry,
    /// Drop: its namespace may be deleted or terminating.
    Drop,
}

impl fmt::Debug for EventWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("EventWriter");
        debug.field("node", &self.node).finish_non_exhaustive()
    }
}

impl EventWriter {
    pub(super) fn new(client: Client, node: &NodeName, on_refusal: OnRefusal) -> Self {
        Self {
            client,
            node: node.as_str().to_owned(),
            backoff: ReconnectBackoff::default(),
            on_refusal,
            refused: false,
        }
    }

    /// Creates the event. The error is the delay before the next attempt. An invalid event is dropped.
    async fn create(&mut self, about: &EventObject, event: &Event) -> Result<(), Duration> {
        let Some(body) = body(&self.node, about, event) else {
            return Ok(());
        };
        let events: Api<ApiEvent> = Api::namespaced(self.client.clone(), about.namespace());
        let params = PostParams::default();
        let error = match timeout(REQUEST_TIMEOUT, events.create(&params, &body)).await {
            Ok(Ok(_)) => {
                self.refused = false;
                self.backoff = ReconnectBackoff::default();
                return Ok(());
            }
            Ok(Err(error)) => error,
            Err(_late) => kube::Error::Service("the request timed out".into()),
        };
        let failure = Failure::of(&error);
        match failure {
            Failure::Invalid => {
                warn!(event = %event.reason.as_str(), error = %describe_error(&error), "invalid event dropped");
                return Ok(());
            }
            Failure::Refused if !self.refused => {
                self.refused = true;
                warn!(error = %describe_error(&error), "the API server rejects events");
            }
            Failure::Refused | Failure::Unavailable => {
                debug!(error = %describe_error(&error), "event not sent");
            }
        }
        if failure == Failure::Refused && self.on_refusal == OnRefusal::Drop {
            return Ok(());
        }
        let longest = match failure {
            Failure::Refused => MAX_REFUSED_WAIT,
            Failure::Unavailable | Failure::Invalid => MAX_DELAY,
        };
        let wait = self.backoff.next_delay(longest);
        Err(wait.max(requested_delay(&error).unwrap_or_default()))
    }
}

/// The queue of unsent events.
#[derive(Debug)]
struct Shared<S> {
    queue: Mutex<Option<EventQueue<S>>>,
    changed: Notify,
    began: Instant,
}

/// Adds events to a queue. Dropping it closes the queue.
#[derive(Debug)]
pub(super) struct Sender<S>(Arc<Shared<S>>);

/// Sends the events of a queue.
#[derive(Debug)]
pub(super) struct Receiver<S>(Arc<Shared<S>>);

/// Creates both ends of a queue.
pub(super) fn channel<S>(queue: EventQueue<S>) -> (Sender<S>, Receiver<S>) {
    let shared = Arc::new(Shared {
        queue: Mutex::new(Some(queue)),
        changed: Notify::new(),
        began: Instant::now(),
    });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

impl<S> Shared<S> {
    /// The queue is `None` after it was closed.
    fn lock(&self) -> MutexGuard<'_, Option<EventQueue<S>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Clone + Ord> Sender<S> {
    /// Adds an event. Without one, drops the unsent events of the subject.
    pub(super) fn change(&self, subject: S, event: Option<Event>) {
        let now = self.0.began.elapsed();
        if let Some(queue) = &mut *self.0.lock() {
            match event {
                Some(event) => queue.push(now, subject, event),
                None => queue.retract(&subject),
            }
        }
        self.0.changed.notify_one();
    }
}

impl<S> Drop for Sender<S> {
    fn drop(&mut self) {
        *self.0.lock() = None;
        self.0.changed.notify_one();
    }
}

impl<S: Clone + Ord> Receiver<S> {
    /// Sends events until the sender is dropped. An event waits while its object does not exist.
    pub(super) async fn send(
        self,
        mut writer: EventWriter,
        about: impl Fn(&S) -> Option<EventObject>,
    ) {
        while let Some(next) = self.next().await {
            let result = match about(&next.subject) {
                Some(about) => writer.create(&about, &next.event).await,
                None => Err(MAX_DELAY),
            };
            let now = self.0.began.elapsed();
            if let Some(queue) = &mut *self.0.lock() {
                match result {
                    Ok(()) => queue.accepted(now, &next),
                    Err(_) => queue.not_accepted(next),
                }
            }
            if let Err(wait) = result {
                sleep(wait).await;
            }
        }
    }

    /// Waits for the next event; `None` after the queue was closed.
    async fn next(&self) -> Option<QueuedEvent<S>> {
        loop {
            let wait = {
                let now = self.0.began.elapsed();
                let mut queue = self.0.lock();
                let queue = queue.as_mut()?;
                if let Some(next) = queue.next(now) {
                    return Some(next);
                }
                queue.wait(now)
            };
            tokio::select! {
                () = self.0.changed.notified() => {}
                () = sleep(wait.unwrap_or_default()), if wait.is_some() => {}
            }
        }
    }
}

impl EventObject {
    fn namespace(&self) -> &str {
        match self {
            Self::Node(_) => DEFAULT_NAMESPACE,
            Self::Pod(pod) => &pod.namespace,
        }
    }
}

/// Reason why an event was not created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    /// The API server does not respond or cannot serve the request now.
    Unavailable,
    /// The API server refuses the request, which a configuration change can fix.
    Refused,
    /// The API server will never accept this event.
    Invalid,
}

impl Failure {
    fn of(error: &kube::Error) -> Self {
        let kube::Error::Api(status) = error else {
            return Self::Unavailable;
        };
        match status.code {
            400 | 413 | 422 => Self::Invalid,
            401 | 409 | 429 => Self::Unavailable,
            400..500 => Self::Refused,
            _ => Self::Unavailable,
        }
    }
}

fn body(node: &str, about: &EventObject, event: &Event) -> Option<ApiEvent> {
    let now = Timestamp::now();
    let (name, object) = match about {
        EventObject::Node(uid) => {
            (node, json!({"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}))
        }
        EventObject::Pod(pod) => (
            pod.name.as_str(),
            json!({"apiVersion": "v1", "kind": "Pod", "name": pod.name, "namespace": pod.namespace, "uid": pod.uid}),
        ),
    };
    let body = json!({
        // Unique and within the length limit of names.
        "metadata": {"generateName": format!("{}.", name.get(..200).unwrap_or(name)), "namespace": about.namespace()},
        "involvedObject": object,
        "type": event.reason.kind().as_str(),
        "reason": event.reason.event()?,
        "message": event.message,
        "source": {"component": "octavo-agent", "host": node},
        "reportingComponent": "octavo.dev/agent",
        "reportingInstance": node,
        "firstTimestamp": whole(now),
        "lastTimestamp": whole(now),
        "count": 1,
    });
    serde_json::from_value(body).ok()
}

/// Formats a time in seconds, as these fields require.
fn whole(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The subject of a pod event. A later event about the same fact replaces an earlier one.
type PodSubject = (PodId, Reason);

/// Reports events about pods of this machine. Cheap to clone.
#[derive(Debug, Clone)]
pub struct PodEventsHandle(Arc<Sender<PodSubject>>);

/// Sends pod events; run it as a task.
#[derive(Debug)]
pub struct PodEventRecorder {
    writer: EventWriter,
    queue: Receiver<PodSubject>,
}

impl PodEventsHandle {
    /// Creates a handle to report events and the task that sends them.
    pub fn new(client: Client, node: &NodeName) -> (Self, PodEventRecorder) {
        let (sender, queue) = channel(EventQueue::unlimited(MAX_POD_EVENT_AGE));
        let writer = EventWriter::new(client, node, OnRefusal::Drop);
        (Self(Arc::new(sender)), PodEventRecorder { writer, queue })
    }

    /// Reports an event about a pod.
    pub fn report(&self, pod: &PodId, event: &Event) {
        // Whether a container exceeds its memory share is one fact.
        let is_share = event.reason == Reason::MemoryWithinShare;
        let fact = if is_share { Reason::MemoryOverShare } else { event.reason };
        self.0.change((pod.clone(), fact), Some(event.clone()));
    }
}

impl PodEventRecorder {
    /// Sends events until all handles are dropped.
    pub async fn run(self) {
        let Self { writer, queue } = self;
        let about = |(pod, _): &PodSubject| Some(EventObject::Pod(pod.clone()));
        queue.send(writer, about).await;
    }
}

#[cfg(test)]
mod tests {
    use octavo_model::reason::Reason;

    use super::*;

    #[test]
    fn event_names_object_and_source() {
        let event = Event { reason: Reason::Blocked, message: "pid 7".to_owned(), unit: None };
        let of_node = body("n", &EventObject::Node("u".to_owned()), &event).unwrap();
        assert_eq!(of_node.involved_object.uid.as_deref(), Some("u"));
        assert_eq!(of_node.type_.as_deref(), Some("Warning"));
        assert_eq!(of_node.reason.as_deref(), Some("LayoutBlocked"));
        assert_eq!(of_node.metadata.generate_name.as_deref(), Some("n."));
        let event =
            Event { reason: Reason::MemoryOverShare, message: "uses".to_owned(), unit: None };
        let pod = PodId {
            namespace: "team-a".to_owned(),
            name: "train-0".to_owned(),
            uid: "v".to_owned(),
        };
        let of_pod = body("n", &EventObject::Pod(pod), &event).unwrap();
        assert_eq!(of_pod.metadata.namespace.as_deref(), Some("team-a"));
        assert_eq!(of_pod.metadata.generate_name.as_deref(), Some("train-0."));
        assert_eq!(of_pod.involved_object.kind.as_deref(), Some("Pod"));
        assert_eq!(of_pod.involved_object.uid.as_deref(), Some("v"));
        assert_eq!(of_pod.reason.as_deref(), Some("MemoryOverShare"));
        let source = of_pod.source.unwrap();
        assert_eq!(source.host.as_deref(), Some("n"));
    }

    #[test]
    fn invalid_event_is_dropped_and_refused_one_is_retried() {
        let of = |code| {
            let status = kube::core::Status::failure("m", "r").with_code(code);
            Failure::of(&kube::Error::Api(Box::new(status)))
        };
        for code in [403, 404, 405] {
            assert_eq!(of(code), Failure::Refused);
        }
        for code in [401, 409, 429, 500, 503] {
            assert_eq!(of(code), Failure::Unavailable);
        }
        for code in [400, 413, 422] {
            assert_eq!(of(code), Failure::Invalid);
        }
        let late = kube::Error::Service("no answer".into());
        assert_eq!(Failure::of(&late), Failure::Unavailable);
    }
}
