//! Fleets of other clusters, received from their aggregators.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use octavo_aggregator::upstreams::{self, Upstream};
use octavo_client::endpoint::{AggregatorEndpoint, Security};
use octavo_store::fleet::Fleet;
use octavo_store::stats::Stats;
use octavo_store::store::StoreLimits;
use octavo_stream::proto::v1::fleet_client::FleetClient;
use octavo_stream::proto::v1::to_agent::Message as Answer;
use octavo_stream::protocol::FromAgent;
use tokio::task::JoinSet;

use super::program::{address, get, program};
use super::{AgentStream, Plan, Site, acknowledged, delta, hello, parts};
use crate::process::Aggregator;
use crate::time_limits::until_async;

/// An aggregator that shows the fleets of others.
struct Central {
    site: Site,
    stats: Stats,
    _receivers: JoinSet<()>,
}

impl Central {
    async fn with(plan: Plan, upstreams: &[(&str, &Site)]) -> Self {
        let site = plan.start().await;
        let stats = Stats::default();
        let all = upstreams.iter().map(|(cluster, upstream)| {
            let endpoint = endpoint(&format!("http://{}", upstream.address), Security::Plaintext);
            Upstream::new(cluster, endpoint, Arc::clone(&site.store), &stats)
        });
        let mut receivers = JoinSet::new();
        receivers.spawn(upstreams::run(all.collect()));
        Self { site, stats, _receivers: receivers }
    }

    async fn until_received(&self, cluster: &str, expected: i64) {
        let received = async || self.stats.upstream(cluster).get();
        until_async("the state of the connection", received, |value| *value == expected).await;
    }

    /// Waits until the node is connected or not.
    async fn until_connected(&self, name: &str, expected: bool) -> Fleet {
        self.site.until(|fleet| is_connected(fleet, name) == Some(expected)).await
    }
}

fn endpoint(url: &str, security: Security) -> AggregatorEndpoint {
    AggregatorEndpoint { url: url.parse().unwrap(), security, token: None, window_bytes: 65_536 }
}

fn is_connected(fleet: &Fleet, name: &str) -> Option<bool> {
    fleet.nodes.get(&name.parse().unwrap()).map(|node| node.connected)
}

/// Limits with which a silent node becomes stale soon, and is removed after `forget_after`.
fn short(forget_after: Duration) -> StoreLimits {
    StoreLimits {
        stale_after: Duration::from_secs(1),
        forget_after,
        max_nodes: 9,
        history_bytes: 0,
    }
}

#[tokio::test]
async fn nodes_of_other_clusters_are_shown_with_their_changes() {
    let (paris, oslo) = (Plan::default().start().await, Plan::default().start().await);
    let mut first = AgentStream::with_visible_status(&paris, "n", parts(1)).await;
    let central = Central::with(Plan::default(), &[("paris", &paris), ("oslo", &oslo)]).await;
    central.until_connected("n.paris", true).await;
    // A node that joins later, and one of this cluster.
    let _other = AgentStream::with_visible_status(&oslo, "n", parts(2)).await;
    let _own = AgentStream::with_visible_status(&central.site, "n", parts(3)).await;
    let fleet = central.until_connected("n.oslo", true).await;
    assert_eq!(fleet.nodes.iter().count(), 3);
    for (name, cluster) in [("n.paris", Some("paris")), ("n.oslo", Some("oslo")), ("n", None)] {
        let node = fleet.nodes.get(&name.parse().unwrap()).unwrap();
        assert_eq!(node.labels.get("octavo.dev/cluster"), cluster);
        assert_eq!(node.upstream.as_deref(), cluster);
    }

    let change = delta(2, &parts(1), &parts(4));
    assert_eq!(first.send(&change).await.unwrap(), acknowledged(2));
    let expected = parts(4);
    let is_changed = |fleet: &Fleet| {
        let node = fleet.nodes.get(&"n.paris".parse().unwrap()).unwrap();
        node.parts.get("node") == expected.get("node")
    };
    central.site.until(is_changed).await;

    // The loss of an agent is visible as well, and its return.
    drop(first);
    central.until_connected("n.paris", false).await;
    let mut back = AgentStream::open(&mut paris.client().await, hello("n", 2)).await.unwrap();
    assert!(matches!(back.receive().await, Ok(Some(Answer::Resync(_)))));
    let snapshot = FromAgent::Snapshot { seq: 1, parts: parts(5) };
    assert_eq!(back.send(&snapshot).await.unwrap(), acknowledged(1));
    let fleet = central.until_connected("n.paris", true).await;
    assert_eq!(is_connected(&fleet, "n.oslo"), Some(true));
}

