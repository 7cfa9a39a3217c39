//! Events, one request each.
//!
//! They are made and never changed, which takes the one permission to create them. What cannot be told for long is dropped: an event
//! from yesterday helps nobody.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event as ApiEvent;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use super::client::{REQUEST, told};
use super::node::patience;
use crate::domain::id::NodeName;
use crate::domain::node::telling::Event;
use crate::domain::sharing::guard::PodRef;

/// Namespace of events about what has none. Source: Kubernetes, `client-go/tools/record`.
const DEFAULT: &str = "default";
/// Attempts to tell one event, with ever longer waits between.
const ATTEMPTS: u32 = 6;
/// Events of pods that wait to be told; more are dropped.
const QUEUE: usize = 64;

/// What an event is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum About {
    /// This machine's Node, by its UID.
    Node(String),
    /// A pod of it.
    Pod(PodRef),
}

/// Tells events of a machine.
pub(super) struct Writer {
    client: Client,
    node: String,
    refused: bool,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut told = f.debug_struct("Writer");
        told.field("node", &self.node).finish_non_exhaustive()
    }
}

impl Writer {
    pub(super) fn new(client: Client, node: &NodeName) -> Self {
        Self {
            client,
            node: node.as_str().to_owned(),
            refused: false,
        }
    }

    /// Tells it, or gives up.
    pub(super) async fn tell(&mut self, about: &About, event: &Event) {
        let Some(body) = body(&self.node, about, event) else {
            return;
        };
        let events: Api<ApiEvent> = Api::namespaced(self.client.clone(), about.namespace());
        for attempt in 0..ATTEMPTS {
            let params = PostParams::default();
            let error = match timeout(REQUEST, events.create(&params, &body)).await {
                Ok(Ok(_)) => {
                    self.refused = false;
                    return;
                }
                Ok(Err(error)) if is_final(&error) => return self.give_up(&told(&error)),
                Ok(Err(error)) => error,
                Err(_late) => kube::Error::Service("no answer came in time".into()),
            };
            debug!("an event could not be told yet: {}", told(&error));
            let wait = Duration::from_secs(1 << attempt);
            sleep(wait.max(patience(&error).unwrap_or_default())).await;
        }
        debug!("an event is too old to be told: {}", event.reason.word());
    }

    fn give_up(&mut self, why: &str) {
        if !self.refused {
            warn!("events cannot be told: {why}");
        }
        self.refused = true;
    }
}

impl About {
    fn namespace(&self) -> &str {
        match self {
            Self::Node(_) => DEFAULT,
            Self::Pod(pod) => &pod.namespace,
        }
    }
}

/// Whether the same request would be refused again.
fn is_final(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if (400..500).contains(&status.code) && !matches!(status.code, 401 | 429))
}

fn body(node: &str, about: &About, event: &Event) -> Option<ApiEvent> {
    let now = Timestamp::now();
    let (name, object) = match about {
        About::Node(uid) => (
            node,
            json!({"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}),
        ),
        About::Pod(pod) => (
            pod.name.as_str(),
            json!({"apiVersion": "v1", "kind": "Pod", "name": pod.name, "namespace": pod.namespace, "uid": pod.uid}),
        ),
    };
    let body = json!({
        // Unique, and no longer than a name may be.
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

/// To the second, as these fields have it.
fn whole(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Tells pods of this machine what is so of them. Cheap to clone.
#[derive(Debug, Clone)]
pub struct PodEvents(mpsc::Sender<(PodRef, Event)>);

/// What tells it, to be run.
#[derive(Debug)]
pub struct Herald {
    writer: Writer,
    queue: mpsc::Receiver<(PodRef, Event)>,
}

impl PodEvents {
    /// Where events are given to, and what tells them.
    pub fn new(client: Client, node: &NodeName) -> (Self, Herald) {
        let (tell, queue) = mpsc::channel(QUEUE);
        let writer = Writer::new(client, node);
        (Self(tell), Herald { writer, queue })
    }

    /// Tells an event of a pod, unless too many wait already.
    pub fn tell(&self, pod: &PodRef, event: &Event) {
        if self.0.try_send((pod.clone(), event.clone())).is_err() {
            debug!("too many events wait already: {}", event.reason.word());
        }
    }
}

impl Herald {
    /// Tells what comes, one after the other, until nothing more can come.
    pub async fn run(mut self) {
        while let Some((pod, event)) = self.queue.recv().await {
            self.writer.tell(&About::Pod(pod), &event).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::reason::Reason;

    #[test]
    fn an_event_names_what_it_is_about_and_who_says_it() {
        let event = Event {
            reason: Reason::Blocked,
            message: "pid 7".to_owned(),
        };
        let of_node = body("n", &About::Node("u".to_owned()), &event).unwrap();
        assert_eq!(of_node.involved_object.uid.as_deref(), Some("u"));
        assert_eq!(of_node.type_.as_deref(), Some("Warning"));
        assert_eq!(of_node.reason.as_deref(), Some("LayoutBlocked"));
        assert_eq!(of_node.metadata.generate_name.as_deref(), Some("n."));
        let event = Event {
            reason: Reason::MemoryOverShare,
            message: "uses".to_owned(),
        };
        let pod = PodRef {
            namespace: "team-a".to_owned(),
            name: "train-0".to_owned(),
            uid: "v".to_owned(),
        };
        let of_pod = body("n", &About::Pod(pod), &event).unwrap();
        assert_eq!(of_pod.metadata.namespace.as_deref(), Some("team-a"));
        assert_eq!(of_pod.metadata.generate_name.as_deref(), Some("train-0."));
        assert_eq!(of_pod.involved_object.kind.as_deref(), Some("Pod"));
        assert_eq!(of_pod.involved_object.uid.as_deref(), Some("v"));
        assert_eq!(of_pod.reason.as_deref(), Some("MemoryOverShare"));
        let source = of_pod.source.unwrap();
        assert_eq!(source.host.as_deref(), Some("n"));
    }

    #[test]
    fn what_is_refused_for_good_is_told_from_what_may_pass() {
        let of = |code| {
            let status = kube::core::Status::failure("m", "r").with_code(code);
            is_final(&kube::Error::Api(Box::new(status)))
        };
        assert!(of(403) && of(404) && of(422));
        assert!(!of(401) && !of(429) && !of(500) && !of(503));
    }
}
