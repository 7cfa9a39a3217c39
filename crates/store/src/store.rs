//! The single writer of the fleet.
//!
//! All reports of agents are processed here, in one place and one order. The store determines which agent reports a
//! node, validates each status, and publishes the fleet to readers. A status is decoded completely before it is
//! accepted, so a refusal changes nothing. No message can make a node or the fleet exceed its limits.
//!
//! Used through [`shared_store::SharedStore`] by `ingest`, on its single thread. Time is an argument.

mod decode;
mod intern;
mod maintenance;
pub mod shared_store;
mod upstream;

use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::sync::{Arc, Weak};
use std::time::Duration;

use octavo_fleet::changes::Baseline;
use octavo_model::id::NodeName;
use octavo_stream::messages::{MAX_PARTS, MAX_STATUS_BYTES};
use octavo_stream::protocol::{
    AggregatorMessage, FromAgent, Greeting, Hello, Identity, Parts, ReceiveOutcome, ReceivedStatus,
    Receiver,
};
use octavo_stream::status::StatusError;
use strum::IntoStaticStr;
use thiserror::Error;
use tokio::sync::{oneshot, watch};

use self::intern::ContentInterner;
use super::clock::Moment;
use super::fleet::{Fleet, Freshness, Node, ReportingAgent};
use super::history::{NodeSamples, SharedHistory};
use super::peer::Peer;
use super::stats::Stats;

/// Limits of the fleet's state, and its retention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreLimits {
    /// Age of an agent's last report at which its node becomes stale.
    pub stale_after: Duration,
    /// Time for which a stale node is still shown.
    pub forget_after: Duration,
    /// Maximum number of nodes.
    pub max_nodes: usize,
    /// Maximum size of the history in bytes; 0 turns it off.
    pub history_bytes: usize,
}

/// The fleet, and the state of each agent's protocol.
#[derive(Debug)]
pub struct Store {
    limits: StoreLimits,
    fleet: Fleet,
    entries: BTreeMap<NodeName, AgentEntry>,
    /// Nodes without a connection, by last confirmation: a full fleet evicts the first one if it is stale.
    disconnected: BTreeSet<(Moment, NodeName)>,
    interned: ContentInterner,
    /// Streams that were asked to end, and when.
    closing: Vec<(Moment, Weak<Peer>)>,
    last_stream_id: u64,
    readers: watch::Sender<Fleet>,
    /// Time of the last publication, and whether the fleet has changed since.
    published: Option<Moment>,
    unpublished: bool,
    history: SharedHistory,
    stats: Stats,
}

#[derive(Debug)]
struct AgentEntry {
    receiver: Receiver,
    agent_version: String,
    /// Cluster whose aggregator sends the node; `None` for an agent.
    upstream: Option<Arc<str>>,
    /// Freshness of the node; `None` before its first status.
    freshness: Option<Freshness>,
    /// Last known values, for the record of changes.
    baseline: Baseline,
    /// Time of the last message of any kind.
    last_message: Moment,
    stream: Option<ReportStream>,
}

/// The store's end of the stream that reports a node.
#[derive(Debug)]
struct ReportStream {
    id: u64,
    superseded: oneshot::Sender<()>,
    /// Dropped with the stream.
    peer: Weak<Peer>,
}

/// Permission to report a node; its holder returns it with [`Store::disconnected`].
#[derive(Debug)]
pub struct ReportPermit {
    node: NodeName,
    id: u64,
    /// Resolves when another stream reports the node.
    pub superseded: oneshot::Receiver<()>,
}

/// Response to a hello.
#[derive(Debug)]
pub enum HelloOutcome {
    /// The agent may report.
    Accepted(ReportPermit, AggregatorMessage),
    /// The agent must disconnect; the answer contains the time until it may reconnect.
    HoldOff(AggregatorMessage),
}

/// Minimum interval between publications.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(20);
/// Time after which a superseded agent may reconnect.
const SUPERSEDED_RETRY: Duration = Duration::from_secs(30);

