//! For any messages in any order, readers see the last valid status, and a refusal changes nothing.

mod full;
mod model;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::time::timeout;

use super::*;
use crate::domain::inventory::{Inventory, Machine, NvmlState};
use crate::domain::labels::tests_support::label_set;
use crate::domain::stream::{Change, Content, FromAgent, PartKey, Run, Sender};
use crate::wire::status;
use crate::wire::stream::{encode_from_agent, parse_from_agent};

const STALE: Duration = Duration::from_secs(10);
const FORGET: Duration = Duration::from_secs(100);

/// A store with its readers and time.
struct World {
    store: Store,
    readers: watch::Receiver<Fleet>,
    now: Moment,
}

/// An agent with its connection.
struct Agent {
    sender: Sender,
    identity: Identity,
    peer: Arc<Peer>,
    speaker: Option<Speaker>,
}

impl World {
    fn new(max_nodes: usize) -> Self {
        let settings = FleetSettings::new(STALE, FORGET, max_nodes);
        let (store, readers) = Store::new(settings, Stats::default());
        Self {
            store,
            readers,
            now: Moment::from_millis(0),
        }
    }

    fn pass(&mut self, millis: u64) {
        self.now = Moment::from_millis(self.now.as_millis() + millis);
    }

    fn fleet(&mut self) -> Fleet {
        self.store.publish(self.now);
        self.readers.borrow().clone()
    }

    fn node(&mut self, name: &str) -> Option<Arc<Node>> {
        let name: NodeName = name.parse().unwrap();
        self.fleet().nodes.get(&name).cloned()
    }

    fn hear(&mut self, agent: &Agent, message: &FromAgent) -> Result<Option<ToAgent>, Refusal> {
        let message = encode_from_agent(message, &agent.identity);
        let message = parse_from_agent(message).unwrap();
        let speaker = agent.speaker.as_ref().unwrap();
        self.store.hear(speaker, message, self.now)
    }

    /// Connects the agent and exchanges messages until both sides are in sync.
    fn connect(&mut self, agent: &mut Agent) -> Result<(), Refusal> {
        let FromAgent::Hello(hello) = agent.sender.connected() else {
            panic!("an agent begins with a hello");
        };
        let identity = agent.identity.clone();
        match self.store.greet(identity, &hello, &agent.peer, self.now)? {
            Welcome::Go(_) => agent.sender.disconnected(),
            Welcome::Speak(speaker, answer) => {
                agent.speaker = Some(speaker);
                if let Some(message) = agent.sender.received(&answer) {
                    self.converse(agent, message)?;
                }
            }
        }
        Ok(())
    }

    fn converse(&mut self, agent: &mut Agent, message: FromAgent) -> Result<(), Refusal> {
        let mut next = Some(message);
        while let Some(message) = next {
            next = if let Some(answer) = self.hear(agent, &message)? {
                agent.sender.received(&answer)
            } else {
                agent.hang_up();
                None
            };
        }
        Ok(())
    }

    fn disconnect(&mut self, agent: &mut Agent) {
        agent.sender.disconnected();
        if let Some(speaker) = agent.speaker.take() {
            self.store.disconnected(&speaker, self.now);
        }
    }
}

impl Agent {
    fn new(node: &str, epoch: u64) -> Self {
        let boot_id = "b".to_owned();
        Self {
            sender: Sender::new(Run { epoch, boot_id }),
            identity: Identity {
                node: node.parse().unwrap(),
                agent_version: "1.2.3".to_owned(),
            },
            peer: Arc::new(Peer::new("127.0.0.1:1".parse().unwrap())),
            speaker: None,
        }
    }

    /// An agent with a status to report.
    fn with(node: &str, parts: Parts) -> Self {
        let mut agent = Self::new(node, 1);
        assert_eq!(agent.sender.observed(parts), None);
        agent
    }

    fn hang_up(&mut self) {
        self.sender.disconnected();
        self.speaker = None;
    }
}

fn parts(number: u64) -> Parts {
    let inventory = Inventory {
        neuron: None,
        machine: Machine::default(),
        nvml: NvmlState::Absent {
            reason: format!("reason {number}"),
        },
        devices: Vec::new(),
    };
    status::encode(&inventory, &label_set(&[("octavo.dev/count", "8")]), None)
}

fn changed(key: &str, bytes: &[u8]) -> Change {
    Change {
        changed: vec![(key.parse().unwrap(), Content::new(bytes))],
        removed: Vec::new(),
    }
}

