//! Observes which pods hold devices, to learn for how long pods of a kind do.
//!
//! Observed intervals are queued for the next count, because only a count knows the types of the nodes. If many are
//! queued, a count is triggered.

use octavo_fleet::availability::{HoldingEvent, HoldingObserver};
use tokio::sync::mpsc;
use tracing::warn;

use super::Counter;
use crate::stale_while_revalidate::Freshness;

/// Capacity of the queue, in snapshots; one snapshot can contain an end for every pod of a cluster.
const QUEUE_CAPACITY: usize = 256;
/// Queued snapshots, or ends in one snapshot, that trigger a count.
const COUNT_THRESHOLD: usize = QUEUE_CAPACITY / 4;

/// Creates the queue of completed intervals.
pub(super) fn channel() -> (mpsc::Sender<Vec<HoldingEvent>>, mpsc::Receiver<Vec<HoldingEvent>>) {
    mpsc::channel(QUEUE_CAPACITY)
}

impl Counter {
    /// Observes the pods of the cluster and never returns; without a watched cluster, returns immediately.
    pub async fn watch_holders(self) {
        let Some(mut cluster) = self.cluster.clone() else {
            return;
        };
        let mut holders = HoldingObserver::default();
        loop {
            let mut ends = 0;
            let watched = cluster.borrow_and_update().clone();
            // While a watch is broken, the snapshots of nodes and pods are of different times.
            if watched.current_at.is_some() && watched.error.is_none() {
                let now = self.seconds();
                if holders.is_clock_set_back(now) {
                    warn!(
                        "the system clock was set back; measurements of how long pods hold devices restart"
                    );
                }
                let shown = holders.observe(&watched.snapshot, now);
                ends = shown.len();
                // A dropped snapshot leaves a gap, so observation restarts.
                if ends > 0 && self.completed_intervals.try_send(shown).is_err() {
                    holders.reset();
                }
            }
            if ends >= COUNT_THRESHOLD
                || self.completed_intervals.capacity()
                    <= QUEUE_CAPACITY.saturating_sub(COUNT_THRESHOLD)
            {
                // Even a young count does not include these ends yet.
                drop(self.count_if(|_| Freshness::Expired).await);
            }
            if cluster.changed().await.is_err() {
                return;
            }
        }
    }

    /// Unix time by this machine's wall clock. Start times of pods come from such clocks, which can be corrected.
    pub(super) fn seconds(&self) -> i64 {
        (self.today)(self.view.clock()).as_second()
    }
}
