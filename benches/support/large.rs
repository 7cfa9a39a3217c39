//! A fleet larger than the sockets of one machine: what reading it costs, through the routers that are served.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use octavo::aggregator::clock::Clock;
use octavo::aggregator::fleet::{Fleet, Freshness, Gist, Node, Origin};
use octavo::aggregator::view::View;
use octavo::aggregator::{pages, rest};
use octavo::domain::inventory::Inventory;
use octavo::domain::labels::{Options, compile};
use octavo::domain::stream::Run;
use prometheus_client::registry::Registry;
use tokio::runtime::Builder;
use tokio::sync::watch;
use tower::ServiceExt;

use crate::{fleet_of, swarm};

const NODES: usize = 100_000;
const ROUNDS: usize = 50;

/// Prints the table. Every other node is of another type.
pub(crate) fn run(machines: [&Inventory; 2]) {
    let clock = Clock::start();
    let start = Instant::now();
    let fleet = fleet(machines, clock);
    let built = start.elapsed();
    let (_store, readers) = watch::channel(fleet);
    let router = router(View::new(readers, clock));
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    println!(
        "{NODES} nodes in memory (made in {:.1} s), through the routers, without a socket; {ROUNDS} rounds.\n",
        built.as_secs_f64()
    );
    println!("| what | ms p50 / p99 | bytes |\n|---|---|---|");
    for (what, path) in [
        (
            "filtered list, 50 rows",
            "/api/v1/nodes?type=nvidia-h100-80gb&state=ok&limit=50",
        ),
        ("list by memory, 500 rows", "/api/v1/nodes?sort=-memory"),
        (
            "label selector, 50 rows",
            "/api/v1/nodes?selector=octavo.dev/count%3D8&limit=50",
        ),
        ("one node", "/api/v1/nodes/node-050000.bench"),
        ("types", "/api/v1/types"),
        ("Node View", "/"),
        ("metrics", "/metrics"),
    ] {
        let (times, bytes) = runtime.block_on(ask(&router, path));
        let at = |share: usize| {
            times[(times.len() * share / 100).min(times.len() - 1)].as_secs_f64() * 1e3
        };
        println!("| {what} | {:.1} / {:.1} | {bytes} |", at(50), at(99));
    }
    println!();
}

async fn ask(router: &Router, path: &str) -> (Vec<Duration>, usize) {
    let mut times = Vec::new();
    let mut bytes = 0;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let request = Request::builder()
            .uri(path)
            .header("host", "localhost")
            .body(Body::empty())
            .unwrap();
        let answer = router.clone().oneshot(request).await.unwrap();
        assert!(answer.status().is_success(), "{path}: {}", answer.status());
        bytes = answer.into_body().collect().await.unwrap().to_bytes().len();
        times.push(start.elapsed());
    }
    times.sort();
    (times, bytes)
}

fn fleet(machines: [&Inventory; 2], clock: Clock) -> Fleet {
    let kinds = machines.map(|machine| {
        let labels = Arc::new(compile(machine, &Options::default(), None).labels);
        (fleet_of::parts(machine), Gist::of(machine, labels, None))
    });
    let mut fleet = Fleet::default();
    for number in 0..NODES {
        let (parts, gist) = &kinds[number % kinds.len()];
        let origin = Origin {
            name: swarm::name(number).parse().unwrap(),
            run: Run {
                epoch: 1,
                boot_id: String::new(),
            },
            agent_version: "0.0.0".to_owned(),
        };
        // Nothing is confirmed here while it runs, and nothing shall go stale.
        let freshness = Freshness::new(clock.now(), Duration::from_hours(1));
        let node = Node::new(origin, parts.clone(), gist.clone(), freshness);
        fleet.nodes.insert(Arc::new(node));
    }
    fleet
}

fn router(view: View) -> Router {
    let mut registry = Registry::default();
    rest::metrics::register(&mut registry, view.clone());
    let api = rest::router(rest::Context {
        view: view.clone(),
        registry: Arc::new(registry),
        ready: watch::channel(true).1,
        max_streams: 1,
    });
    api.merge(pages::router(view))
}
