//! Response times through the HTTP routers with 100,000 nodes in memory, because one machine has too few sockets for as many agents.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use octavo_access::guard::Guard;
use octavo_aggregator::access::guarded;
use octavo_aggregator::rest;
use octavo_model::id::PciAddress;
use octavo_model::inventory::Inventory;
use octavo_model::quantity::Mebibytes;
use octavo_model::resource::{ResourceName, ShareId};
use octavo_node::labels::{Options, compile};
use octavo_node::sharing::usage::{DeviceUsage, Tenant, UnitUsage, Usage};
use octavo_pages as pages;
use octavo_store::availability::Counter;
use octavo_store::clock::Clock;
use octavo_store::fleet::{Fleet, Freshness, Node, ReportingAgent, StatusSummary};
use octavo_store::stats::Stats;
use octavo_store::view::FleetView;
use octavo_stream::protocol::{Change, Run};
use octavo_stream::status;
use prometheus_client::registry::Registry;
use tokio::runtime::Builder;
use tokio::sync::watch;
use tower::ServiceExt;

use crate::{node_status, simulated_agents};

const NODES: usize = 100_000;
const ROUNDS: usize = 50;

/// Requests, each with the numbers of nodes that change before it. The time of the changes is not measured, but the count of availability that
/// follows them in the background can delay the request.
const REQUESTS: [(&str, &str, &[usize]); 12] = [
    ("filtered list, 50 rows", "/api/v1/nodes?type=nvidia-h100-80gb&state=ok&limit=50", &[1, 1000]),
    ("list sorted by memory, 500 rows", "/api/v1/nodes?sort=-memory", &[1, 1000]),
    ("label selector, 50 rows", "/api/v1/nodes?selector=octavo.dev/count%3D8&limit=50", &[1, 1000]),
    ("one node", "/api/v1/nodes/node-050000.bench", &[1]),
    ("types", "/api/v1/types", &[1, 1000]),
    ("usage, 500 rows", "/api/v1/usage", &[0]),
    ("usage sorted by memory, 500 rows", "/api/v1/usage?sort=memory", &[0]),
    ("pods above their fair share, 500 rows", "/api/v1/usage?over=true&sort=memory", &[0]),
    ("search for a pod that does not exist", "/api/v1/usage?pod=missing", &[0]),
    ("overview", "/", &[0, 1000]),
    ("Node View, first page", "/nodes", &[0, 1000]),
    ("metrics", "/metrics", &[0, 1000]),
];

/// Prints the table. The machines alternate between nodes.
pub(crate) fn run(machines: [&Inventory; 2]) {
    let clock = Clock::start();
    let start = Instant::now();
    let fleet = fleet(machines, clock);
    let built = start.elapsed();
    let (store, readers) = watch::channel(fleet);
    let router = router(FleetView::new(readers, clock));
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    println!(
        "{NODES} nodes in memory (created in {:.1} s), through the routers, no socket; {ROUNDS} rounds.\n",
        built.as_secs_f64()
    );
    println!("| request | changed nodes | ms p50 / p99 | bytes |\n|---|---|---|---|");
    for (name, path, changes) in REQUESTS {
        for &changed in changes {
            let (times, bytes) = runtime.block_on(measure((&router, &store), path, changed));
            let at = |share: usize| {
                times[(times.len() * share / 100).min(times.len() - 1)].as_secs_f64() * 1e3
            };
            println!("| {name} | {changed} | {:.1} / {:.1} | {bytes} |", at(50), at(99));
        }
    }
    println!();
}