/// A connected agent that is in sync.
fn settled(world: &mut World, node: &str) -> Agent {
    let mut agent = Agent::with(node, parts(1));
    world.connect(&mut agent).unwrap();
    assert!(agent.sender.is_in_sync());
    agent
}

/// Asserts that a change is refused with this text and does not change the node.
fn refused(world: &mut World, agent: &Agent, change: &Change, text: &str) {
    let before = world.node("n").unwrap();
    let message = FromAgent::Delta {
        seq: 2,
        change: change.clone(),
        hash: before.parts.with(change).hash(),
    };
    let refusal = world.hear(agent, &message).unwrap_err();
    let said = crate::domain::error::chain(&refusal);
    assert!(said.contains(text), "{said}");
    assert!(Arc::ptr_eq(&before, &world.node("n").unwrap()));
    // The agent can still send valid messages.
    let heartbeat = agent.sender.heartbeat().unwrap();
    let answer = world.hear(agent, &heartbeat).unwrap();
    assert_eq!(answer, Some(ToAgent::Ack { seq: 1 }));
}

#[test]
fn a_node_appears_with_its_first_status_and_not_before() {
    let mut world = World::new(9);
    let mut agent = Agent::new("n", 1);
    // The agent answers the resync with an empty status, which is invalid without the part `node`.
    let refusal = world.connect(&mut agent).unwrap_err();
    assert_eq!(refusal.word(), "bad_status");
    assert_eq!(
        (world.store.entries.len(), world.fleet().nodes.len()),
        (1, 0)
    );
    world.disconnect(&mut agent);
    assert_eq!(world.store.entries.len(), 0, "there was nothing to keep");
    assert_eq!(agent.sender.observed(parts(1)), None);
    world.connect(&mut agent).unwrap();
    let node = world.node("n").unwrap();
    assert_eq!((node.connected, &node.parts), (true, &parts(1)));
    assert_eq!(node.agent_version, "1.2.3");
}

#[test]
fn a_part_that_cannot_be_is_refused_with_its_place() {
    let mut world = World::new(9);
    let agent = settled(&mut world, "n");
    refused(&mut world, &agent, &changed("node", &[0xff]), "part node");
    let device = changed("device/0000:07:00.0", &[0xff]);
    refused(&mut world, &agent, &device, "device/0000:07:00.0");
}

#[test]
fn a_change_cannot_make_a_node_too_big() {
    let mut world = World::new(9);
    let agent = settled(&mut world, "n");
    let all = (0..MOST_PARTS).map(|number| {
        let key: PartKey = format!("x/{number}").parse().unwrap();
        (key, Content::new(&b""[..]))
    });
    let many = Change {
        changed: all.collect(),
        removed: Vec::new(),
    };
    refused(&mut world, &agent, &many, "has 1026 parts, 1024 is");
    let big = changed("x/1", &vec![0; MOST_BYTES]);
    refused(&mut world, &agent, &big, "bytes, 262144 is the limit");
}

#[test]
fn a_second_hello_and_a_node_too_many_are_refused() {
    let mut world = World::new(1);
    let agent = settled(&mut world, "n");
    let hello = agent.sender.clone().connected();
    let refusal = world.hear(&agent, &hello).unwrap_err();
    assert!(matches!(refusal, Refusal::SecondHello));
    let refusal = world.connect(&mut Agent::new("m", 1)).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "node m: this aggregator keeps 1 nodes and has as many"
    );
    assert!(refusal.is_too_much());
    assert_eq!(world.fleet().nodes.len(), 1);
}

#[test]
fn the_connection_that_was_welcomed_last_speaks_alone() {
    let mut world = World::new(9);
    let mut older = settled(&mut world, "n");
    let mut newer = Agent::with("n", parts(2));
    newer.sender = Sender::new(Run {
        epoch: 2,
        boot_id: "b".to_owned(),
    });
    assert_eq!(newer.sender.observed(parts(2)), None);
    world.connect(&mut newer).unwrap();
    let heartbeat = older.sender.heartbeat().unwrap();
    assert_eq!(world.hear(&older, &heartbeat).unwrap(), None);
    let told = older.speaker.as_mut().unwrap().superseded.try_recv();
    assert_eq!(told, Ok(()));
    // The end of the older stream does not affect the newer one.
    world.disconnect(&mut older);
    let node = world.node("n").unwrap();
    assert_eq!((node.connected, &node.parts), (true, &parts(2)));
    // While the newer one is alive, the older one is refused.
    world.connect(&mut older).unwrap();
    assert!(older.speaker.is_none());
}

