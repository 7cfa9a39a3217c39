//! Reports the node to an aggregator: a task of its own beside the loop, so that neither ever waits for the other.
//!
//! ```text
//!   loop --> Outbox (latest status) --> session: Sender <--> aggregator
//!                                          |  lost, refused, silent, held off
//!                                          +--> wait (longer each time, and by chance) --> next session
//! ```
//!
//! What to say is [`Sender`]'s to know; here are connections, waits, and a log that says what is new and nothing twice. A
//! driver that hangs stops no heartbeat: they say that what was reported last is still what is known.

pub mod dial;
mod outbox;
mod session;

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use self::dial::Dial;
use self::outbox::Latest;
pub use self::outbox::Outbox;
use self::session::{End, Session};
use crate::domain::stream::{Backoff, Run, Sender};
use crate::files;
use crate::wire::stream::Identity;

/// Reports until its outbox is dropped.
#[derive(Debug)]
pub struct Uplink<D> {
    dial: D,
    identity: Identity,
    heartbeat: Duration,
    sender: Sender,
    latest: watch::Receiver<Latest>,
    log: Log,
}

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const MAX_BOOT_ID_BYTES: u64 = 4096;
/// A connection that worked for this long was no failure, and the waits begin anew.
const STEADY: Duration = Duration::from_secs(30);
/// Reasons that are remembered. An aggregator chooses some of them, so there can be any number.
const MOST_REASONS: usize = 16;

impl<D: Dial> Uplink<D> {
    /// An uplink, and where it finds what to report.
    pub fn new(dial: D, identity: Identity, run: Run, heartbeat: Duration) -> (Outbox, Self) {
        let (outbox, latest) = outbox::outbox();
        let uplink = Self {
            log: Log {
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

    /// Reports. Ends when the outbox is dropped, after it has closed its stream.
    pub async fn run(mut self) {
        let mut backoff = Backoff::default();
        while self.something_to_say().await {
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
                End::Closed => return,
                End::Lost(reason) => {
                    if started.elapsed() >= STEADY {
                        backoff.succeeded();
                    }
                    let wait = backoff.failed(chance());
                    self.log.lost(&reason, wait);
                    wait
                }
                End::HeldOff {
                    retry_after,
                    reason,
                } => {
                    // By up to a half more, so that those who were sent away together do not come back together.
                    let wait = retry_after.saturating_add(share(retry_after / 2, chance()));
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

    /// Waits for a status; `false` where none will come.
    async fn something_to_say(&mut self) -> bool {
        let known = self
            .latest
            .wait_for(|latest| matches!(latest, Latest::Status(_)));
        known.await.is_ok()
    }
}

/// This run of the agent, which started at `start`. A machine without a boot id has none to tell two of its agents apart by,
/// and they still have their start.
pub fn this_run(start: Timestamp) -> Run {
    let boot_id = files::text(Path::new(BOOT_ID), MAX_BOOT_ID_BYTES).unwrap_or_default();
    Run {
        epoch: u64::try_from(start.as_microsecond()).unwrap_or_default(),
        boot_id: boot_id.trim().to_owned(),
    }
}

/// Resolves when the outbox has been dropped.
async fn closed(latest: &mut watch::Receiver<Latest>) {
    while latest.changed().await.is_ok() {}
}

/// A random number. The standard library seeds its hashers from the system's randomness; spreading a fleet over time
/// needs no more than that.
fn chance() -> u64 {
    RandomState::new().hash_one(0)
}

/// A part of `whole`, uniform by `random`.
fn share(whole: Duration, random: u64) -> Duration {
    // Milliseconds of what is waited for here fit in 32 bits.
    let millis = u32::try_from(whole.as_millis()).unwrap_or(u32::MAX);
    let share = u64::from(millis).saturating_mul(random >> 32) >> 32;
    Duration::from_millis(share)
}

/// Remembers why nothing can be reported, and says only what is new.
#[derive(Debug)]
struct Log {
    aggregator: String,
    /// Since it worked last.
    said: BTreeSet<String>,
}

impl Log {
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

    /// Whether a reason was not said yet. Also of two that take turns each is said once.
    fn is_new(&mut self, reason: &str) -> bool {
        if self.said.contains(reason) {
            return false;
        }
        if self.said.len() >= MOST_REASONS {
            self.said.clear();
        }
        self.said.insert(reason.to_owned())
    }
}

#[cfg(test)]
mod tests;
