//! Fleets of other clusters, received from their aggregators.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use octavo_aggregator::upstreams::{self, Upstream};
use octavo_client::endpoint::{AggregatorEndpoint, Security};
use octavo_store::fleet::Fleet;
use octavo_store::stats::Stats;
use octavo_store::store::StoreLimits;
use octavo_stream::proto::v1::fleet_client::FleetClient;
use tokio::task::JoinSet;
use tonic::transport::Endpoint;

use super::program::{AGGREGATOR, Program, address, get};
use super::{AgentStream, Plan, Site, acknowledged, delta, parts};
use crate::time_limits::{Lines, until_async};

/// An aggregator that shows the fleets of others.
struct Central {
    site: Site,
    stats: Stats,
    _receivers: JoinSet<()>,
}

impl Central {
    async fn with(upstreams: &[(&str, &Site)]) -> Self {
        let site = Plan::default().start().await;
        let stats = Stats::default();
        let all = upstreams.iter().map(|(cluster, upstream)| {
            let endpoint = AggregatorEndpoint {
                url: format!("http://{}", upstream.address).parse().unwrap(),
                security: Security::Plaintext,
                token: None,
                window_bytes: 65_536,
            };
            Upstream::new((*cluster).to_owned(), endpoint, Arc::clone(&site.store), &stats)
        });
        let mut receivers = JoinSet::new();
        receivers.spawn(upstreams::run(all.collect()));
        Self { site, stats, _receivers: receivers }
    }

    async fn until_connected(&self, cluster: &str) {
        let connected = async || self.stats.upstream(cluster).get();
        until_async("a connection to the upstream aggregator", connected, |value| *value == 1)
            .await;
    }
}

fn is_connected(fleet: &Fleet, name: &str) -> Option<bool> {
    fleet.nodes.get(&name.parse().unwrap()).map(|node| node.connected)
}

/// Limits that soon forget a silent node.
fn forgetful() -> StoreLimits {
    StoreLimits {
        stale_after: Duration::from_secs(1),
        forget_after: Duration::from_secs(1),
        max_nodes: 9,
        history_bytes: 0,
    }
}

#[tokio::test]
async fn nodes_of_other_clusters_are_shown_with_their_changes() {
    let (paris, oslo) = (Plan::default().start().await, Plan::default().start().await);
    let mut first = AgentStream::with_visible_status(&paris, "n", parts(1)).await;
    let central = Central::with(&[("paris", &paris), ("oslo", &oslo)]).await;
    central.site.until(|fleet| is_connected(fleet, "n.paris") == Some(true)).await;
    // A node that joins later, and one of this cluster.
    let _other = AgentStream::with_visible_status(&oslo, "n", parts(2)).await;
    let _own = AgentStream::with_visible_status(&central.site, "n", parts(3)).await;
    let fleet = central.site.until(|fleet| is_connected(fleet, "n.oslo") == Some(true)).await;
    assert_eq!(fleet.nodes.iter().count(), 3);
    let cluster = |name: &str| {
        let node = fleet.nodes.get(&name.parse().unwrap()).unwrap();
        node.labels.get("octavo.dev/cluster").map(str::to_owned)
    };
    assert_eq!(cluster("n.paris").as_deref(), Some("paris"));
    assert_eq!(cluster("n.oslo").as_deref(), Some("oslo"));
    assert_eq!(cluster("n"), None);

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
    central.site.until(|fleet| is_connected(fleet, "n.paris") == Some(false)).await;
    let _back = AgentStream::with_first_status(&mut paris.client().await, "n", parts(5)).await;
    central.site.until(|fleet| is_connected(fleet, "n.paris") == Some(true)).await;
    assert_eq!(is_connected(&central.site.store.view().fleet(), "n.oslo"), Some(true));
}

#[tokio::test]
async fn nodes_of_an_unreachable_aggregator_are_disconnected_until_it_returns() {
    let paris = Plan::default().start().await;
    let line = AgentStream::with_visible_status(&paris, "n", parts(1)).await;
    let central = Central::with(&[("paris", &paris)]).await;
    central.until_connected("paris").await;
    central.site.until(|fleet| is_connected(fleet, "n.paris") == Some(true)).await;
    let listen = paris.address;
    drop((line, paris));
    central.site.until(|fleet| is_connected(fleet, "n.paris") == Some(false)).await;
    assert_eq!(central.stats.upstream("paris").get(), 0);
    let restarted = Plan { listen, ..Plan::default() }.start().await;
    let _line = AgentStream::with_visible_status(&restarted, "n", parts(1)).await;
    central.site.until(|fleet| is_connected(fleet, "n.paris") == Some(true)).await;
    central.until_connected("paris").await;
}

#[tokio::test]
async fn stale_and_removed_nodes_of_another_cluster_are_not_shown_as_current() {
    let paris = Plan { fleet: forgetful(), ..Plan::default() }.start().await;
    let central = Central::with(&[("paris", &paris)]).await;
    central.until_connected("paris").await;
    let _silent = AgentStream::with_visible_status(&paris, "n", parts(1)).await;
    central.site.until(|fleet| is_connected(fleet, "n.paris") == Some(true)).await;
    // Its agent stays connected but is silent.
    central.site.until(|fleet| is_connected(fleet, "n.paris") == Some(false)).await;
    central.site.until(|fleet| is_connected(fleet, "n.paris").is_none()).await;
}

/// Starts the program with these arguments and any free ports.
fn program(arguments: &[&str]) -> (Program, Lines) {
    let mut child = Command::new(AGGREGATOR)
        .args(["--grpc-listen=127.0.0.1:0", "--http-listen=127.0.0.1:0"])
        .args(arguments)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = Lines::of(child.stderr.take().unwrap());
    (Program(child), lines)
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
    let (_central, mut lines) = program(&["--plaintext", &upstream, &keys]);
    let local = address(&lines.find_line("listening for agents on "));
    let people = address(&lines.find_line("listening for HTTP clients on "));
    let line = lines.find_line("cannot receive the fleet of another cluster");
    assert!(line.contains("certificate"), "{line}");

    fs::write(&ca, pair.cert.pem()).unwrap();
    lines.find_line("receiving the fleet of another cluster");
    let metrics = get(people, "/metrics", "Host: localhost\r\n").await;
    let metric = "octavo_aggregator_upstream_connected{cluster=\"paris\"} 1";
    assert!(metrics.contains(metric), "{metrics}");

    // A chain: a third aggregator receives the fleet of the second one.
    let endpoint = format!("http://{local}");
    let channel = Endpoint::from_shared(endpoint.clone()).unwrap().connect().await.unwrap();
    let mut client = FleetClient::new(channel);
    let _agent = AgentStream::with_first_status(&mut client, "n", parts(1)).await;
    let (_third, mut lines) = program(&["--plaintext", &format!("--upstream=lab={endpoint}")]);
    let people = address(&lines.find_line("listening for HTTP clients on "));
    let path = "/api/v1/nodes?selector=octavo.dev/cluster%3Dlab";
    let nodes = async || get(people, path, "Host: localhost\r\n").await;
    until_async("a node", nodes, |answer| answer.contains("\"n.lab\"")).await;
}
