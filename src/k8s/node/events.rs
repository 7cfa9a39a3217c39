//! Events of the Node, one request each.
//!
//! They are made and never changed, which takes the one permission to create them. What cannot be told for long is dropped: the
//! Node's annotation says where it stands, and an event from yesterday helps nobody.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event as ApiEvent;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use super::write::patience;
use crate::domain::node::telling::Event;
use crate::k8s::client::{REQUEST, told};

/// Namespace of events about what has none. Source: Kubernetes, `client-go/tools/record`.
pub(super) const NAMESPACE: &str = "default";
/// Attempts to tell one event, with ever longer waits between.
const ATTEMPTS: u32 = 6;

/// Tells events about a Node.
#[derive(Debug)]
pub(super) struct Teller {
    pub(super) events: Api<ApiEvent>,
    pub(super) node: String,
    pub(super) refused: bool,
}

impl Teller {
    /// Tells what comes, one after the other, until nothing more can come.
    pub(super) async fn run(mut self, mut queue: mpsc::Receiver<(String, Event)>) {
        while let Some((uid, event)) = queue.recv().await {
            self.tell(&uid, &event).await;
        }
    }

    async fn tell(&mut self, uid: &str, event: &Event) {
        let Some(body) = body(&self.node, uid, event) else {
            return;
        };
        for attempt in 0..ATTEMPTS {
            let params = PostParams::default();
            let error = match timeout(REQUEST, self.events.create(&params, &body)).await {
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

/// Whether the same request would be refused again.
fn is_final(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if (400..500).contains(&status.code) && !matches!(status.code, 401 | 429))
}

fn body(node: &str, uid: &str, event: &Event) -> Option<ApiEvent> {
    let now = Timestamp::now();
    let body = json!({
        // Unique, and no longer than a name may be.
        "metadata": {"generateName": format!("{}.", node.get(..200).unwrap_or(node)), "namespace": NAMESPACE},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid},
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::reason::Reason;

    #[test]
    fn an_event_names_the_node_and_who_says_it() {
        let event = Event {
            reason: Reason::Blocked,
            message: "pid 7".to_owned(),
        };
        let body = body("n", "u", &event).unwrap();
        assert_eq!(body.involved_object.uid.as_deref(), Some("u"));
        assert_eq!(body.type_.as_deref(), Some("Warning"));
        assert_eq!(body.reason.as_deref(), Some("LayoutBlocked"));
        assert_eq!(body.metadata.generate_name.as_deref(), Some("n."));
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
