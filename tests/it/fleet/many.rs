//! Many nodes: they reconnect spread over time, and slow readers do not delay them.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use octavo_agent::uplink::{Outbox, Uplink};
use octavo_client::endpoint::{AggregatorEndpoint, Security};
use octavo_model::id::NodeName;
use octavo_model::inventory::{Inventory, Machine, NvmlState};
use octavo_node::label_set::LabelSet;
use octavo_stream::proto::v1;
use octavo_stream::proto::v1::fleet_client::FleetClient;
use octavo_stream::proto::v1::watch_event::Event;
use octavo_stream::protocol::{Identity, Parts, Run};
use octavo_stream::status;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::transport::Endpoint;
use tracing::{Instrument, info_span};

use crate::agent_stream::{AgentStream, acknowledged, delta};
use crate::fleet_api::{Api, TIME_LIMIT};
use crate::process::Aggregator;
use crate::time_limits::within;

/// Log of the agents of a test, with the node in each line.
#[derive(Clone, Default)]
struct Log(Arc<EventLog>);

#[derive(Default)]
struct EventLog {
    lines: Mutex<Vec<String>>,
    more: Notify,
}

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line).into_owned();
        let lines = self.0.lines.lock();
        lines.unwrap_or_else(PoisonError::into_inner).push(text);
        self.0.more.notify_one();
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Lines with `text` so far.
    fn lines(&self, text: &str) -> Vec<String> {
        let lines = self.0.lines.lock();
        let lines = lines.unwrap_or_else(PoisonError::into_inner);
        let lines = lines.iter().filter(|line| line.contains(text));
        lines.cloned().collect()
    }

    /// Waits until `text` was logged this many times.
    async fn wait_for(&self, text: &str, count: usize) -> Vec<String> {
        let reported = async {
            loop {
                let lines = self.lines(text);
                if lines.len() >= count {
                    return lines;
                }
                self.0.more.notified().await;
            }
        };
        timeout(TIME_LIMIT, reported).await.unwrap()
    }
}

/// The status of a node, distinguished by a word and by its state of NVML.
fn inventory(word: &str, nvml: NvmlState) -> Inventory {
    let machine = Machine { product_name: Some(word.to_owned()), vgpu: None, bus_error: None };
    Inventory { machine, nvml, ..Inventory::default() }
}

fn lost() -> NvmlState {
    let reason = "unloaded".to_owned();
    NvmlState::Lost { reason }
}

fn name(number: usize) -> String {
    format!("n-{number:03}")
}

/// The uplink of an agent, which runs while its outbox exists.
fn uplink(number: usize, to: &Aggregator) -> Outbox {
    let node: NodeName = name(number).parse().unwrap();
    let identity = Identity { node: node.clone(), agent_version: "1.2.3".to_owned() };
    let run = Run { epoch: 1, boot_id: "b".to_owned() };
    let heartbeat = Duration::from_secs(10);
    let url = format!("http://{}", to.grpc).parse().unwrap();
    let security = Security::Plaintext;
    let aggregator = AggregatorEndpoint { url, security, token: None, window_bytes: 65_536 };
    let (mut outbox, uplink) = Uplink::new(aggregator, identity, run, heartbeat);
    outbox.put(&inventory("first", NvmlState::Loading), &LabelSet::default(), None);
    let span = info_span!("agent", %node);
    tokio::spawn(uplink.run().instrument(span));
    outbox
}

/// The delay in a line about a failure, in tenths of a second.
fn wait(line: &str) -> u32 {
    let (_, rest) = line.split_once("retry_in=").unwrap();
    let (seconds, tenths) = rest.split_once(' ').unwrap().0.split_once('.').unwrap();
    seconds.parse::<u32>().unwrap() * 10 + tenths.parse::<u32>().unwrap()
}

