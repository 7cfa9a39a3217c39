//! For any messages in any order, readers see the last valid status, and a refusal changes nothing.

mod full;
mod model;

use jiff::Timestamp;
use octavo_history::{History, Metric, Span, Step};
use octavo_model::inventory::{Driver, Inventory, NvmlState};
use octavo_model::reading::Percent;
use octavo_node::label_set::LabelSet;
use octavo_node::sharing::usage::{DeviceUsage, Usage};
use octavo_stream::messages::{encode_from_agent, parse_from_agent};
use octavo_stream::protocol::{Change, Content, FromAgent, PartKey, Run, Sender};
use octavo_stream::status;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::time::timeout;

use super::*;

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
    name: String,
    sender: Sender,
    peer: Arc<Peer>,
    permit: Option<ReportPermit>,
}

impl World {
    fn new(max_nodes: usize) -> Self {
        let limits = StoreLimits {
            stale_after: STALE,
            forget_after: FORGET,
            max_nodes,
            history_bytes: 1 << 20,
        };
        let (store, readers) = Store::new(limits, Stats::default());
        Self { store, readers, now: Moment::from_millis(0) }
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

    fn handle(
        &mut self,
        agent: &Agent,
        message: &FromAgent,
    ) -> Result<Option<AggregatorMessage>, StoreError> {
        let message = encode_from_agent(message);
        let message = parse_from_agent(message).unwrap();
        let permit = agent.permit.as_ref().unwrap();
        self.store.handle_message(permit, message, self.now)
    }

    /// Connects the agent and exchanges messages until both sides are in sync.
    fn connect(&mut self, agent: &mut Agent) -> Result<(), StoreError> {
        let FromAgent::Hello(hello) = agent.sender.connected() else {
            panic!("an agent begins with a hello");
        };
        match self.store.accept_hello(&hello, &agent.peer, self.now)? {
            HelloOutcome::HoldOff(_) => agent.sender.disconnected(),
            HelloOutcome::Accepted(permit, answer) => {
                agent.permit = Some(permit);
                if let Some(message) = agent.sender.handle_message(&answer) {
                    self.exchange_messages(agent, message)?;
                }
            }
        }
        Ok(())
    }

    fn exchange_messages(
        &mut self,
        agent: &mut Agent,
        message: FromAgent,
    ) -> Result<(), StoreError> {
        let mut next = Some(message);
        while let Some(message) = next {
            next = if let Some(answer) = self.handle(agent, &message)? {
                agent.sender.handle_message(&answer)
            } else {
                agent.drop_connection();
                None
            };
        }
        Ok(())
    }

    fn disconnect(&mut self, agent: &mut Agent) {
        agent.sender.disconnected();
        if let Some(permit) = agent.permit.take() {
            self.store.disconnected(&permit, self.now);
        }
    }
}

fn identity(node: &str) -> Identity {
    Identity { node: node.parse().unwrap(), agent_version: "1.2.3".to_owned() }
}

impl Agent {
    fn new(node: &str, epoch: u64) -> Self {
        let boot_id = "b".to_owned();
        Self {
            name: node.to_owned(),
            sender: Sender::new(identity(node), Run { epoch, boot_id }),
            peer: Arc::new(Peer::new("127.0.0.1:1".parse().unwrap())),
            permit: None,
        }
    }

    /// An agent with a status to report.
    fn with(node: &str, parts: Parts) -> Self {
        let mut agent = Self::new(node, 1);
        assert_eq!(agent.sender.set_status(parts), None);
        agent
    }

