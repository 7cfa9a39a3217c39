//! Watches who holds what, so that it is known how long such as they do.
//!
//! What was seen waits until somebody asks what is to be had, for only a count knows of which type the nodes are. Where nobody asks and
//! much ends, it is counted for its own sake.

use tokio::sync::mpsc;
use tracing::warn;

use super::Counter;
use crate::aggregator::kept::Fit;
use crate::domain::availability::{Holders, Shown};

/// Looks of which the ends wait to be learned of: one may show those of all pods of a cluster.
const MOST_WAITING: usize = 256;
/// With so many looks, or ends of one look, it is not waited until somebody asks.
const MANY: usize = MOST_WAITING / 4;

/// What each look has shown, on its way to a count.
pub(super) fn channel() -> (mpsc::Sender<Vec<Shown>>, mpsc::Receiver<Vec<Shown>>) {
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
            let mut ends = 0;
            let followed = cluster.borrow_and_update().clone();
            // While nodes or pods alone are followed, or neither, what is known of them is of different times.
            if followed.heard.is_some() && followed.trouble.is_none() {
                let now = self.seconds();
                if holders.is_set_back(now) {
                    warn!(
                        "this machine's clock was set back: how long pods hold devices is watched anew"
                    );
                }
                let shown = holders.look(&followed.sights, now);
                ends = shown.len();
                // What is lost leaves a gap, and after a gap it begins anew.
                if ends > 0 && self.shown.try_send(shown).is_err() {
                    holders.forget();
                }
            }
            if ends >= MANY || self.shown.capacity() <= MOST_WAITING.saturating_sub(MANY) {
                // However young the last count is, it has not learned of these.
                drop(self.fitting(|_| Fit::Old).await);
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
