//! Writes the differences between a Node and its desired state.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};

use super::eyes::Eyes;
use super::write;
use crate::domain::node::pace::Pace;
use crate::domain::node::{View, Wanted, Write, decide};

/// After this many consecutive conflicts, a conflict counts as an error.
const PERSISTS: u32 = 3;
/// After this many reverted writes, another writer is assumed.
const FOUGHT: u32 = 3;

/// Writes a Node.
pub(super) struct Hands<'a> {
    eyes: &'a Eyes<'a>,
    began: Instant,
    /// Retry state by the part that is written, so that a refused one does not delay the others.
    paces: BTreeMap<String, Pace<Write>>,
    /// Errors by the part that is written.
    troubles: BTreeMap<String, String>,
    /// The generation last logged as settled.
    settled: Option<u64>,
}

impl<'a> Hands<'a> {
    /// Creates a writer for the Node that `eyes` watches.
    pub(super) fn new(eyes: &'a Eyes<'a>) -> Self {
        Self {
            eyes,
            began: Instant::now(),
            paces: BTreeMap::new(),
            troubles: BTreeMap::new(),
            settled: None,
        }
    }

    /// Writes differences until the sender of `wanted` is dropped.
    pub(super) async fn keep(mut self, mut wanted: watch::Receiver<(u64, Wanted)>) {
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

    /// Performs one write that is permitted now. Returns the delay until the next.
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

    /// Logs an error once and stores it while it lasts.
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