    fn drop_connection(&mut self) {
        self.sender.disconnected();
        self.permit = None;
    }
}

fn parts(number: u64) -> Parts {
    let inventory = Inventory {
        nvml: NvmlState::Absent { reason: format!("reason {number}") },
        ..Inventory::default()
    };
    let labels = [("octavo.dev/count".parse().unwrap(), "8".parse().unwrap())];
    status::encode(&inventory, &labels.into_iter().collect(), None)
}

fn changed(key: &str, bytes: &[u8]) -> Change {
    Change { changed: vec![(key.parse().unwrap(), Content::new(bytes))], removed: Vec::new() }
}

/// A connected agent that is in sync.
fn synced_agent(world: &mut World, node: &str) -> Agent {
    let mut agent = Agent::with(node, parts(1));
    world.connect(&mut agent).unwrap();
    assert!(agent.sender.is_in_sync());
    agent
}

/// Asserts that a change is refused with this text and does not change the node.
fn assert_refused(world: &mut World, agent: &Agent, change: &Change, text: &str) {
    let before = world.node("n").unwrap();
    let message = FromAgent::Delta {
        seq: 2,
        change: change.clone(),
        hash: before.parts.apply(change).hash(),
    };
    let refusal = world.handle(agent, &message).unwrap_err();
    let message = octavo_toolkit::error::chain(&refusal);
    assert!(message.contains(text), "{message}");
    assert!(Arc::ptr_eq(&before, &world.node("n").unwrap()));
    // The agent can still send valid messages.
    let heartbeat = agent.sender.heartbeat().unwrap();
    let answer = world.handle(agent, &heartbeat).unwrap();
    assert_eq!(answer, Some(AggregatorMessage::Ack { seq: 1 }));
}

#[test]
fn node_appears_with_its_first_status_and_not_before() {
    let mut world = World::new(9);
    let mut agent = Agent::new("n", 1);
    // The agent answers the resync with an empty status, which is invalid without the part `node`.
    let refusal = world.connect(&mut agent).unwrap_err();
    assert_eq!(refusal.label(), "bad_status");
    assert_eq!((world.store.entries.len(), world.fleet().nodes.len()), (1, 0));
    world.disconnect(&mut agent);
    assert_eq!(world.store.entries.len(), 0, "a rejected node is retained");
    assert_eq!(agent.sender.set_status(parts(1)), None);
    world.connect(&mut agent).unwrap();
    let node = world.node("n").unwrap();
    assert_eq!((node.connected, &node.parts), (true, &parts(1)));
    assert_eq!(node.agent_version, "1.2.3");
}

#[tokio::test]
async fn history_has_the_last_report_of_fresh_nodes_once_per_step() {
    let mut world = World::new(9);
    let usage = Usage {
        devices: vec![DeviceUsage {
            pci: "0000:07:00.0".parse().unwrap(),
            name: "GPU 0".to_owned(),
            memory: None,
            utilization: Some(Percent(40)),
            power_watts: None,
            temperature_celsius: None,
            units: Vec::new(),
        }],
        ..Usage::default()
    };
    let all = parts(1);
    let all = all.iter().map(|(key, content)| (key.clone(), content.clone()));
    let mut agent = Agent::with("n", all.chain([status::encode_usage(&usage)]).collect());
    world.connect(&mut agent).unwrap();
    let start = Timestamp::from_second(1_800_000_000).unwrap();
    let record = async |world: &mut World, seconds: u64| {
        world.now = Moment::from_millis(seconds * 1000);
        let history = world.store.history();
        let passed = Duration::from_secs(seconds);
        if let Some(step) = history.next_step(start.checked_add(passed).unwrap()) {
            history.record(step, &world.store.samples(world.now)).await;
        }
    };
    let utilization = |history: &History| {
        let window = history.window(Span::Hour, Step::Sample);
        let (node, key) = ("n".parse().unwrap(), &history.of_node(&"n".parse().unwrap())[0].0);
        history.of_device(&node, key, Metric::Utilization, window)
    };
    // The report becomes stale after 10 s, and the agent confirms it after 31 s.
    for seconds in [0, 1, 14, 15, 30] {
        record(&mut world, seconds).await;
    }
    world.now = Moment::from_millis(31_000);
    let heartbeat = agent.sender.heartbeat().unwrap();
    world.handle(&agent, &heartbeat).unwrap();
    for seconds in [32, 45] {
        record(&mut world, seconds).await;
    }
    let history = world.store.history().current();
    let points = utilization(&history);
    let values = &points.values[points.values.len() - 4..];
    assert_eq!(values, [Some(40), None, None, None]);
    assert_eq!(history.status().series, 1);
    record(&mut world, 59).await;
    world.handle(&agent, &heartbeat).unwrap();
    record(&mut world, 60).await;
    let history = world.store.history().current();
    let points = utilization(&history);
    assert_eq!(points.values.last(), Some(&Some(40)));
}

/// The ledger extends the usage in a report until its last confirmation, so a gap would otherwise count as used.
#[test]
fn report_after_a_gap_does_not_confirm_the_earlier_one() {
    let mut world = World::new(9);
    let mut agent = synced_agent(&mut world, "n");
    let earlier = world.node("n").unwrap();
    world.pass(1_000);
    let heartbeat = agent.sender.heartbeat().unwrap();
    world.handle(&agent, &heartbeat).unwrap();
    assert_eq!(earlier.freshness.confirmed(), world.now);
    world.disconnect(&mut agent);

    let last_confirmed = world.now;
    world.pass(60_000);
    let mut agent = Agent::new("n", 2);
    assert_eq!(agent.sender.set_status(parts(2)), None);
    world.connect(&mut agent).unwrap();
    assert_eq!(earlier.freshness.confirmed(), last_confirmed);
    assert_eq!(world.node("n").unwrap().freshness.confirmed(), world.now);
}

#[test]
fn invalid_part_is_refused_with_its_key() {
    let mut world = World::new(9);
    let agent = synced_agent(&mut world, "n");
    assert_refused(&mut world, &agent, &changed("node", &[0xff]), "part node");
    let device = changed("device/0000:07:00.0", &[0xff]);
    assert_refused(&mut world, &agent, &device, "device/0000:07:00.0");
}

#[test]
fn status_size_is_bounded() {
    let mut world = World::new(9);
    let agent = synced_agent(&mut world, "n");
    let all = (0..MAX_PARTS).map(|number| {
        let key: PartKey = format!("x/{number}").parse().unwrap();
        (key, Content::new(&b""[..]))
    });
    let many = Change { changed: all.collect(), removed: Vec::new() };
    assert_refused(&mut world, &agent, &many, "has 1026 parts, and the limit is 1024");
    let big = changed("x/1", &vec![0; MAX_STATUS_BYTES]);
    assert_refused(&mut world, &agent, &big, "bytes, and the limit is 262144");
}

#[test]
fn second_hello_and_excess_node_are_refused() {
    let mut world = World::new(1);
    let agent = synced_agent(&mut world, "n");
    let hello = agent.sender.clone().connected();
    let refusal = world.handle(&agent, &hello).unwrap_err();
    assert!(matches!(refusal, StoreError::SecondHello));
    let refusal = world.connect(&mut Agent::new("m", 1)).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "node m rejected: the aggregator already stores its maximum of 1 nodes (--max-nodes)"
    );
    assert!(refusal.is_limit_exceeded());
    assert_eq!(world.fleet().nodes.len(), 1);
}

