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
mod spool;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use octavo_model::backoff::jittered;
use octavo_stream::protocol::{Backoff, Identity, Parts, Run, Sender};
use octavo_toolkit::files;
use octavo_toolkit::random::random;
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
    heartbeat: Duration,
    sender: Sender,
    latest: watch::Receiver<QueuedStatus>,
    /// The last status that the aggregator has acknowledged; empty without a connection.
    acknowledged: watch::Sender<Parts>,
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
        let (acknowledged, of_outbox) = watch::channel(Parts::default());
        let (outbox, latest) = outbox::outbox(of_outbox);
        let uplink = Self {
            log: ConnectionLog { aggregator: dial.name(), logged: BTreeSet::new() },
            dial,
            heartbeat,
            sender: Sender::new(identity, run),
            latest,
            acknowledged,
        };
        (outbox, uplink)
    }

    /// Reports. Returns when the outbox is dropped, after the stream was closed.
    pub async fn run(mut self) {
        let mut backoff = Backoff::default();
        while self.wait_for_status().await {
            let started = Instant::now();
            let mut session = Session {
                heartbeat: self.heartbeat,
                sender: &mut self.sender,
                latest: &mut self.latest,
                acknowledged: &self.acknowledged,
                log: &mut self.log,
            };
            let end = session.run(&self.dial).await;
            self.sender.disconnected();
            self.acknowledged.send_replace(Parts::default());
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
                SessionEnd::RetryLater { retry_after, reason } => {
                    // Adds up to a half, so that agents that were held off together do not return together.
                    let longest = retry_after.saturating_add(retry_after / 2);
                    let wait = jittered(retry_after, longest, random());
                    let reason = format!("the aggregator requested a delay: {reason}");
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
        let known = self.latest.wait_for(|latest| matches!(latest, QueuedStatus::Status(_)));
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

/// Deduplicates the reasons for failed reports.
#[derive(Debug)]
struct ConnectionLog {
    aggregator: String,
    /// Reasons logged since the last successful connection.
    logged: BTreeSet<String>,
}

impl ConnectionLog {
    fn connected(&mut self) {
        info!(aggregator = %self.aggregator, "reporting to the aggregator");
        self.logged.clear();
    }

    fn lost(&mut self, reason: &str, wait: Duration) {
        if self.is_new(reason) {
            let seconds = wait.as_secs_f32();
            warn!(aggregator = %self.aggregator, retry_in = %format_args!("{seconds:.1} s"), error = %reason, "cannot report to the aggregator; retrying");
        }
    }

    /// Returns whether a reason was not logged yet. Two alternating reasons are also logged only once each.
    fn is_new(&mut self, reason: &str) -> bool {
        if self.logged.contains(reason) {
            return false;
        }
        if self.logged.len() >= MAX_LOGGED_REASONS {
            self.logged.clear();
        }
        self.logged.insert(reason.to_owned())
    }
}

#[cfg(test)]
mod tests;
