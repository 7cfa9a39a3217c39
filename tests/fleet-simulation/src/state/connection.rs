//! Connections of agents to the aggregator, and the aggregator's memory.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use octavo_model::digest::Digest;
use octavo_store::clock::Moment;
use octavo_store::fleet::Fleet;
use octavo_store::peer::Peer;
use octavo_store::store::{ReportPermit, Store};
use tokio::sync::watch;

/// A connection. Each end notices its end on its own.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) node: usize,
    /// Run of the agent.
    pub(crate) run: u32,
    /// Run of the aggregator.
    pub(crate) aggregator_run: u32,
    pub(crate) peer: Arc<Peer>,
    pub(crate) permit: Option<ReportPermit>,
    pub(crate) is_agent_open: bool,
    pub(crate) is_aggregator_open: bool,
    pub(crate) to_agent: Direction,
    pub(crate) to_aggregator: Direction,
}

/// Encoded messages in flight, in their order.
#[derive(Debug, Default)]
pub(crate) struct Direction {
    pub(crate) messages: VecDeque<Vec<u8>>,
    /// Arrival of the last message.
    pub(crate) last: Duration,
}

/// A running aggregator.
#[derive(Debug)]
pub(crate) struct Aggregator {
    pub(crate) run: u32,
    pub(crate) began: Duration,
    pub(crate) store: Store,
    pub(crate) readers: watch::Receiver<Fleet>,
    /// Time at which each node last confirmed its state, as an observer of the messages sees it.
    pub(crate) confirmed: BTreeMap<usize, Duration>,
    pub(crate) is_publication_due: bool,
}

impl Aggregator {
    /// The aggregator's clock at this time.
    pub(crate) fn moment(&self, now: Duration) -> Moment {
        Moment::after_start(now.saturating_sub(self.began))
    }
}

/// Statuses that the agents of a node have sent, by their hash. A later status has a larger number.
#[derive(Debug, Default)]
pub(crate) struct SentStatuses {
    numbers: BTreeMap<u64, Vec<u64>>,
    pub(crate) count: u64,
    /// `count` at the end of the convergence.
    pub(crate) when_converged: u64,
    /// The state that was verified last: run of the aggregator, revision of the fleet, and last acknowledgement.
    pub(crate) verified: Option<(u32, u64, Option<Duration>)>,
    /// Number of the status that the aggregator stored last.
    pub(crate) stored: u64,
}

impl SentStatuses {
    /// Records a status that was sent.
    pub(crate) fn record(&mut self, hash: Digest) {
        self.count += 1;
        self.numbers.entry(hash.get()).or_default().push(self.count);
    }

    /// Records the status that the aggregator has. Returns whether it was sent, and not before the last one that the
    /// aggregator had.
    pub(crate) fn record_stored(&mut self, hash: Digest) -> bool {
        let numbers = self.numbers.get(&hash.get());
        let number = numbers.and_then(|all| all.iter().find(|number| **number >= self.stored));
        let Some(number) = number else { return false };
        self.stored = *number;
        true
    }
}