#[test]
fn an_agent_that_comes_back_is_known_and_sends_nothing_again() {
    let mut world = World::new(9);
    let mut agent = settled(&mut world, "n");
    world.disconnect(&mut agent);
    let gone = world.node("n").unwrap();
    assert!(!gone.connected);
    world.pass(5000);
    world.connect(&mut agent).unwrap();
    let back = world.node("n").unwrap();
    assert!(back.connected && agent.sender.is_in_sync());
    assert_eq!(back.freshness.age(world.now), Duration::ZERO);
    assert_eq!(back.changed, gone.changed);
}

#[test]
fn a_heartbeat_makes_no_new_version_unless_the_node_was_stale() {
    let mut world = World::new(9);
    let agent = settled(&mut world, "n");
    let first = world.node("n").unwrap();
    let heartbeat = agent.sender.heartbeat().unwrap();
    world.pass(9000);
    world.hear(&agent, &heartbeat).unwrap();
    world.pass(9000);
    world.store.sweep(world.now);
    assert!(Arc::ptr_eq(&first, &world.node("n").unwrap()));
    world.pass(1001);
    world.store.sweep(world.now);
    let stale = world.node("n").unwrap();
    assert!(stale.freshness.found_stale() && stale.freshness.is_stale(world.now));
    world.hear(&agent, &heartbeat).unwrap();
    let live = world.node("n").unwrap();
    assert!(!live.freshness.found_stale() && !live.freshness.is_stale(world.now));
}

#[tokio::test]
async fn who_is_silent_for_too_long_is_cut_off_and_then_forgotten() {
    let mut world = World::new(9);
    let agent = settled(&mut world, "n");
    world.pass(30_000);
    world.store.sweep(world.now);
    assert!(world.node("n").unwrap().connected);
    world.pass(1);
    world.store.sweep(world.now);
    assert!(!world.node("n").unwrap().connected);
    timeout(Duration::ZERO, agent.peer.ended()).await.unwrap();
    world.pass(80_000);
    world.store.sweep(world.now);
    assert_eq!(world.fleet().nodes.len(), 0);
    assert_eq!(world.store.entries.len(), 0);
}

#[tokio::test]
async fn a_superseded_stream_that_does_not_end_is_ended() {
    let mut world = World::new(9);
    let older = settled(&mut world, "n");
    let newer = settled(&mut world, "n");
    world.pass(10_000);
    world.store.sweep(world.now);
    assert_eq!(world.store.retired.len(), 1);
    world.pass(1);
    world.store.sweep(world.now);
    assert_eq!(world.store.retired.len(), 0);
    timeout(Duration::ZERO, older.peer.ended()).await.unwrap();
    assert!(timeout(Duration::ZERO, newer.peer.ended()).await.is_err());
}

#[test]
fn equal_nodes_share_what_they_have_alike_and_the_last_of_them_takes_it_away() {
    let mut world = World::new(9);
    let mut agents: Vec<Agent> = ["a", "b", "c"]
        .iter()
        .map(|name| settled(&mut world, name))
        .collect();
    let fleet = world.fleet();
    let nodes: Vec<&Arc<Node>> = fleet.nodes.iter().collect();
    let content = |node: &Arc<Node>| Arc::clone(node.parts.get("labels").unwrap().shared());
    for node in &nodes {
        assert!(Arc::ptr_eq(&node.labels, &nodes[0].labels));
        assert!(Arc::ptr_eq(&content(node), &content(nodes[0])));
    }
    // A delta with known contents adds nothing.
    let mut more = parts(7);
    more = more.with(&changed("profiles/x", b""));
    for agent in &mut agents {
        let message = agent.sender.observed(more.clone()).unwrap();
        world.converse(agent, message).unwrap();
    }
    assert_eq!(world.store.interned.len(), 2);
    drop(fleet);
    world.pass(200_000);
    world.store.sweep(world.now);
    let _published = world.fleet();
    world.store.sweep(world.now);
    assert_eq!(world.store.interned.len(), 0);
}

#[test]
fn the_first_change_is_published_at_once_and_those_that_follow_together() {
    let mut world = World::new(9);
    let mut agent = Agent::with("n", parts(1));
    world.connect(&mut agent).unwrap();
    assert_eq!(world.readers.borrow().revision, 1);
    for number in 2..5 {
        let message = agent.sender.observed(parts(number)).unwrap();
        world.converse(&mut agent, message).unwrap();
        assert_eq!(world.readers.borrow().revision, 1);
        assert_eq!(world.store.due(world.now), Some(PACE));
    }
    world.pass(20);
    assert_eq!(world.store.due(world.now), Some(Duration::ZERO));
    assert_eq!(world.fleet().revision, 4);
    assert_eq!(world.store.due(world.now), None);
}