#[tokio::test]
async fn two_hundred_agents_reconnect_spread_over_time_with_all_changes() {
    const AGENTS: usize = 200;
    let mut aggregator = Aggregator::start(&["--plaintext"]);
    let api = Api::at(aggregator.http);
    let log = Log::default();
    let writer = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    // All of the test runs on this thread.
    let _while_this_lives = tracing::subscriber::set_default(subscriber);
    let mut agents: Vec<Outbox> = (0..AGENTS).map(|n| uplink(n, &aggregator)).collect();
    log.wait_for(": reporting to the aggregator", AGENTS).await;
    api.list(|nodes| nodes.len() == AGENTS).await;

    aggregator.kill();
    let reported = log.wait_for("cannot report to the aggregator", AGENTS).await;
    for agent in agents.iter_mut().step_by(2) {
        agent.put(&inventory("second", lost()), &LabelSet::default(), None);
    }
    aggregator.restart();
    log.wait_for(": reporting to the aggregator", 2 * AGENTS).await;
    let nodes = api
        .list(|nodes| {
            let came_back = nodes.iter().filter(|node| node["connected"] == true);
            let lost = nodes.iter().filter(|node| node["state"] == "nvml-lost");
            came_back.count() == AGENTS && lost.count() == AGENTS / 2
        })
        .await;
    for (number, node) in nodes.iter().enumerate() {
        let state = ["nvml-lost", "empty"][number % 2];
        assert_eq!((&node["name"], &node["state"]), (&name(number).into(), &state.into()));
    }
    assert_eq!(log.lines(": reporting to the aggregator").len(), 2 * AGENTS);

    // The first delay of each is random between 0.1 s and 1 s: about 67 of 200 in each third.
    let mut first: BTreeMap<&str, u32> = BTreeMap::new();
    for line in &reported {
        let (_, node) = line.split_once("node=").unwrap();
        first.entry(&node[..5]).or_insert_with(|| wait(line));
    }
    assert_eq!(first.len(), AGENTS);
    assert!(first.values().all(|wait| (1..=10).contains(wait)), "{first:?}");
    for third in [1..=3_u32, 4..=7, 8..=10] {
        let count = first.values().filter(|&wait| third.contains(wait)).count();
        assert!(count >= 20, "{count} waits in {third:?}: {first:?}");
    }
}

const CHANGES: u64 = 20;

/// The status with this number; the last one differs in fields that lists show.
fn parts(number: u64) -> Parts {
    let nvml = if number > CHANGES { lost() } else { NvmlState::Loading };
    status::encode(&inventory(&number.to_string(), nvml), &LabelSet::default(), None)
}

#[tokio::test]
async fn i10_watchers_that_do_not_read_delay_no_agent() {
    // The aggregator disconnects a watcher that does not read for 30 s, so this must be fast on a loaded machine as well.
    const AGENTS: usize = 40;
    let aggregator = Aggregator::start(&["--plaintext"]);
    let api = Api::at(aggregator.http);
    let grpc = Endpoint::from_shared(format!("http://{}", aggregator.grpc)).unwrap();
    let mut lines = Vec::new();
    for number in 0..AGENTS {
        let mut client = FleetClient::new(grpc.connect().await.unwrap());
        lines.push(AgentStream::with_first_status(&mut client, &name(number), parts(1)).await);
    }
    // A small HTTP/2 window; the kernel buffers the rest. With a window of one byte, the many updates would be a flood.
    let narrow = grpc.clone().initial_stream_window_size(1024);
    let mut client = FleetClient::new(narrow.connect().await.unwrap());
    let mut watch = client.watch(v1::WatchRequest::default()).await.unwrap().into_inner();
    let mut events = api.unread_events().await;

    let mut agents = JoinSet::new();
    for mut line in lines {
        agents.spawn(async move {
            for number in 2..=CHANGES + 1 {
                let change = delta(number, &parts(number - 1), &parts(number));
                assert_eq!(line.send(&change).await.unwrap(), acknowledged(number));
            }
            line
        });
    }
    let _connected = timeout(TIME_LIMIT, agents.join_all()).await.unwrap();

    let last = parts(CHANGES + 1);
    let last = last.get("node").unwrap();
    let (mut latest, mut shown) = (BTreeMap::new(), 0);
    let watching = async {
        while latest.len() < AGENTS || latest.values().any(|latest| !latest) {
            let event = watch.message().await.unwrap();
            if let Some(Event::Node(node)) = event.unwrap().event {
                shown += 1;
                let is_last = node.parts.iter().any(|part| part.content == last.bytes());
                latest.insert(node.name, is_last);
            }
        }
    };
    let mut states = BTreeMap::new();
    let reading = async {
        while states.len() < AGENTS || states.values().any(|state| state != "nvml-lost") {
            let event = events.next().await;
            let node = &event["node"];
            if let Some(name) = node["name"].as_str() {
                states.insert(name.to_owned(), node["state"].clone());
            }
        }
    };
    tokio::join!(
        within("the last change of each agent", watching),
        within("the last state of each agent", reading)
    );
    assert!(shown <= 3 * AGENTS, "{shown} events were retained for it");
}
