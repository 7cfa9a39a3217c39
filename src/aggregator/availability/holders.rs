//! Watches who holds what, so that it is known how long such as they do.
//!
//! What was seen waits until somebody asks what is to be had, for only a count knows of which type the nodes are. Where nobody asks and
//! much ends, it is counted for its own sake.

use tokio::sync::mpsc;
use tracing::warn;

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
            // While nodes or pods alone are followed, or neither, what is known of them is of different times.
            if followed.heard.is_some() && followed.trouble.is_none() {
                let now = self.seconds();
                if holders.is_set_back(now) {
                    warn!("this machine's clock was set back: how long pods hold devices is watched anew");
                }
                for shown in holders.look(&followed.sights, now) {
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

    /// The time of day by this machine's clock, in seconds since 1970: when pods began is told by such clocks, which are corrected.
    pub(super) fn seconds(&self) -> i64 {
        (self.today)(self.view.clock()).as_second()
    }
}
