//! The single writer of the fleet.
//!
//! All reports of agents are processed here, in one place and one order. The store determines which agent reports a
//! node, validates each status, and publishes the fleet to readers. A status is decoded completely before it is
//! accepted, so a refusal changes nothing. No message can make a node or the fleet exceed its limits.
//!
//! Used through [`desk::Desk`] by `ingest`, on its single thread. Time is an argument.

pub mod desk;
mod intern;
mod read;
mod refusal;
mod upkeep;

use std::collections::btree_map;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use self::intern::Interned;
pub use self::refusal::Refusal;
use super::clock::Moment;
use super::fleet::{Fleet, Freshness, Node, Origin};
use super::peer::Peer;
use super::stats::Stats;
use crate::config::aggregator::FleetSettings;
use crate::domain::id::NodeName;
use crate::domain::stream::{Greeting, Hello, Offer, Parts, Receiver, Status, ToAgent};
use crate::wire::stream::{Identity, Incoming, MOST_PARTS};

/// The fleet, and the state of each agent's protocol.
#[derive(Debug)]
pub struct Store {
    settings: FleetSettings,
    fleet: Fleet,
    entries: BTreeMap<NodeName, Entry>,
    /// Nodes without a connection, by last confirmation: a full fleet evicts the first one if it is stale.
    left: BTreeSet<(Moment, NodeName)>,
    interned: Interned,
    /// Streams that were asked to end, and when.
    retired: Vec<(Moment, Weak<Peer>)>,
    lines: u64,
    readers: watch::Sender<Fleet>,
    /// Time of the last publication, and whether the fleet has changed since.
    published: Option<Moment>,
    unpublished: bool,
    stats: Stats,
}

#[derive(Debug)]
struct Entry {
    receiver: Receiver,
    agent_version: String,
    /// Freshness of the node; `None` before its first status.
    freshness: Option<Freshness>,
    /// Time of the last message of any kind.
    heard: Moment,
    line: Option<Line>,
}

/// The store's end of the stream that reports a node.
#[derive(Debug)]
struct Line {
    id: u64,
    superseded: oneshot::Sender<()>,
    /// Dropped with the stream.
    peer: Weak<Peer>,
}

/// Permission to report a node; its holder returns it with [`Store::disconnected`].
#[derive(Debug)]
pub struct Speaker {
    node: NodeName,
    id: u64,
    /// Resolves when another stream reports the node.
    pub superseded: oneshot::Receiver<()>,
}

/// Response to a hello.
#[derive(Debug)]
pub enum Welcome {
    /// The agent may report.
    Speak(Speaker, ToAgent),
    /// The agent must disconnect; the answer contains the time until it may reconnect.
    Go(ToAgent),
}

/// Maximum size of a status in bytes, over all contents and keys.
pub const MOST_BYTES: usize = 256 * 1024;
/// Minimum interval between publications.
const PACE: Duration = Duration::from_millis(20);
/// Time after which a superseded agent may reconnect.
const SUPERSEDED_RETRY: Duration = Duration::from_secs(30);

impl Store {
    /// Creates an empty fleet and the receiver for readers.
    pub fn new(settings: FleetSettings, stats: Stats) -> (Self, watch::Receiver<Fleet>) {
        let (readers, fleet) = watch::channel(Fleet::default());
        let store = Self {
            settings,
            fleet: Fleet::default(),
            entries: BTreeMap::new(),
            left: BTreeSet::new(),
            interned: Interned::default(),
            retired: Vec::new(),
            lines: 0,
            readers,
            published: None,
            unpublished: false,
            stats,
        };
        (store, fleet)
    }

