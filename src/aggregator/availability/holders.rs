//! Watches who holds what, so that it is known how long such as they do.
//!
//! What was seen waits until somebody asks what is to be had, for only a count knows of which type the nodes are. Where nobody asks and
//! much ends, it is counted for its own sake.

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Counter;
use crate::domain::availability::{Holders, Shown};

/// Ends that wait to be learned of.
const MOST_WAITING: usize = 4096;
/// With so many it is not waited until somebody asks.
const MANY: usize = MOST_WAITING / 4;

/// What was seen, on its way to a count.
pub(super) fn channel() -> (mpsc::Sender<Shown>, mpsc::Receiver<Shown>) {
    mpsc::channel(MOST_WAITING)
}

impl Counter {
    /// Watches who holds what of the cluster, for ever; ends at once where none is followed.
    pub async fn watch_holders(self) {
        let Some(mut cluster) = self.cluster.clone() else {
            return;
        };
        let mut holders = Holders::default();
        loop {
            let followed = cluster.borrow_and_update().clone();
            if let Some(heard) = followed.heard {
                for shown in holders.look(&followed.sights, self.seconds(heard)) {
                    // What is lost leaves a gap, and after a gap it begins anew.
                    if self.shown.try_send(shown).is_err() {
                        holders.forget();
                        break;
                    }
                }
            }
            if self.shown.capacity() <= MOST_WAITING.saturating_sub(MANY) {
                drop(self.current().await);
            }
            if cluster.changed().await.is_err() {
                return;
            }
        }
    }

    /// The time of day at an instant that has been, in seconds since 1970.
    fn seconds(&self, at: Instant) -> i64 {
        let clock = self.view.clock();
        let now = clock.wall(clock.now());
        now.checked_sub(at.elapsed()).unwrap_or(now).as_second()
    }
}
