//! The one writer of the fleet.
//!
//! Everything agents say ends here, in one place and in one order: who speaks for a node, whether what it says is a status
//! that can be, and what readers shall see of it. Nothing is taken before it was decoded as a whole, so what is refused
//! changes nothing; nothing a peer sends can make a node grow past its bound, or the fleet past its own.
//!
//! Used through [`desk::Desk`] by `ingest`, on its one thread. Time is an argument.

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

/// The fleet, and what is known of each agent beyond it.
#[derive(Debug)]
pub struct Store {
    settings: FleetSettings,
    fleet: Fleet,
    entries: BTreeMap<NodeName, Entry>,
    /// Nodes nobody speaks for, by their last confirmation: a full fleet forgets the first of them, if it is stale.
    left: BTreeSet<(Moment, NodeName)>,
    interned: Interned,
    /// Streams that were told to end, and when.
    retired: Vec<(Moment, Weak<Peer>)>,
    lines: u64,
    readers: watch::Sender<Fleet>,
    /// When readers were given a fleet last, and whether there is another one since.
    published: Option<Moment>,
    unpublished: bool,
    stats: Stats,
}

#[derive(Debug)]
struct Entry {
    receiver: Receiver,
    agent_version: String,
    /// Of the node in the fleet, once it is there.
    freshness: Option<Freshness>,
    /// The last word of any kind.
    heard: Moment,
    line: Option<Line>,
}

/// The store's end of the stream that speaks for a node.
#[derive(Debug)]
struct Line {
    id: u64,
    superseded: oneshot::Sender<()>,
    /// Gone with the stream.
    peer: Weak<Peer>,
}

/// The right to speak for a node; whoever holds it gives it back with [`Store::disconnected`].
#[derive(Debug)]
pub struct Speaker {
    node: NodeName,
    id: u64,
    /// Resolves when it speaks for the node no more.
    pub superseded: oneshot::Receiver<()>,
}

/// What greeting comes to.
#[derive(Debug)]
pub enum Welcome {
    /// The agent may speak.
    Speak(Speaker, ToAgent),
    /// It shall go; the answer says when to come back.
    Go(ToAgent),
}

/// Bytes of one status: all contents and keys.
pub const MOST_BYTES: usize = 256 * 1024;
/// Readers get a new fleet at most this often.
const PACE: Duration = Duration::from_millis(20);
/// How long a connection is sent away that another one of the same node took the place of.
const SUPERSEDED_RETRY: Duration = Duration::from_secs(30);

impl Store {
    /// An empty fleet, and where readers get it.
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

    /// An agent greets on a stream of `peer`. The one that is welcomed last speaks for its node.
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
            // Who is gone already need not be told.
            let _gone = older.superseded.send(());
            self.retired.push((now, older.peer));
        }
        // An agent that greets with the state known here has confirmed it.
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

    /// A welcomed agent says something. `None`: another one speaks for its node by now.
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

    /// A stream has ended. What its node said stays.
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

    /// Gives readers what they have not got yet.
    pub fn publish(&mut self, now: Moment) {
        if !self.unpublished {
            return;
        }
        self.unpublished = false;
        self.published = Some(now);
        self.readers.send_replace(self.fleet.clone());
        self.stats.publications.inc();
    }

    /// In what time [`Store::publish`] has something to do.
    pub fn due(&self, now: Moment) -> Option<Duration> {
        let since = self.published.map_or(PACE, |published| published.age(now));
        self.unpublished.then(|| PACE.saturating_sub(since))
    }

    /// What a superseded agent is told.
    pub fn superseded() -> ToAgent {
        ToAgent::HoldOff {
            retry_after: SUPERSEDED_RETRY,
            reason: "superseded: another connection speaks for this node".to_owned(),
        }
    }

    /// The entry of a node, new if there is room, and what this hello is to it.
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

    /// Brings what the fleet says of a node besides its status up to date: whether it is connected, and stale.
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
        // The usual case, a heartbeat, needs no look at the fleet unless it was late.
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
