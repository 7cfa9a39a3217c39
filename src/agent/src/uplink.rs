//! Reports the node to an aggregator, in a task separate from the loop, so that neither ever waits for the other.
//!
//! ```text
//!   loop --> Outbox (latest status) --> session: Sender <--> aggregator
//!                                          |  lost, refused, silent, held off
//!                                          +--> wait (exponential backoff with jitter) --> next session
//! ```
//!
//! [`Sender`] decides which messages to send; this module handles connections, waits, and a deduplicated log. A
//! hanging driver does not stop heartbeats: they confirm that the last report is still the latest state.

pub mod dial;
mod outbox;
mod session;

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use octavo_stream::messages::Identity;
use octavo_stream::protocol::{Backoff, Run, Sender};
use octavo_toolkit::files;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use self::dial::Connector;
pub use self::outbox::Outbox;
use self::outbox::QueuedStatus;
use self::session::{Session, SessionEnd};

/// Client of an aggregator that reports until its outbox is dropped.
#[derive(Debug)]
pub struct Uplink<D> {
    dial: D,
    identity: Identity,
    heartbeat: Duration,
    sender: Sender,
    latest: watch::Receiver<QueuedStatus>,
    log: ConnectionLog,
}

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const MAX_BOOT_ID_BYTES: u64 = 4096;
/// A connection that lasted this long was successful and resets the backoff.
const BACKOFF_RESET_AFTER: Duration = Duration::from_secs(30);
/// Maximum number of remembered reasons. An aggregator chooses some of them, so their number is otherwise unlimited.
const MAX_LOGGED_REASONS: usize = 16;

impl<D: Connector> Uplink<D> {
    /// Creates an uplink and the outbox that feeds it.
    pub fn new(dial: D, identity: Identity, run: Run, heartbeat: Duration) -> (Outbox, Self) {
        let (outbox, latest) = outbox::outbox();
        let uplink = Self {
            log: ConnectionLog {
                aggregator: dial.name(),
                said: BTreeSet::new(),
            },
            dial,
            identity,
            heartbeat,
            sender: Sender::new(run),
            latest,
        };
        (outbox, uplink)
    }

    /// Reports. Returns when the outbox is dropped, after the stream was closed.
    pub async fn run(mut self) {
        let mut backoff = Backoff::default();
        while self.wait_for_status().await {
            let started = Instant::now();
            let mut session = Session {
                identity: &self.identity,
                heartbeat: self.heartbeat,
                sender: &mut self.sender,
                latest: &mut self.latest,
                log: &mut self.log,
            };
            let end = session.run(&self.dial).await;
            self.sender.disconnected();
            let wait = match end {
                SessionEnd::Closed => return,
                SessionEnd::Lost(reason) => {
                    if started.elapsed() >= BACKOFF_RESET_AFTER {
                        backoff.reset();
                    }
                    let wait = backoff.next_delay(random());
                    self.log.lost(&reason, wait);
                    wait
                }
                SessionEnd::RetryLater {
                    retry_after,
                    reason,
                } => {
                    // Adds up to a half, so that agents that were held off together do not return together.
                    let wait = retry_after.saturating_add(fraction(retry_after / 2, random()));
                    let reason = format!("held off: {reason}");
                    self.log.lost(&reason, wait);
                    wait
                }
            };
            tokio::select! {
                () = closed(&mut self.latest) => return,
                () = sleep(wait) => {}
            }
        }
    }

    /// Waits for a status; `false` if there will be none.
    async fn wait_for_status(&mut self) -> bool {
        let known = self
            .latest
            .wait_for(|latest| matches!(latest, QueuedStatus::Status(_)));
        known.await.is_ok()
    }
}

/// Returns the identity of this run of the agent, which started at `start`. On a machine without a boot ID, the start
/// time alone distinguishes its agents.
pub fn current_run(start: Timestamp) -> Run {
    let boot_id = files::text(Path::new(BOOT_ID), MAX_BOOT_ID_BYTES).unwrap_or_default();
    Run {
        epoch: u64::try_from(start.as_microsecond()).unwrap_or_default(),
        boot_id: boot_id.trim().to_owned(),
    }
}

/// Resolves when the outbox has been dropped.
async fn closed(latest: &mut watch::Receiver<QueuedStatus>) {
    while latest.changed().await.is_ok() {}
}

/// Returns a random number. The standard library seeds its hashers from the system's randomness, which is sufficient
/// for jitter.
fn random() -> u64 {
    RandomState::new().hash_one(0)
}

/// Returns the fraction of `whole` that `random` selects uniformly.
fn fraction(whole: Duration, random: u64) -> Duration {
    // The durations used here fit in 32 bits of milliseconds.
    let millis = u32::try_from(whole.as_millis()).unwrap_or(u32::MAX);
    let share = u64::from(millis).saturating_mul(random >> 32) >> 32;
    Duration::from_millis(share)
}

/// Deduplicates the reasons for failed reports.
#[derive(Debug)]
struct ConnectionLog {
    aggregator: String,
    /// Reasons logged since the last successful connection.
    said: BTreeSet<String>,
}

impl ConnectionLog {
    fn connected(&mut self) {
        info!("reporting to {}", self.aggregator);
        self.said.clear();
    }

    fn lost(&mut self, reason: &str, wait: Duration) {
        if self.is_new(reason) {
            let seconds = wait.as_secs_f32();
            warn!(
                "not reporting to {}: {reason}; tried again in {seconds:.1} s",
                self.aggregator
            );
        }
    }

    /// Returns whether a reason was not logged yet. Two alternating reasons are also logged only once each.
    fn is_new(&mut self, reason: &str) -> bool {
        if self.said.contains(reason) {
            return false;
        }
        if self.said.len() >= MAX_LOGGED_REASONS {
            self.said.clear();
        }
        self.said.insert(reason.to_owned())
    }
}

#[cfg(test)]
mod tests;