impl Store {
    /// Creates an empty fleet and the receiver for readers.
    pub fn new(limits: StoreLimits, stats: Stats) -> (Self, watch::Receiver<Fleet>) {
        let (readers, fleet) = watch::channel(Fleet::default());
        let store = Self {
            limits,
            fleet: Fleet::default(),
            entries: BTreeMap::new(),
            disconnected: BTreeSet::new(),
            interned: ContentInterner::default(),
            closing: Vec::new(),
            last_stream_id: 0,
            readers,
            published: None,
            unpublished: false,
            history: SharedHistory::new(limits.history_bytes),
            stats,
        };
        (store, fleet)
    }

    /// Handles a hello on a stream of `peer`. The last accepted agent reports its node.
    pub fn accept_hello(
        &mut self,
        hello: &Hello,
        peer: &Arc<Peer>,
        now: Moment,
    ) -> Result<HelloOutcome, StoreError> {
        let Identity { node, agent_version } = hello.identity.clone();
        self.stats.count_message("hello");
        // The agents of this cluster take precedence.
        if self.entries.get(&node).is_some_and(|entry| entry.upstream.is_some()) {
            self.forget(&node, now);
        }
        let reporting = self.entries.get(&node).filter(|entry| entry.stream.is_some());
        let takes_over = reporting.is_some_and(|entry| *entry.receiver.run() != hello.run);
        let (entry, greeting) = self.admit_hello(&node, hello, now)?;
        let answer = match greeting {
            Greeting::Welcome(answer) => answer,
            Greeting::Refused(answer) => {
                self.stats.refused("claimed");
                return Ok(HelloOutcome::HoldOff(answer));
            }
        };
        entry.last_message = now;
        entry.agent_version = agent_version;
        let older = entry.stream.take();
        let (id, on_superseded) = self.open_stream(&node, Arc::downgrade(peer));
        if let Some(older) = older {
            // An error means that the stream has already ended.
            let _gone = older.superseded.send(());
            self.closing.push((now, older.peer));
        }
        // A hello with the current state confirms it.
        let confirmed = matches!(answer, AggregatorMessage::Ack { .. });
        self.count_resync("hello", &answer);
        if takes_over {
            self.stats.refused("superseded");
        }
        self.refresh(&node, now, confirmed);
        let permit = ReportPermit { node, id, superseded: on_superseded };
        Ok(HelloOutcome::Accepted(permit, answer))
    }

    /// Handles a message of an accepted agent. Returns `None` if another agent reports its node by now.
    pub fn handle_message(
        &mut self,
        permit: &ReportPermit,
        message: FromAgent,
        now: Moment,
    ) -> Result<Option<AggregatorMessage>, StoreError> {
        let Some(entry) = self.entries.get_mut(&permit.node) else {
            return Ok(None);
        };
        if !entry.has_stream(permit) {
            return Ok(None);
        }
        entry.last_message = now;
        let kind = kind(&message);
        self.stats.count_message(kind);
        let offer = match message {
            FromAgent::Hello { .. } => return Err(StoreError::SecondHello),
            FromAgent::Snapshot { seq, parts } => {
                entry.receiver.snapshot(seq, self.interned.deduplicated(parts))
            }
            FromAgent::Delta { seq, mut change, hash } => {
                self.interned.deduplicate(&mut change);
                entry.receiver.delta(seq, &change, hash)
            }
            FromAgent::Heartbeat { seq, hash } => entry.receiver.heartbeat(seq, hash),
        };
        let answer = match offer {
            ReceiveOutcome::Nothing(answer) => {
                if matches!(answer, AggregatorMessage::Ack { .. }) {
                    self.stats.refused("replayed");
                }
                answer
            }
            ReceiveOutcome::Confirmed(answer) => {
                self.refresh(&permit.node, now, true);
                answer
            }
            ReceiveOutcome::Status(status) => self.accept_status(&permit.node, status, now)?,
        };
        self.count_resync(kind, &answer);
        Ok(Some(answer))
    }

    /// Handles the end of a stream. The node's status is retained.
    pub fn disconnected(&mut self, permit: &ReportPermit, now: Moment) {
        let Some(entry) = self.entries.get_mut(&permit.node) else {
            return;
        };
        if !entry.has_stream(permit) {
            return;
        }
        entry.stream = None;
        if let Some(freshness) = &entry.freshness {
            let left = (freshness.confirmed(), permit.node.clone());
            self.disconnected.insert(left);
            self.refresh(&permit.node, now, false);
        } else {
            self.entries.remove(&permit.node);
        }
    }

