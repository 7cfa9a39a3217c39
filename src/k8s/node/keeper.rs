//! Watches a Node and writes what differs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher::{self, watcher};
use kube::runtime::{WatchStreamExt, watcher::Event as Seen};
use kube::{Api, Client};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};
use tokio_stream::StreamExt;
use tracing::{debug, info, warn};

use super::events::{NAMESPACE, Teller};
use super::patience::Patience;
use super::read;
use super::write;
use crate::domain::id::NodeName;
use crate::domain::node::pace::Pace;
use crate::domain::node::telling::Event;
use crate::domain::node::{View, Wanted, Write, Yielded, decide};
use crate::k8s::client::told;

/// Events that wait to be told; more are dropped.
const QUEUE: usize = 64;
/// Who is always faster is no race.
const PERSISTS: u32 = 3;
/// Undone so often, what we write is fought over.
const FOUGHT: u32 = 3;

/// A Node's follower and writer, to be run.
#[derive(Debug)]
pub struct Keeper {
    nodes: Api<Node>,
    name: String,
    view: watch::Sender<Option<Arc<View>>>,
    wanted: watch::Receiver<(u64, Wanted)>,
    report: watch::Sender<Report>,
    teller: Teller,
    events: mpsc::Receiver<(String, Event)>,
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
    events: mpsc::Sender<(String, Event)>,
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
    /// Tells an event about the Node, where there is one and the queue is not full.
    pub fn tell(&self, event: Event) {
        let uid = self.view.borrow().as_ref().map(|view| view.uid.clone());
        if let Some(uid) = uid
            && self.events.try_send((uid, event)).is_err()
        {
            debug!("an event is dropped: too many wait");
        }
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
        let (tell, events) = mpsc::channel(QUEUE);
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
            teller: Teller {
                events: Api::namespaced(client, NAMESPACE),
                node: name.as_str().to_owned(),
                refused: false,
            },
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
            teller,
            events,
        } = self;
        let eyes = Eyes {
            nodes: &nodes,
            name: &name,
            view: &view,
            report: &report,
        };
        let hands = Hands {
            eyes: &eyes,
            began: Instant::now(),
            paces: BTreeMap::new(),
            troubles: BTreeMap::new(),
            settled: None,
        };
        tokio::select! {
            () = eyes.follow() => {}
            () = hands.keep(wanted) => {}
            () = teller.run(events) => {}
        }
    }
}

/// What is seen of a Node.
struct Eyes<'a> {
    nodes: &'a Api<Node>,
    name: &'a str,
    view: &'a watch::Sender<Option<Arc<View>>>,
    report: &'a watch::Sender<Report>,
}

impl Eyes<'_> {
    async fn follow(&self) {
        let only = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let mut seen = Box::pin(watcher(self.nodes.clone(), only).backoff(Patience::default()));
        let mut trouble = None;
        let mut there = false;
        while let Some(event) = seen.next().await {
            match event {
                // Nothing was asked yet: it is about to be.
                Ok(Seen::Init) => there = false,
                Ok(event) => {
                    if trouble.take().is_some() {
                        info!("the API server answers again");
                    }
                    self.take(event, &mut there);
                }
                Err(error) => {
                    let error = told_of_watch(&error);
                    if trouble.as_ref() == Some(&error) {
                        debug!("the Node still cannot be watched: {error}");
                    } else {
                        warn!(
                            "the Node {} cannot be watched: {error}; it is tried again",
                            self.name
                        );
                        trouble = Some(error);
                    }
                }
            }
        }
    }

    fn take(&self, event: Seen<Node>, there: &mut bool) {
        match event {
            Seen::Init => {}
            // What is listed is what there is, also after the server's data went back to an earlier state.
            Seen::InitApply(node) => {
                *there = true;
                let new = Arc::new(read::view(node));
                self.view.send_if_modified(|view| {
                    let differs = view.as_ref() != Some(&new);
                    *view = Some(new);
                    differs
                });
            }
            Seen::Apply(node) => {
                *there = true;
                self.see(node);
            }
            Seen::InitDone if *there => {}
            Seen::InitDone | Seen::Delete(_) => self.gone(),
        }
        self.report
            .send_if_modified(|report| !std::mem::replace(&mut report.asked, true));
    }

    /// A watch may be behind the answer to our own write: what is older than what was seen is not looked at.
    fn see(&self, node: Node) {
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

    fn gone(&self) {
        if self.view.send_replace(None).is_some() {
            warn!("there is no Node {} any more", self.name);
        } else if !self.report.borrow().asked {
            warn!("there is no Node {} yet", self.name);
        }
    }
}