    /// Handles a hello on a stream of `peer`. The last accepted agent reports its node.
    pub fn greet(
        &mut self,
        identity: Identity,
        hello: &Hello,
        peer: &Arc<Peer>,
        now: Moment,
    ) -> Result<Welcome, Refusal> {
        let Identity {
            node,
            agent_version,
        } = identity;
        self.stats.message("hello");
        let (entry, greeting) = self.admit(&node, hello, now)?;
        let answer = match greeting {
            Greeting::Welcome(answer) => answer,
            Greeting::Refused(answer) => {
                self.stats.refused("claimed");
                return Ok(Welcome::Go(answer));
            }
        };
        entry.heard = now;
        entry.agent_version = agent_version;
        let older = entry.line.take();
        let (id, on_superseded) = self.open(&node, peer);
        if let Some(older) = older {
            // An error means that the stream has already ended.
            let _gone = older.superseded.send(());
            self.retired.push((now, older.peer));
        }
        // A hello with the current state confirms it.
        let confirmed = matches!(answer, ToAgent::Ack { .. });
        self.count_resync("hello", &answer);
        self.renew(&node, now, confirmed);
        let speaker = Speaker {
            node,
            id,
            superseded: on_superseded,
        };
        Ok(Welcome::Speak(speaker, answer))
    }

    /// Handles a message of an accepted agent. Returns `None` if another agent reports its node by now.
    pub fn hear(
        &mut self,
        speaker: &Speaker,
        message: Incoming,
        now: Moment,
    ) -> Result<Option<ToAgent>, Refusal> {
        let Some(entry) = self.entries.get_mut(&speaker.node) else {
            return Ok(None);
        };
        if entry.line.as_ref().is_none_or(|line| line.id != speaker.id) {
            return Ok(None);
        }
        entry.heard = now;
        let kind = kind(&message);
        self.stats.message(kind);
        let offer = match message {
            Incoming::Hello { .. } => return Err(Refusal::SecondHello),
            Incoming::Snapshot { seq, parts } => {
                entry.receiver.snapshot(seq, self.interned.shared(parts))
            }
            Incoming::Delta {
                seq,
                mut change,
                hash,
            } => {
                self.interned.share(&mut change);
                entry.receiver.delta(seq, &change, hash)
            }
            Incoming::Heartbeat { seq, hash } => entry.receiver.heartbeat(seq, hash),
        };
        let answer = match offer {
            Offer::Nothing(answer) => answer,
            Offer::Confirmed(answer) => {
                self.renew(&speaker.node, now, true);
                answer
            }
            Offer::Status(status) => self.take(&speaker.node, status, now)?,
        };
        self.count_resync(kind, &answer);
        Ok(Some(answer))
    }