#[test]
fn last_accepted_connection_supersedes_earlier_ones() {
    let mut world = World::new(9);
    let mut older = synced_agent(&mut world, "n");
    let mut newer = Agent::with("n", parts(2));
    newer.sender = Sender::new(identity("n"), Run { epoch: 2, boot_id: "b".to_owned() });
    assert_eq!(newer.sender.set_status(parts(2)), None);
    world.connect(&mut newer).unwrap();
    let heartbeat = older.sender.heartbeat().unwrap();
    assert_eq!(world.handle(&older, &heartbeat).unwrap(), None);
    let signal = older.permit.as_mut().unwrap().superseded.try_recv();
    assert_eq!(signal, Ok(()));
    // The end of the older stream does not affect the newer one.
    world.disconnect(&mut older);
    let node = world.node("n").unwrap();
    assert_eq!((node.connected, &node.parts), (true, &parts(2)));
    // While the newer one is alive, the older one is refused.
    world.connect(&mut older).unwrap();
    assert!(older.permit.is_none());
}

#[test]
fn reconnected_agent_does_not_resend_its_status() {
    let mut world = World::new(9);
    let mut agent = synced_agent(&mut world, "n");
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
fn heartbeat_creates_no_new_version_of_a_fresh_node() {
    let mut world = World::new(9);
    let agent = synced_agent(&mut world, "n");
    let first = world.node("n").unwrap();
    let heartbeat = agent.sender.heartbeat().unwrap();
    world.pass(9000);
    world.handle(&agent, &heartbeat).unwrap();
    world.pass(9000);
    world.store.sweep(world.now);
    assert!(Arc::ptr_eq(&first, &world.node("n").unwrap()));
    world.pass(1001);
    world.store.sweep(world.now);
    let stale = world.node("n").unwrap();
    assert!(stale.freshness.found_stale() && stale.freshness.is_stale(world.now));
    world.handle(&agent, &heartbeat).unwrap();
    let live = world.node("n").unwrap();
    assert!(!live.freshness.found_stale() && !live.freshness.is_stale(world.now));
}

#[tokio::test]
async fn silent_agent_is_disconnected_and_later_removed() {
    let mut world = World::new(9);
    let agent = synced_agent(&mut world, "n");
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
async fn superseded_stream_is_closed_after_a_timeout() {
    let mut world = World::new(9);
    let older = synced_agent(&mut world, "n");
    let newer = synced_agent(&mut world, "n");
    world.pass(10_000);
    world.store.sweep(world.now);
    assert_eq!(world.store.closing.len(), 1);
    world.pass(1);
    world.store.sweep(world.now);
    assert_eq!(world.store.closing.len(), 0);
    timeout(Duration::ZERO, older.peer.ended()).await.unwrap();
    assert!(timeout(Duration::ZERO, newer.peer.ended()).await.is_err());
}

#[test]
fn changes_of_a_node_are_recorded_until_it_is_forgotten() {
    let lines = |node: &Node| -> Vec<String> {
        node.changes.newest().map(|entry| entry.change.summary()).collect()
    };
    let mut world = World::new(9);
    let mut agent = synced_agent(&mut world, "n");
    let first = world.node("n").unwrap();
    assert_eq!(lines(&first), [""; 0]);
    world.pass(1000);
    let message = agent.sender.set_status(parts(2)).unwrap();
    world.exchange_messages(&mut agent, message).unwrap();
    let node = world.node("n").unwrap();
    assert!(
        Arc::ptr_eq(&first.changes, &node.changes),
        "a changed reason text is recorded as a change"
    );
    let driver = parts_with_driver();
    let message = agent.sender.set_status(driver).unwrap();
    world.exchange_messages(&mut agent, message).unwrap();
    world.pass(1000);
    world.disconnect(&mut agent);
    let node = world.node("n").unwrap();
    let expected =
        ["Agent: connected -> disconnected", "NVML: absent -> ready", "NVIDIA driver: 570.133.20"];
    assert_eq!(lines(&node), expected);
    let newest = node.changes.newest().next().unwrap();
    assert_eq!((newest.last, newest.count), (Duration::from_secs(2), 1));
    world.pass(20_000);
    world.store.sweep(world.now);
    assert_eq!(lines(&world.node("n").unwrap())[0], "Reports: current -> stale");
    world.connect(&mut agent).unwrap();
    let back = lines(&world.node("n").unwrap());
    assert_eq!(back[..2], ["Reports: stale -> current", "Agent: disconnected -> connected"]);
    world.disconnect(&mut agent);
    world.pass(200_000);
    world.store.sweep(world.now);
    assert!(world.node("n").is_none());
    world.connect(&mut agent).unwrap();
    assert_eq!(lines(&world.node("n").unwrap()), [""; 0]);
}

/// The parts of a node whose driver answers.
fn parts_with_driver() -> Parts {
    let driver = Driver { version: "570.133.20".parse().unwrap(), cuda: None };
    let inventory = Inventory { nvml: NvmlState::Ready(driver), ..Inventory::default() };
    status::encode(&inventory, &LabelSet::default(), None)
}

#[test]
fn equal_contents_are_shared_and_purged_with_their_last_node() {
    let mut world = World::new(9);
    let mut agents: Vec<Agent> =
        ["a", "b", "c"].iter().map(|name| synced_agent(&mut world, name)).collect();
    let fleet = world.fleet();
    let nodes: Vec<&Arc<Node>> = fleet.nodes.iter().collect();
    let content = |node: &Arc<Node>| Arc::clone(node.parts.get("labels").unwrap().shared());
    for node in &nodes {
        assert!(Arc::ptr_eq(&node.labels, &nodes[0].labels));
        assert!(Arc::ptr_eq(&content(node), &content(nodes[0])));
    }
    // A delta with known contents adds nothing.
    let mut more = parts(7);
    more = more.apply(&changed("profiles/x", b""));
    for agent in &mut agents {
        let message = agent.sender.set_status(more.clone()).unwrap();
        world.exchange_messages(agent, message).unwrap();
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
fn first_change_is_published_immediately_and_later_ones_are_batched() {
    let mut world = World::new(9);
    let mut agent = Agent::with("n", parts(1));
    world.connect(&mut agent).unwrap();
    assert_eq!(world.readers.borrow().revision, 1);
    for number in 2..5 {
        let message = agent.sender.set_status(parts(number)).unwrap();
        world.exchange_messages(&mut agent, message).unwrap();
        assert_eq!(world.readers.borrow().revision, 1);
        assert_eq!(world.store.due(world.now), Some(PUBLISH_INTERVAL));
    }
    world.pass(20);
    assert_eq!(world.store.due(world.now), Some(Duration::ZERO));
    assert_eq!(world.fleet().revision, 4);
    assert_eq!(world.store.due(world.now), None);
}