    /// Publishes the fleet if it has changed.
    pub fn publish(&mut self, now: Moment) {
        if !self.unpublished {
            return;
        }
        self.unpublished = false;
        self.published = Some(now);
        self.readers.send_replace(self.fleet.clone());
        self.stats.publications.inc();
    }

    /// The history of the devices, for readers.
    pub fn history(&self) -> &SharedHistory {
        &self.history
    }

    /// Samples in the last report of each node that is not stale.
    pub fn samples(&self, now: Moment) -> Vec<NodeSamples> {
        let nodes = self.fleet.nodes.iter().filter(|node| !node.freshness.is_stale(now));
        nodes.map(|node| (node.name.clone(), Arc::clone(&node.samples))).collect()
    }

    /// Updates the metrics of the history.
    pub fn measure_history(&self) {
        self.stats.set_history(self.history.current().status());
    }

    /// Time until [`Store::publish`] is due; `None` if there is nothing to publish.
    pub fn due(&self, now: Moment) -> Option<Duration> {
        let since = self.published.map_or(PUBLISH_INTERVAL, |published| published.age(now));
        self.unpublished.then(|| PUBLISH_INTERVAL.saturating_sub(since))
    }

    /// Answer to a superseded agent.
    pub fn superseded() -> AggregatorMessage {
        AggregatorMessage::HoldOff {
            retry_after: SUPERSEDED_RETRY,
            reason: "superseded: another connection reports this node".to_owned(),
        }
    }

    /// Returns the entry of a node, creating it if there is room, with the response to this hello.
    fn admit_hello(
        &mut self,
        node: &NodeName,
        hello: &Hello,
        now: Moment,
    ) -> Result<(&mut AgentEntry, Greeting), StoreError> {
        self.make_room(node, now)?;
        let is_unknown = !self.entries.contains_key(node);
        self.fleet.saw_returning_agent |= is_unknown && hello.seq > 0;
        match self.entries.entry(node.clone()) {
            btree_map::Entry::Occupied(known) => {
                let entry = known.into_mut();
                let alive = entry.last_message.age(now) <= self.limits.stale_after;
                let greeting = entry.receiver.handle_hello(hello, alive);
                Ok((entry, greeting))
            }
            btree_map::Entry::Vacant(place) => {
                let (receiver, answer) = Receiver::new(hello);
                let entry = place.insert(AgentEntry {
                    receiver,
                    agent_version: String::new(),
                    upstream: None,
                    freshness: None,
                    baseline: Baseline::default(),
                    last_message: now,
                    stream: None,
                });
                Ok((entry, Greeting::Welcome(answer)))
            }
        }
    }

    fn open_stream(&mut self, node: &NodeName, peer: Weak<Peer>) -> (u64, oneshot::Receiver<()>) {
        self.last_stream_id = self.last_stream_id.saturating_add(1);
        let (superseded, on_superseded) = oneshot::channel();
        if let Some(entry) = self.entries.get_mut(node) {
            if let Some(freshness) = &entry.freshness {
                self.disconnected.remove(&(freshness.confirmed(), node.clone()));
            }
            entry.stream = Some(ReportStream { id: self.last_stream_id, superseded, peer });
        }
        (self.last_stream_id, on_superseded)
    }

    fn accept_status(
        &mut self,
        name: &NodeName,
        status: ReceivedStatus,
        now: Moment,
    ) -> Result<AggregatorMessage, StoreError> {
        let parts = status.parts();
        check_size(name, parts)?;
        let known = self.fleet.nodes.get(name).cloned();
        let summary = decode::decode(parts, known.as_deref(), &mut self.interned);
        let summary = summary.map_err(|source| StoreError::Status {
            node: name.clone(),
            source: Box::new(source),
        })?;
        let parts = parts.clone();
        let Some(entry) = self.entries.get_mut(name) else {
            return Err(StoreError::SecondHello);
        };
        let answer = entry.receiver.take(status);
        // Versions with the earlier status do not share it: this report does not confirm what they contain.
        let freshness = Freshness::new(now, self.limits.stale_after);
        entry.freshness = Some(freshness.clone());
        let origin = ReportingAgent {
            name: name.clone(),
            run: entry.receiver.run().clone(),
            agent_version: entry.agent_version.clone(),
        };
        let upstream = entry.upstream.clone();
        let node = Node { upstream, ..Node::new(origin, parts, summary, freshness) };
        let mut changes = entry.baseline.set_connection(true, false);
        changes.extend(entry.baseline.update(&node.report()));
        let node = match known {
            None => node,
            Some(known) => node.with_changes(known.changes_with(changes, now)),
        };
        self.fleet.nodes.insert(Arc::new(node));
        self.changed(now);
        Ok(answer)
    }