#[tokio::test]
async fn nodes_of_an_unreachable_aggregator_become_stale_until_it_returns() {
    let paris = Plan::default().start().await;
    let _line = AgentStream::with_visible_status(&paris, "n", parts(1)).await;
    let plan = Plan { fleet: short(Duration::from_hours(1)), ..Plan::default() };
    let central = Central::with(plan, &[("paris", &paris)]).await;
    central.until_received("paris", 1).await;
    let is_stale = |fleet: &Fleet, expected: bool| {
        let node = fleet.nodes.get(&"n.paris".parse().unwrap());
        node.is_some_and(|node| node.freshness.found_stale() == expected)
    };
    central.site.until(|fleet| is_stale(fleet, false)).await;
    let listen = paris.address;
    drop(paris);
    central.until_received("paris", 0).await;
    central.site.until(|fleet| is_stale(fleet, true)).await;
    // The store ends the stream of a node that nothing confirms.
    central.until_connected("n.paris", false).await;
    let restarted = Plan { listen, ..Plan::default() }.start().await;
    let _line = AgentStream::with_visible_status(&restarted, "n", parts(1)).await;
    let is_back =
        |fleet: &Fleet| is_stale(fleet, false) && is_connected(fleet, "n.paris") == Some(true);
    central.site.until(is_back).await;
    central.until_received("paris", 1).await;
}

#[tokio::test]
async fn node_that_another_aggregator_removed_while_it_was_unreachable_is_removed() {
    let paris = Plan::default().start().await;
    let _line = AgentStream::with_visible_status(&paris, "n", parts(1)).await;
    let plan = Plan { fleet: short(Duration::from_hours(1)), ..Plan::default() };
    let central = Central::with(plan, &[("paris", &paris)]).await;
    central.until_connected("n.paris", true).await;
    let listen = paris.address;
    drop(paris);
    central.until_received("paris", 0).await;
    let restarted = Plan { listen, ..Plan::default() }.start().await;
    let _line = AgentStream::with_visible_status(&restarted, "m", parts(1)).await;
    central.until_connected("m.paris", true).await;
    central.site.until(|fleet| is_connected(fleet, "n.paris").is_none()).await;
}

#[tokio::test]
async fn silent_node_of_another_cluster_is_disconnected() {
    let paris = Plan { fleet: short(Duration::from_hours(1)), ..Plan::default() }.start().await;
    let central = Central::with(Plan::default(), &[("paris", &paris)]).await;
    // Its agent stays connected, but sends no heartbeats.
    let _silent = AgentStream::with_visible_status(&paris, "n", parts(1)).await;
    central.until_connected("n.paris", false).await;
}

#[tokio::test]
async fn node_that_another_aggregator_removes_is_removed() {
    let fleet = StoreLimits { stale_after: Duration::from_secs(10), ..short(Duration::ZERO) };
    let paris = Plan { fleet, ..Plan::default() }.start().await;
    let central = Central::with(Plan::default(), &[("paris", &paris)]).await;
    let mut line = AgentStream::with_visible_status(&paris, "n", parts(1)).await;
    let heartbeat = FromAgent::Heartbeat { seq: 1, hash: parts(1).hash() };
    let heartbeats = async {
        loop {
            assert_eq!(line.send(&heartbeat).await.unwrap(), acknowledged(1));
        }
    };
    tokio::select! {
        _fleet = central.until_connected("n.paris", true) => {}
        () = heartbeats => {}
    }
    drop(line);
    central.site.until(|fleet| is_connected(fleet, "n.paris").is_none()).await;
}

