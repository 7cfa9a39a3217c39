//! Annotates pods with the accelerator types that were allocated to them, as reported by the agents of their nodes.
//!
//! ```text
//!  Fleet: allocations per node --> domain::workload: claims --> Ledger: schedule of pods
//!                                                                 |          ^
//!  Lease: leader election ------------------------------------> Pods: read, and patched if they differ
//! ```
//!
//! `run` starts it if enabled. Without the Lease, nothing is stored or requested. When the Lease is acquired, all nodes
//! are read again, because another replica may have acted on the old state. Stale nodes are ignored.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, info, warn};

use super::fleet::{Fleet, Node};
use super::usage::summary::types;
use super::view::View;
use crate::config::aggregator::PodTypes;
use crate::domain::node::pace::Pace;
use crate::domain::stream::PartKey;
use crate::domain::workload::{Claims, Key, Ledger, Next, claims};
use crate::k8s::lease::{Keeper, Lead};
use crate::k8s::pod_types::{PodTypeError, Pods};
use crate::wire::status;

/// Minimum interval between scans of the fleet, so that pods that start together are processed together.
const GATHER: Duration = Duration::from_millis(500);

/// Writer of the pod annotations.
#[derive(Debug)]
pub struct Writer {
    pods: Pods,
    view: View,
    lead: Lead,
    keeper: Keeper,
}

/// State while the Lease is held.
struct Desk<'a> {
    pods: &'a Pods,
    view: &'a View,
    fleet: Fleet,
    /// Time of the last scan.
    gathered: Option<Instant>,
    ledger: Ledger,
    began: Instant,
    pace: Pace<()>,
    trouble: Option<String>,
}

impl Writer {
    /// Creates a writer for the nodes of this fleet. Sends no request before it runs.
    pub fn new(pods: Pods, view: View, settings: &PodTypes) -> Self {
        let place = (settings.lease_namespace.as_str(), settings.lease_name);
        let (lead, keeper) = Keeper::new(pods.client(), place, &settings.who);
        Self {
            pods,
            view,
            lead,
            keeper,
        }
    }

    /// Runs until `stop`, and then releases the Lease.
    pub async fn run(self, stop: watch::Receiver<bool>) {
        let Self {
            pods,
            view,
            mut lead,
            keeper,
        } = self;
        info!("pods are told which type of accelerator they were given");
        let write = async {
            loop {
                if lead.until().is_some() {
                    let mut desk = Desk::new(&pods, &view);
                    tokio::select! {
                        biased;
                        () = over(&mut lead) => {}
                        () = desk.work() => {}
                    }
                } else if !lead.changed().await {
                    return;
                }
            }
        };
        // The keeper announces the end of all writing before it releases the Lease.
        tokio::join!(keeper.run(stop), write);
    }
}

/// Waits until the Lease is lost; it may be renewed in the meantime.
async fn over(lead: &mut Lead) {
    while let Some(until) = lead.until() {
        tokio::select! {
            () = sleep_until(until) => {}
            is_there = lead.changed() => if !is_there {
                return;
            }
        }
    }
}

impl<'a> Desk<'a> {
    fn new(pods: &'a Pods, view: &'a View) -> Self {
        Self {
            pods,
            view,
            fleet: Fleet::default(),
            gathered: None,
            ledger: Ledger::default(),
            began: Instant::now(),
            pace: Pace::default(),
            trouble: None,
        }
    }

    /// Runs forever. Dropping it cancels a request in progress.
    async fn work(&mut self) {
        loop {
            self.gather();
            let now = self.began.elapsed();
            let next = match self.pace.wait(now, &()) {
                Some(wait) => Next::Wait(wait),
                None => self.ledger.next(now),
            };
            match next {
                Next::Look(key) => self.tell(&key).await,
                Next::Wait(wait) => sleep(wait.min(GATHER)).await,
                Next::Nothing => sleep(GATHER).await,
            }
        }
    }

    /// Reads the nodes' current claims.
    fn gather(&mut self) {
        let now = Instant::now();
        let is_soon = |at: Instant| now.saturating_duration_since(at) < GATHER;
        if self.gathered.is_some_and(is_soon) {
            return;
        }
        self.gathered = Some(now);
        let fleet = self.view.fleet();
        let news = fleet.since(&self.fleet);
        let now = self.began.elapsed();
        for node in news.changed {
            let before = self.fleet.nodes.get(&node.name);
            if before.is_none_or(|before| !says_the_same(before, node)) {
                self.ledger.tell(now, &node.name, said(node));
            }
        }
        for node in news.gone {
            self.ledger.forget(&node.name);
        }
        self.fleet = fleet;
    }

    /// Reads a pod and writes its annotations if they differ.
    async fn tell(&mut self, key: &Key) {
        let done = self.write(key).await;
        let now = self.began.elapsed();
        match done {
            Ok(()) => self.answered(),
            Err(error) if error.is_of_the_pod() => {
                self.answered();
                debug!("{error}; it is tried again");
                self.ledger.failed(now, key, error.patience());
            }
            Err(error) => {
                self.ledger.put_back(now, key);
                self.pace.failed(now, error.patience());
                if self.trouble.is_none() {
                    warn!("{error}; pods are told again once that is over");
                }
                self.trouble = Some(error.to_string());
            }
        }
    }

    async fn write(&mut self, key: &Key) -> Result<(), PodTypeError> {
        let pod = self.pods.read(&key.place).await?;
        let patch = self.ledger.found(self.began.elapsed(), key, pod.as_ref());
        let Some(patch) = patch else { return Ok(()) };
        self.pods.write(&key.place, &patch).await?;
        self.ledger.written(self.began.elapsed(), key);
        debug!("pod {} of node {} was told: {patch:?}", key.place, key.node);
        Ok(())
    }

    fn answered(&mut self) {
        self.pace = Pace::default();
        if self.trouble.take().is_some() {
            let count = self.ledger.len();
            info!("the API server answers again, and {count} pods are looked at");
        }
    }
}

/// Returns whether both versions lead to the same annotations. Device parts change with every process, so only the type
/// is compared.
fn says_the_same(one: &Node, other: &Node) -> bool {
    let key = PartKey::usage();
    let is_stale = |node: &Node| node.freshness.found_stale();
    one.parts.get(key.as_str()) == other.parts.get(key.as_str())
        && is_stale(one) == is_stale(other)
        && types(one) == types(other)
}

/// Claims of the node's pods. The store decoded the part before it accepted it.
fn said(node: &Node) -> Claims {
    let part = node.parts.get(PartKey::usage().as_str());
    let part = part.filter(|_| !node.freshness.found_stale());
    let usage = part.and_then(|part| status::decode_usage(part).ok());
    usage.map_or_else(Claims::new, |usage| claims(&usage, &types(node)))
}