/// Measures a request. As during ingest, `changed` nodes are replaced before each round.
async fn measure(
    (router, store): (&Router, &watch::Sender<Fleet>),
    path: &str,
    changed: usize,
) -> (Vec<Duration>, usize) {
    let mut times = Vec::new();
    let mut bytes = 0;
    for round in 0..ROUNDS {
        for number in (0..changed).map(|number| (round * changed + number) * 7919 % NODES) {
            store.send_modify(|fleet| report_again(fleet, number));
        }
        let start = Instant::now();
        let request =
            Request::builder().uri(path).header("host", "localhost").body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        assert!(response.status().is_success(), "{path}: {}", response.status());
        bytes = response.into_body().collect().await.unwrap().to_bytes().len();
        times.push(start.elapsed());
    }
    times.sort();
    (times, bytes)
}

/// Replaces a node by an equal one.
fn report_again(fleet: &mut Fleet, number: usize) {
    let name = simulated_agents::name(number).parse().unwrap();
    let node = Node::clone(fleet.nodes.get(&name).unwrap());
    fleet.nodes.insert(Arc::new(node));
    fleet.revision += 1;
}

fn fleet(machines: [&Inventory; 2], clock: Clock) -> Fleet {
    let statuses = machines.map(|machine| {
        let labels = Arc::new(compile(machine, &Options::default(), None).labels);
        (node_status::parts(machine), StatusSummary::new(machine, labels, None))
    });
    let mut fleet = Fleet::default();
    for number in 0..NODES {
        let (parts, summary) = &statuses[number % statuses.len()];
        let usage = usage(number);
        let parts = parts
            .apply(&Change { changed: vec![status::encode_usage(&usage)], removed: Vec::new() });
        let summary = summary.clone().with_usage(Some(&usage));
        let origin = ReportingAgent {
            name: simulated_agents::name(number).parse().unwrap(),
            run: Run { epoch: 1, boot_id: String::new() },
            agent_version: "0.0.0".to_owned(),
        };
        // No agent confirms the status, so the limit is longer than the measurement.
        let freshness = Freshness::new(clock.now(), Duration::from_hours(1));
        let node = Node::new(origin, parts, summary, freshness);
        fleet.nodes.insert(Arc::new(node));
    }
    fleet
}

/// Returns the usage of eight GPUs, each shared by three pods. On every hundredth node, a pod on each GPU exceeds its fair share.
fn usage(node: usize) -> Usage {
    let extra = u64::try_from(node % 977).unwrap() * 8;
    let device = |number: u8| {
        let uuid = format!("GPU-5fd4087b-86f3-7a43-b711-47713{node:06}{number}");
        let tenant = |replica: u32| Tenant {
            namespace: Some("team-a".to_owned()),
            pod: Some(format!("notebook-{node}-{number}-{replica}")),
            container: Some("notebook".to_owned()),
            ids: vec![ShareId::replica(&uuid, replica)],
            memory: Some(Mebibytes::new(u64::from(replica + 1) * 7_000 + extra)),
            processes: vec![4_000_000 + replica],
            is_over_share: node.is_multiple_of(100) && replica == 2,
            ..Tenant::default()
        };
        let unit = UnitUsage {
            tenants: (0..3).map(tenant).collect(),
            uuid: uuid.clone(),
            resource: Some(ResourceName::gpu()),
            replicas: Some(3),
            fair_share: Some(Mebibytes::new(27_000)),
            ..UnitUsage::default()
        };
        DeviceUsage {
            pci: PciAddress::new(0, number, 0, 0).unwrap(),
            name: format!("GPU {number}"),
            memory: None,
            utilization: None,
            power_watts: None,
            temperature_celsius: None,
            units: vec![unit],
        }
    };
    Usage { devices: (0..8).map(device).collect(), ..Usage::default() }
}

fn router(view: FleetView) -> Router {
    let mut registry = Registry::default();
    rest::metrics::register(&mut registry, view.clone());
    let availability = Counter::new(view.clone(), None);
    let api = rest::router(rest::ApiContext {
        view,
        availability: availability.clone(),
        registry: Arc::new(registry),
        ready: watch::channel(true).1,
        max_streams: 1,
    });
    let guard = Guard::open(Stats::default());
    guarded(api.merge(pages::router(availability)), guard)
}
