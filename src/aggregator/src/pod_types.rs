//! Annotates pods with the accelerator types that were allocated to them, as reported by the agents of their nodes.
//!
//! ```text
//!  Fleet: allocations per node --> octavo_node::workload: claims --> AnnotationSchedule of pods
//!                                                                 |          ^
//!  Lease: leader election ------------------------------------> Pods: read, and patched if they differ
//! ```
//!
//! `run` starts it if enabled. Without the Lease, nothing is stored or requested. When the Lease is acquired, all nodes
//! are read again, because another replica may have acted on the old state. Stale nodes are ignored.

use std::time::Duration;

use octavo_kube::lease::{LeadershipHandle, LeaseHolder};
use octavo_kube::pod_annotations::{PodAnnotationClient, PodAnnotationError};
use octavo_node::node_object::write_backoff::WriteBackoff;
use octavo_node::workload::{AnnotationSchedule, Claims, NextAction, PodOnNode, claims};
use octavo_store::fleet::{Fleet, Node};
use octavo_store::usage::summary::types;
use octavo_store::view::FleetView;
use octavo_stream::protocol::PartKey;
use octavo_stream::status;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};

use crate::settings::WorkloadSettings;

/// Name of the Lease.
const LEASE_NAME: &str = "octavo-aggregator";
/// Minimum interval between scans of the fleet, so that pods that start together are processed together.
const SCAN_INTERVAL: Duration = Duration::from_millis(500);

/// Writer of the pod annotations.
#[derive(Debug)]
pub struct PodTypeWriter {
    pods: PodAnnotationClient,
    view: FleetView,
    lead: LeadershipHandle,
    holder: LeaseHolder,
}

/// State while the Lease is held.
struct LeaderState<'a> {
    pods: &'a PodAnnotationClient,
    view: &'a FleetView,
    fleet: Fleet,
    /// Time of the last scan.
    last_scan: Option<Instant>,
    ledger: AnnotationSchedule,
    began: Instant,
    pace: WriteBackoff<()>,
    last_error: Option<String>,
}

impl PodTypeWriter {
    /// Creates a writer for the nodes of this fleet. Sends no request before it runs.
    pub fn new(pods: PodAnnotationClient, view: FleetView, settings: &WorkloadSettings) -> Self {
        let place = (settings.lease_namespace.as_str(), LEASE_NAME);
        let (lead, holder) = LeaseHolder::new(pods.client(), place, &settings.holder_prefix);
        Self { pods, view, lead, holder }
    }

    /// Runs until `stop`, and then releases the Lease.
    pub async fn run(self, stop: watch::Receiver<bool>) {
        let Self { pods, view, mut lead, holder } = self;
        info!("annotating pods with the type of their accelerators");
        let write = async {
            loop {
                if lead.until().is_some() {
                    let mut leader = LeaderState::new(&pods, &view);
                    tokio::select! {
                        biased;
                        () = lead.lost() => {}
                        () = leader.run() => {}
                    }
                } else if !lead.changed().await {
                    return;
                }
            }
        };
        // The holder announces the end of all writing before it releases the Lease.
        tokio::join!(holder.run(stop), write);
    }
}

impl<'a> LeaderState<'a> {
    fn new(pods: &'a PodAnnotationClient, view: &'a FleetView) -> Self {
        Self {
            pods,
            view,
            fleet: Fleet::default(),
            last_scan: None,
            ledger: AnnotationSchedule::default(),
            began: Instant::now(),
            pace: WriteBackoff::default(),
            last_error: None,
        }
    }

    /// Runs forever. Dropping it cancels a request in progress.
    async fn run(&mut self) {
        loop {
            self.scan();
            let now = self.began.elapsed();
            let next = match self.pace.wait(now, &()) {
                Some(wait) => NextAction::Wait(wait),
                None => self.ledger.next(now),
            };
            match next {
                NextAction::Read(key) => self.annotate(&key).await,
                NextAction::Wait(wait) => sleep(wait.min(SCAN_INTERVAL)).await,
                NextAction::Nothing => sleep(SCAN_INTERVAL).await,
            }
        }
    }

    /// Reads the nodes' current claims.
    fn scan(&mut self) {
        let now = Instant::now();
        let is_soon = |at: Instant| now.saturating_duration_since(at) < SCAN_INTERVAL;
        if self.last_scan.is_some_and(is_soon) {
            return;
        }
        self.last_scan = Some(now);
        let fleet = self.view.fleet();
        let difference = fleet.since(&self.fleet);
        let now = self.began.elapsed();
        for node in difference.changed.into_iter().filter(|node| node.is_local()) {
            let before = self.fleet.nodes.get(&node.name);
            if before.is_none_or(|before| !has_same_claims(before, node)) {
                self.ledger.update(now, &node.name, node_claims(node));
            }
        }
        for node in difference.removed {
            self.ledger.forget(&node.name);
        }
        self.fleet = fleet;
    }

    /// Reads a pod and writes its annotations if they differ.
    async fn annotate(&mut self, key: &PodOnNode) {
        let done = self.write(key).await;
        let now = self.began.elapsed();
        match done {
            Ok(()) => self.record_success(),
            Err(error) if error.is_pod_specific() => {
                self.record_success();
                debug!(%error, "pod annotation failed; retrying");
                self.ledger.record_failure(now, key, error.retry_after());
            }
            Err(error) => {
                self.ledger.requeue(now, key);
                self.pace.record_failure(now, error.retry_after());
                if self.last_error.is_none() {
                    warn!(%error, "pod annotations are delayed until the API server responds");
                }
                self.last_error = Some(error.to_string());
            }
        }
    }

    async fn write(&mut self, key: &PodOnNode) -> Result<(), PodAnnotationError> {
        let pod = self.pods.read(&key.place).await?;
        let patch = self.ledger.record_pod(self.began.elapsed(), key, pod.as_ref());
        let Some(patch) = patch else { return Ok(()) };
        self.pods.write(&key.place, &patch).await?;
        self.ledger.record_up_to_date(self.began.elapsed(), key);
        debug!(pod = %key.place, node = %key.node, ?patch, "pod annotated");
        Ok(())
    }

    fn record_success(&mut self) {
        self.pace = WriteBackoff::default();
        if self.last_error.take().is_some() {
            let count = self.ledger.len();
            info!(pods = count, "the API server responds again; checking pod annotations");
        }
    }
}

/// Returns whether both versions lead to the same annotations. Device parts change with every process, so only the type
/// is compared.
fn has_same_claims(one: &Node, other: &Node) -> bool {
    let key = PartKey::usage();
    let is_stale = |node: &Node| node.freshness.found_stale();
    one.parts.get(key.as_str()) == other.parts.get(key.as_str())
        && is_stale(one) == is_stale(other)
        && types(one) == types(other)
}

/// Claims of the node's pods. The store decoded the part before it accepted it.
fn node_claims(node: &Node) -> Claims {
    let part = node.parts.get(PartKey::USAGE);
    let part = part.filter(|_| !node.freshness.found_stale());
    let usage = part.and_then(|part| status::decode_usage(part).ok());
    usage.map_or_else(Claims::new, |usage| claims(&usage, &types(node)))
}