    /// Updates the node's state besides its status: whether it is connected and stale.
    fn refresh(&mut self, name: &NodeName, now: Moment, confirmed: bool) {
        let Some(entry) = self.entries.get_mut(name) else {
            return;
        };
        let Some(freshness) = &mut entry.freshness else {
            return;
        };
        if confirmed {
            freshness.confirm(now);
        }
        let (connected, stale) = (entry.stream.is_some(), freshness.is_stale(now));
        // A timely heartbeat, the usual case, does not change the freshness.
        if freshness.found_stale() != stale {
            *freshness = freshness.with_found_stale(stale);
        }
        let Some(node) = self.fleet.nodes.get(name) else {
            self.stats.count_invariant_violation("I9");
            return;
        };
        if node.connected == connected && node.freshness.found_stale() == stale {
            return;
        }
        let changes = entry.baseline.set_connection(connected, stale);
        let changes = node.changes_with(changes, now);
        let node = Node { connected, freshness: freshness.clone(), changes, ..Node::clone(node) };
        self.fleet.nodes.insert(Arc::new(node));
        self.changed(now);
    }

    fn changed(&mut self, now: Moment) {
        self.fleet.revision = self.fleet.revision.saturating_add(1);
        self.unpublished = true;
        if self.due(now) == Some(Duration::ZERO) {
            self.publish(now);
        }
    }

    fn count_resync(&self, after: &'static str, answer: &AggregatorMessage) {
        if matches!(answer, AggregatorMessage::Resync { .. }) {
            self.stats.count_resync(after);
        }
    }
}

fn kind(message: &FromAgent) -> &'static str {
    match message {
        FromAgent::Hello { .. } => "hello",
        FromAgent::Snapshot { .. } => "snapshot",
        FromAgent::Delta { .. } => "delta",
        FromAgent::Heartbeat { .. } => "heartbeat",
    }
}

fn check_size(node: &NodeName, parts: &Parts) -> Result<(), StoreError> {
    for (what, found, most) in
        [("parts", parts.len(), MAX_PARTS), ("bytes", parts.size(), MAX_STATUS_BYTES)]
    {
        if found > most {
            return Err(StoreError::TooBig { node: node.clone(), what, found, most });
        }
    }
    Ok(())
}

/// Reason why a message was refused. A refusal changes nothing.
#[derive(Debug, Error, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum StoreError {
    /// The fleet is full, and no node is both stale and disconnected.
    #[error(
        "node {node} rejected: the aggregator already stores its maximum of {most} nodes (--max-nodes)"
    )]
    TooManyNodes {
        /// The refused node.
        node: NodeName,
        /// Limit.
        most: usize,
    },
    /// A node of another cluster has the name of a node that reports here.
    #[error("node {node}: another node has this name")]
    NameInUse {
        /// The name.
        node: NodeName,
    },
    /// Repeated hello.
    #[error("hello: only the first message of a stream can be a hello message")]
    SecondHello,
    /// Status that exceeds a limit.
    #[error("node {node}: the status has {found} {what}, and the limit is {most}")]
    TooBig {
        /// The node.
        node: NodeName,
        /// Item that exceeds the limit.
        what: &'static str,
        /// Actual amount.
        found: usize,
        /// Limit.
        most: usize,
    },
    /// Invalid status.
    #[error("node {node}: invalid status")]
    #[strum(serialize = "bad_status")]
    Status {
        /// The node.
        node: NodeName,
        /// Position and reason.
        source: Box<StatusError>,
    },
}

impl StoreError {
    /// Value of the metrics label.
    pub fn label(&self) -> &'static str {
        self.into()
    }

    /// Returns whether the message exceeds a limit but is otherwise valid.
    pub fn is_limit_exceeded(&self) -> bool {
        match self {
            Self::TooManyNodes { .. } | Self::TooBig { .. } => true,
            Self::NameInUse { .. } | Self::SecondHello | Self::Status { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests;
