//! Polls the kubelet's allocations, because its API has no change notifications.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use octavo_toolkit::error::chain;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::gate::AllocationGate;
use super::plugin_dir::FileIdentity;
use crate::pod_allocations::AllocationReader;
use crate::pod_resources::{self, Allocatable};

/// Query timeout. The kubelet answers from memory.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);
/// Poll interval while a change is expected. The kubelet rejects more than a hundred queries per second.
const FAST_INTERVAL: Duration = Duration::from_secs(1);
/// Poll interval while no change is expected.
const SLOW_INTERVAL: Duration = Duration::from_secs(15);
/// After this time, an expected change is polled at the slow interval.
const MAX_FAST_DURATION: Duration = Duration::from_mins(3);

/// Result of the last query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeletReport {
    /// When the query started.
    pub queried_at: Instant,
    /// Why the allocations are unknown, for users.
    pub error: Option<String>,
    /// The IDs that the kubelet may allocate; `None` if it does not report them.
    pub allocatable: Option<Allocatable>,
}

impl Default for KubeletReport {
    fn default() -> Self {
        Self {
            queried_at: Instant::now(),
            error: Some("the kubelet has not been queried for allocations yet".to_owned()),
            allocatable: None,
        }
    }
}

/// Polls the kubelet and updates the gate and subscribers until there are no subscribers.
pub(super) async fn poll(
    kubelet: Option<(PathBuf, AllocationReader)>,
    gate: Arc<AllocationGate>,
    report: watch::Sender<Arc<KubeletReport>>,
) {
    let Some((socket, mut reader)) = kubelet else {
        let reason = "the kubelet cannot be queried for allocations: --pod-resources none";
        report.send_modify(|report| Arc::make_mut(report).error = Some(reason.to_owned()));
        return report.closed().await;
    };
    let mut listing = gate.listing();
    let mut count = gate.allocation_count();
    let mut known = None;
    let mut polling = FastPolling::default();
    while !report.is_closed() {
        query((&socket, &mut reader), &gate, &report, &mut known).await;
        // Limits the query rate regardless of events.
        sleep(FAST_INTERVAL).await;
        if polling.is_on(Instant::now(), expects_change(&gate, &report.borrow())) {
            continue;
        }
        tokio::select! {
            () = sleep(SLOW_INTERVAL) => {}
            Ok(()) = listing.changed() => polling = FastPolling::default(),
            Ok(()) = count.changed() => polling = FastPolling::default(),
            () = report.closed() => {}
        }
    }
}

/// Limits fast polling in time: a pod that keeps its devices may run for weeks.
#[derive(Debug, Default)]
struct FastPolling {
    since: Option<Instant>,
}

impl FastPolling {
    fn is_on(&mut self, now: Instant, is_expected: bool) -> bool {
        if !is_expected {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        now.saturating_duration_since(since) < MAX_FAST_DURATION
    }
}

async fn query(
    (socket, kubelet): (&Path, &mut AllocationReader),
    gate: &AllocationGate,
    report: &watch::Sender<Arc<KubeletReport>>,
    known: &mut Option<FileIdentity>,
) {
    let (queried_at, now) = (gate.now(), Instant::now());
    // The kubelet recreates its socket at start, and responds before it has loaded its pods.
    let before = FileIdentity::read(socket);
    let list = kubelet.ask(QUERY_TIMEOUT).await;
    let (update, error) = match list {
        // Without a checkpoint, the first response of a young kubelet may lack the allocations of its predecessor.
        Ok(allocations)
            if known.is_none() && allocations.is_young && !allocations.has_checkpoint =>
        {
            (gate.record_unavailable(), Some(pod_resources::YOUNG_KUBELET_MESSAGE.to_owned()))
        }
        Ok(allocations) => {
            // If it restarted during the query, it is unknown which of the two processes has responded.
            let after = FileIdentity::read(socket);
            let restarted = known.is_some() && (*known != before || before != after);
            *known = after;
            (gate.record_report(queried_at, allocations.devices, restarted), None)
        }
        Err(error) => (gate.record_unavailable(), Some(chain(&error))),
    };
    let allocatable = match &error {
        None => pod_resources::allocatable(socket, QUERY_TIMEOUT).await,
        Some(_) => Ok(None),
    };
    let new =
        KubeletReport { queried_at: now, error, allocatable: allocatable.unwrap_or_default() };
    report.send_if_modified(|report| {
        let differs = report.error != new.error || report.allocatable != new.allocatable;
        *report = Arc::new(new);
        differs || update
    });
}

/// Returns whether a change in the kubelet's report is expected: a pod ends, an allocation appears, or a list was read.
fn expects_change(gate: &AllocationGate, report: &KubeletReport) -> bool {
    let listing = gate.listing();
    let listing = Arc::clone(&listing.borrow());
    if report.error.is_some() || !listing.retained.is_empty() || !gate.unreported().is_empty() {
        return true;
    }
    let Some(allocatable) = &report.allocatable else {
        return false;
    };
    listing.resources.iter().any(|(name, listed)| {
        let known = allocatable.get(name.as_str());
        let known = known.into_iter().flatten();
        let listed = listed.allocatable().map(ToString::to_string);
        let mut listed: Vec<String> = listed.collect();
        listed.sort();
        !known.eq(listed.iter())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_polling_is_limited_and_restarts_on_changes() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut polling = FastPolling::default();
        assert!(!polling.is_on(at(0), false));
        assert!(polling.is_on(at(10), true));
        assert!(polling.is_on(at(189), true));
        assert!(!polling.is_on(at(190), true));
        assert!(!polling.is_on(at(191), false));
        assert!(polling.is_on(at(192), true));
    }
}
