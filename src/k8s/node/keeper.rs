//! What watches a Node and writes what differs, and the end of it that others have.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use tokio::sync::watch;

use super::eyes::Eyes;
use super::hands::Hands;
use crate::domain::id::NodeName;
use crate::domain::node::event_queue::EventQueue;
use crate::domain::node::telling::{Change, Subject};
use crate::domain::node::{View, Wanted, Yielded};
use crate::k8s::events::{self, About, OnRefusal, Writer};

/// A Node's follower and writer, to be run.
#[derive(Debug)]
pub struct Keeper {
    nodes: Api<Node>,
    name: String,
    view: watch::Sender<Option<Arc<View>>>,
    wanted: watch::Receiver<(u64, Wanted)>,
    report: watch::Sender<Report>,
    writer: Writer,
    events: events::Receiver<Subject>,
}

/// The other end of a [`Keeper`], which ends when this is dropped.
#[derive(Debug)]
pub struct Link {
    /// The Node; `None` before it was seen and while there is none.
    pub view: watch::Receiver<Option<Arc<View>>>,
    /// What it shall say, and which turn that is.
    wanted: watch::Sender<(u64, Wanted)>,
    /// How that goes.
    pub report: watch::Receiver<Report>,
    events: events::Sender<Subject>,
}

/// How keeping a Node goes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Whether the API server has answered what the Node is, be it that there is none.
    pub asked: bool,
    /// Which turn of what was wanted the Node says, as far as it is ours to say.
    pub settled: Option<u64>,
    /// Keys that others have.
    pub yielded: Vec<Yielded>,
    /// What is wrong.
    pub trouble: Option<String>,
}

impl Link {
    /// Reports an event about the Node, or that unsent ones no longer hold.
    pub fn tell(&self, change: Change) {
        self.events.change(change.subject, change.event);
    }

    /// Waits until the Node says what is wanted, however long that takes.
    pub async fn settled(&self) {
        let turn = self.wanted.borrow().0;
        let settled = |report: &Report| report.settled >= Some(turn);
        let mut report = self.report.clone();
        let _gone = report.wait_for(settled).await;
    }

    /// Why it does not yet, in words for a person.
    pub fn trouble(&self) -> String {
        let report = self.report.borrow();
        let known = report.trouble.clone();
        known.unwrap_or_else(|| {
            let told = match (report.asked, self.view.borrow().is_some()) {
                (true, false) => "there is no such Node",
                (false, _) => "the API server has not answered",
                (true, true) => "it does not take them in time",
            };
            told.to_owned()
        })
    }

    /// Wants something else.
    pub fn want(&self, change: impl FnOnce(&mut Wanted)) {
        self.wanted.send_if_modified(|(turn, wanted)| {
            let before = wanted.clone();
            change(wanted);
            let differs = *wanted != before;
            *turn = turn.saturating_add(u64::from(differs));
            differs
        });
    }
}

impl Keeper {
    /// For the Node `name`; nothing is asked before it runs.
    pub fn new(client: Client, name: &NodeName) -> (Link, Self) {
        let (view, seen) = watch::channel(None);
        let (want, wanted) = watch::channel((0, Wanted::default()));
        let (report, reported) = watch::channel(Report::default());
        let (tell, events) = events::channel(EventQueue::limited());
        let link = Link {
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
            writer: Writer::new(client, name, OnRefusal::Retry),
            events,
        };
        (link, keeper)
    }

    /// Follows and writes until the link is dropped.
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
        let eyes = Eyes {
            nodes: &nodes,
            name: &name,
            view: &view,
            report: &report,
        };
        let hands = Hands::new(&eyes);
        let seen = view.subscribe();
        let about = |_: &Subject| {
            let view = seen.borrow();
            view.as_ref().map(|view| About::Node(view.uid.clone()))
        };
        let mut first = view.subscribe();
        let telling = async {
            // An event needs the Node's UID. The sender lives as long as this, so the wait ends with a Node.
            let is_there = first.wait_for(Option::is_some).await.is_ok();
            if is_there {
                events.send(writer, about).await;
            }
        };
        tokio::select! {
            () = eyes.follow() => {}
            () = hands.keep(wanted) => {}
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
    use serde_json::json;
    use tokio::sync::Notify;
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::domain::node::telling::Event;
    use crate::domain::reason::Reason;

    const LIST: Duration = Duration::from_secs(2);

    /// Lists one Node after a while, reports a change of it later, and notifies of an event, which is never answered.
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
    async fn an_event_that_is_reported_before_the_node_is_read_is_sent_as_soon_as_it_is() {
        let event = Arc::new(Notify::new());
        let sent = Arc::clone(&event);
        let service = tower::service_fn(move |request: Request<Body>| {
            let event = Arc::clone(&event);
            async move { Ok::<_, Infallible>(answer(request, &event).await) }
        });
        let name: NodeName = "node-a".parse().unwrap();
        let (link, keeper) = Keeper::new(Client::new(service, "default"), &name);
        let began = Instant::now();
        let mut seen = link.view.clone();
        link.tell(Change {
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
            // The Node is followed while the event waits for its answer.
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