    /// Handles the end of a stream. The node's status is retained.
    pub fn disconnected(&mut self, speaker: &Speaker, now: Moment) {
        let Some(entry) = self.entries.get_mut(&speaker.node) else {
            return;
        };
        if entry.line.as_ref().is_none_or(|line| line.id != speaker.id) {
            return;
        }
        entry.line = None;
        if let Some(freshness) = &entry.freshness {
            let left = (freshness.confirmed(), speaker.node.clone());
            self.left.insert(left);
            self.renew(&speaker.node, now, false);
        } else {
            self.entries.remove(&speaker.node);
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

    /// Time until [`Store::publish`] is due; `None` if there is nothing to publish.
    pub fn due(&self, now: Moment) -> Option<Duration> {
        let since = self.published.map_or(PACE, |published| published.age(now));
        self.unpublished.then(|| PACE.saturating_sub(since))
    }

    /// Answer to a superseded agent.
    pub fn superseded() -> ToAgent {
        ToAgent::HoldOff {
            retry_after: SUPERSEDED_RETRY,
            reason: "superseded: another connection speaks for this node".to_owned(),
        }
    }

    /// Returns the entry of a node, creating it if there is room, with the response to this hello.
    fn admit(
        &mut self,
        node: &NodeName,
        hello: &Hello,
        now: Moment,
    ) -> Result<(&mut Entry, Greeting), Refusal> {
        self.make_room(node, now)?;
        let is_unknown = !self.entries.contains_key(node);
        self.fleet.has_returned |= is_unknown && hello.seq > 0;
        match self.entries.entry(node.clone()) {
            btree_map::Entry::Occupied(known) => {
                let entry = known.into_mut();
                let alive = entry.heard.age(now) <= self.settings.stale_after();
                let greeting = entry.receiver.greeted(hello, alive);
                Ok((entry, greeting))
            }
            btree_map::Entry::Vacant(place) => {
                let (receiver, answer) = Receiver::new(hello);
                let entry = place.insert(Entry {
                    receiver,
                    agent_version: String::new(),
                    freshness: None,
                    heard: now,
                    line: None,
                });
                Ok((entry, Greeting::Welcome(answer)))
            }
        }
    }

    fn open(&mut self, node: &NodeName, peer: &Arc<Peer>) -> (u64, oneshot::Receiver<()>) {
        self.lines = self.lines.saturating_add(1);
        let (superseded, on_superseded) = oneshot::channel();
        if let Some(entry) = self.entries.get_mut(node) {
            if let Some(freshness) = &entry.freshness {
                self.left.remove(&(freshness.confirmed(), node.clone()));
            }
            entry.line = Some(Line {
                id: self.lines,
                superseded,
                peer: Arc::downgrade(peer),
            });
        }
        (self.lines, on_superseded)
    }

    fn take(&mut self, name: &NodeName, status: Status, now: Moment) -> Result<ToAgent, Refusal> {
        let parts = status.parts();
        bounded(name, parts)?;
        let known = self.fleet.nodes.get(name).map(Arc::as_ref);
        let gist = read::read(parts, known, &mut self.interned);
        let gist = gist.map_err(|source| Refusal::Status {
            node: name.clone(),
            source: Box::new(source),
        })?;
        let parts = parts.clone();
        let Some(entry) = self.entries.get_mut(name) else {
            return Err(Refusal::SecondHello);
        };
        let answer = entry.receiver.take(status);
        let freshness = match &entry.freshness {
            Some(known) => known.found(false),
            None => Freshness::new(now, self.settings.stale_after()),
        };
        freshness.confirm(now);
        entry.freshness = Some(freshness.clone());
        let origin = Origin {
            name: name.clone(),
            run: entry.receiver.run().clone(),
            agent_version: entry.agent_version.clone(),
        };
        let node = Node::new(origin, parts, gist, freshness);
        self.fleet.nodes.insert(Arc::new(node));
        self.changed(now);
        Ok(answer)
    }

    /// Updates the node's state besides its status: whether it is connected and stale.
    fn renew(&mut self, name: &NodeName, now: Moment, confirmed: bool) {
        let Some(entry) = self.entries.get_mut(name) else {
            return;
        };
        let Some(freshness) = &mut entry.freshness else {
            return;
        };
        if confirmed {
            freshness.confirm(now);
        }
        let (connected, stale) = (entry.line.is_some(), freshness.is_stale(now));
        // A timely heartbeat, the usual case, does not change the freshness.
        if freshness.found_stale() != stale {
            *freshness = freshness.found(stale);
        }
        let Some(node) = self.fleet.nodes.get(name) else {
            self.stats.violated("I9");
            return;
        };
        if node.connected == connected && node.freshness.found_stale() == stale {
            return;
        }
        let node = Node {
            connected,
            freshness: freshness.clone(),
            ..Node::clone(node)
        };
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

    fn count_resync(&self, after: &'static str, answer: &ToAgent) {
        if matches!(answer, ToAgent::Resync { .. }) {
            self.stats.resync(after);
        }
    }
}

fn kind(message: &Incoming) -> &'static str {
    match message {
        Incoming::Hello { .. } => "hello",
        Incoming::Snapshot { .. } => "snapshot",
        Incoming::Delta { .. } => "delta",
        Incoming::Heartbeat { .. } => "heartbeat",
    }
}

fn bounded(node: &NodeName, parts: &Parts) -> Result<(), Refusal> {
    for (what, found, most) in [
        ("parts", parts.len(), MOST_PARTS),
        ("bytes", parts.size(), MOST_BYTES),
    ] {
        if found > most {
            return Err(Refusal::TooBig {
                node: node.clone(),
                what,
                found,
                most,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