#[tokio::test]
async fn agents_of_this_cluster_take_precedence() {
    let paris = Plan::default().start().await;
    let _first = AgentStream::with_visible_status(&paris, "a", parts(1)).await;
    let central = Central::with(Plan::default(), &[("paris", &paris)]).await;
    central.until_connected("a.paris", true).await;
    let is_local = |fleet: &Fleet, name: &str| {
        fleet.nodes.get(&name.parse().unwrap()).is_some_and(|node| node.is_local())
    };
    let mut own = AgentStream::with_visible_status(&central.site, "b.paris", parts(2)).await;
    let mut taking_over =
        AgentStream::with_visible_status(&central.site, "a.paris", parts(3)).await;
    central.site.until(|fleet| is_local(fleet, "a.paris")).await;
    // The other aggregator sends both names, and a third node after them.
    let _second = AgentStream::with_visible_status(&paris, "b", parts(4)).await;
    let _third = AgentStream::with_visible_status(&paris, "c", parts(5)).await;
    let fleet = central.until_connected("c.paris", true).await;
    assert!(is_local(&fleet, "a.paris") && is_local(&fleet, "b.paris"));
    for (line, number) in [(&mut own, 2), (&mut taking_over, 3)] {
        let heartbeat = FromAgent::Heartbeat { seq: 1, hash: parts(number).hash() };
        assert_eq!(line.send(&heartbeat).await.unwrap(), acknowledged(1));
    }
}

#[tokio::test]
async fn nodes_beyond_the_limit_do_not_end_the_connection() {
    let paris = Plan::default().start().await;
    let mut lines = Vec::new();
    for name in ["a", "b", "c"] {
        lines.push(AgentStream::with_visible_status(&paris, name, parts(1)).await);
    }
    let fleet = StoreLimits { max_nodes: 2, ..Plan::default().fleet };
    let central = Central::with(Plan { fleet, ..Plan::default() }, &[("paris", &paris)]).await;
    central.until_received("paris", 1).await;
    let fleet = central.site.until(|fleet| fleet.nodes.iter().count() == 2).await;
    let names: Vec<String> = fleet.nodes.iter().map(|node| node.name.to_string()).collect();
    assert_eq!(names, ["a.paris", "b.paris"]);
}

#[tokio::test]
async fn program_shows_another_cluster_over_tls() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let pair = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let certificate = file("tls.crt", &pair.cert.pem());
    let key = file("tls.key", &pair.signing_key.serialize_pem());
    let ca = file("keys/paris/ca.crt", &other.cert.pem());
    file("keys/paris/token", "a.b.c\n");
    let (_paris, mut lines) = program(&[
        "--http-auth=none",
        &format!("--tls-cert={certificate}"),
        &format!("--tls-key={key}"),
    ]);
    let agents = address(&lines.find_line("listening for agents on "));
    let upstream = format!("--upstream=paris=https://localhost:{}", agents.port());
    let keys = format!("--upstream-credentials={}/keys", directory.path().display());
    let mut central = Aggregator::start(&["--plaintext", &upstream, &keys]);
    let line = central.expect_log("cannot receive the fleet of another cluster");
    assert!(line.contains("certificate"), "{line}");

    fs::write(&ca, pair.cert.pem()).unwrap();
    central.expect_log("receiving the fleet of another cluster");
    let metrics = get(central.http, "/metrics", "Host: localhost\r\n").await;
    let metric = "octavo_aggregator_upstream_connected{upstream=\"paris\"} 1";
    assert!(metrics.contains(metric), "{metrics}");

    // A third aggregator receives the nodes of the second one, and not those of the first: otherwise, two that receive each other would
    // repeat their nodes.
    let security = Security::Tls { ca: ca.into(), server: "localhost".try_into().unwrap() };
    let url = format!("https://localhost:{}", agents.port());
    let mut client = FleetClient::new(endpoint(&url, security).connect().await.unwrap());
    let _remote = AgentStream::with_first_status(&mut client, "remote", parts(1)).await;
    let url = format!("http://{}", central.grpc);
    let channel = endpoint(&url, Security::Plaintext).connect().await.unwrap();
    let mut client = FleetClient::new(channel);
    let _agent = AgentStream::with_first_status(&mut client, "n", parts(1)).await;
    let nodes = async || get(central.http, "/api/v1/nodes", "Host: localhost\r\n").await;
    until_async("a remote node", nodes, |answer| answer.contains("\"remote.paris\"")).await;
    let upstream = format!("--upstream=lab={url}");
    let mut third = Aggregator::start(&["--plaintext", &upstream]);
    third.expect_log("receiving the fleet of another cluster");
    let path = "/api/v1/nodes?selector=octavo.dev/cluster%3Dlab";
    let nodes = async || get(third.http, path, "Host: localhost\r\n").await;
    let answer = until_async("a node", nodes, |answer| answer.contains("\"n.lab\"")).await;
    assert!(!answer.contains("remote"), "{answer}");
}