/// Whether `new` is of an earlier version of the same Node. Source: Kubernetes KEP-5504, versions of one object can be compared
/// as numbers.
fn is_older(new: &View, known: &View) -> bool {
    let number = |view: &View| view.version.parse::<u128>().ok();
    new.uid == known.uid && number(new).is_some_and(|new| Some(new) < number(known))
}

/// What writes a Node.
struct Hands<'a> {
    eyes: &'a Eyes<'a>,
    began: Instant,
    /// By what is written: one that is refused holds up no other.
    paces: BTreeMap<String, Pace<Write>>,
    /// What is wrong, by what is written.
    troubles: BTreeMap<String, String>,
    /// The last turn that was found said.
    settled: Option<u64>,
}

impl Hands<'_> {
    async fn keep(mut self, mut wanted: watch::Receiver<(u64, Wanted)>) {
        let mut seen = self.eyes.view.subscribe();
        loop {
            let view = seen.borrow_and_update().clone();
            let (turn, what) = wanted.borrow_and_update().clone();
            let wait = match view {
                Some(view) => self.turn(&view, turn, &what).await,
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

    /// Writes one thing, if one may be written now; says when to come again.
    async fn turn(&mut self, view: &View, turn: u64, wanted: &Wanted) -> Option<Duration> {
        let decision = decide(view, wanted);
        let said = wanted.uid.as_ref() == Some(&view.uid) && decision.writes.is_empty();
        self.eyes.report.send_if_modified(|report| {
            let before = report.clone();
            report.settled = said.then_some(turn);
            report.yielded.clone_from(&decision.yielded);
            *report != before
        });
        if said && self.settled != Some(turn) {
            debug!("nothing to write to the Node");
            self.settled = Some(turn);
        }
        let now = self.began.elapsed();
        let mut soonest = None;
        for write in decision.writes {
            let pace = self.paces.entry(slot(&write)).or_default();
            if let Some(wait) = pace.wait(now, &write) {
                soonest = Some(soonest.map_or(wait, |known: Duration| known.min(wait)));
                continue;
            }
            self.write(view, write).await;
            return Some(Duration::ZERO);
        }
        soonest
    }

    async fn write(&mut self, view: &View, write: Write) {
        let done = write::perform(self.eyes.nodes, self.eyes.name, view, &write).await;
        let now = self.began.elapsed();
        let slot = slot(&write);
        let pace = self.paces.entry(slot.clone()).or_default();
        let trouble = match done {
            Ok(node) => {
                info!("the Node was written: {}", words(&write));
                pace.written(now, write);
                let fought = pace.undone() >= FOUGHT;
                self.eyes.see(node);
                fought.then(|| {
                    "somebody undoes what is written to the Node: is there another agent for it?"
                        .to_owned()
                })
            }
            Err(error) => {
                pace.failed(now, error.patience());
                if error.is_race() && pace.failures() < PERSISTS {
                    debug!("somebody was faster: {error}");
                    return;
                }
                Some(error.to_string())
            }
        };
        self.complain(slot, trouble);
    }

    /// Says it once, and keeps it said for as long as it is so.
    fn complain(&mut self, slot: String, trouble: Option<String>) {
        if self.troubles.get(&slot) == trouble.as_ref() {
            return;
        }
        if let Some(trouble) = trouble {
            warn!("{trouble}; it is tried again later");
            self.troubles.insert(slot, trouble);
        } else {
            info!("the Node can be written again");
            self.troubles.remove(&slot);
        }
        let trouble = self.troubles.values().next().cloned();
        self.eyes
            .report
            .send_modify(|report| report.trouble = trouble);
    }
}

fn told_of_watch(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => told(error),
        watcher::Error::WatchError(status) => told(&kube::Error::Api(status.clone())),
        watcher::Error::NoResourceVersion => error.to_string(),
    }
}

fn slot(write: &Write) -> String {
    match write {
        Write::Apply { manager, .. } => (*manager).to_owned(),
        Write::Taints(_) => "taints".to_owned(),
        Write::Replace { key, .. } => key.clone(),
    }
}

fn words(write: &Write) -> String {
    match write {
        Write::Apply {
            manager,
            labels,
            annotations,
            ..
        } => format!(
            "{} labels and {} annotations as {manager}",
            labels.len(),
            annotations.len()
        ),
        Write::Taints(taints) => format!("{} taints", taints.len()),
        Write::Replace { key, from, to } => format!("{key} from {from} to {to}"),
    }
}
