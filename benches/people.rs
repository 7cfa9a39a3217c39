//! What people query from an aggregator that follows a cluster: profiles and availability, by a hundred clients at once while pods come
//! and go.
//!
//! The routers are those that are served, on the one thread that serves people, without a socket: a client asks again as soon as it
//! has its answer and the others had their turn, and its time begins with its own. It prints a table in Markdown for
//! `docs/performance.md`; it never fails on a figure.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a benchmark is a script: it measures, prints, and stops at the first thing out of order"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use octavo_access::guard::Guard;
use octavo_aggregator::access::guarded;
use octavo_aggregator::rest;
use octavo_fleet::cluster::{
    Amounts, ClusterNode, ClusterPod, ClusterSnapshot, Phase, PodKey, PodRequirements, Readiness,
    Toleration,
};
use octavo_fleet::hardware_profile::{
    Count, HardwareProfile, Identifier, ProfileKey, ProfileKind, Scheduling,
};
use octavo_kube::cluster::WatchedCluster;
use octavo_kube::hardware_profiles::{Presence, Profiles as Known};
use octavo_store::availability::Counter;
use octavo_store::clock::Clock;
use octavo_store::fleet::Fleet;
use octavo_store::profiles::Profiles;
use octavo_store::stats::Stats;
use octavo_store::view::FleetView;
use prometheus_client::registry::Registry;
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::Instant;

const NODES: usize = 1000;
const PODS: usize = 20_000;
const PROFILES: usize = 200;
const CLIENTS: usize = 100;
/// How long each question is asked.
const SPAN: Duration = Duration::from_secs(8);
/// Interval between new states of the cluster, and the number of pods changed by each.
const EVERY: Duration = Duration::from_millis(300);
const CHANGED: usize = 30;
const TYPES: [&str; 6] = [
    "nvidia-h200-141gb",
    "nvidia-h100-80gb",
    "nvidia-a100-80gb",
    "nvidia-l40s-48gb",
    "nvidia-t4-16gb",
    "amd-mi300x-192gb",
];
const GPU: &str = "nvidia.com/gpu";

fn main() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    println!(
        "{NODES} nodes of {} types, {PODS} pods, {PROFILES} profiles; {CLIENTS} clients that ask again at once; {CHANGED} pods change every {EVERY:?}.\n",
        TYPES.len()
    );
    println!("| what | ms p50 / p99 / most | answers a second | bytes |\n|---|---|---|---|");
    for (what, path) in [
        ("profiles to pick", "/api/hardware-profiles"),
        ("profiles of one type, with all that is known", "/api/v1/profiles?type=nvidia-h200-141gb"),
        ("one profile", "/api/v1/profiles/team/profile-7"),
        ("what is to be had", "/api/v1/availability"),
        ("what is to be had of one type", "/api/v1/availability?type=nvidia-h200-141gb"),
        ("types", "/api/v1/types"),
    ] {
        runtime.block_on(measured(what, path));
    }
}

async fn measured(what: &str, path: &'static str) {
    let (followed, router) = served();
    let churning = tokio::spawn(churn(followed));
    // The first answer is made of all there is.
    ask(&router, path).await;
    let start = Instant::now();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let router = router.clone();
            tokio::spawn(async move {
                let mut times = Vec::new();
                let mut bytes = 0;
                while start.elapsed() < SPAN {
                    let begin = Instant::now();
                    bytes = ask(&router, path).await;
                    times.push(begin.elapsed());
                    // The other tasks of the one thread need it too: clients, and the cluster watcher.
                    yield_now().await;
                }
                (times, bytes)
            })
        })
        .collect();
    let (mut times, mut bytes) = (Vec::new(), 0);
    for client in clients {
        let (some, size) = client.await.unwrap();
        times.extend(some);
        bytes = size;
    }
    churning.abort();
    times.sort();
    let at =
        |share: usize| times[(times.len() * share / 100).min(times.len() - 1)].as_secs_f64() * 1e3;
    let rate = times.len() / usize::try_from(SPAN.as_secs()).unwrap();
    println!("| {what} | {:.1} / {:.1} / {:.1} | {rate} | {bytes} |", at(50), at(99), at(100));
}

async fn ask(router: &Router, path: &str) -> usize {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let answer = tower::ServiceExt::oneshot(router.clone(), request).await.unwrap();
    assert!(answer.status().is_success(), "{path}: {}", answer.status());
    answer.into_body().collect().await.unwrap().to_bytes().len()
}

fn served() -> (watch::Sender<Arc<WatchedCluster>>, Router) {
    let clock = Clock::start();
    let (_store, fleet) = watch::channel(Fleet::default());
    let (say, followed) = watch::channel(Arc::new(WatchedCluster {
        snapshot: Arc::new(ClusterSnapshot::new(
            (0..NODES).map(node),
            (0..PODS).map(|one| pod(one, 0)),
        )),
        current_at: Some(Instant::now()),
        error: None,
        invalid_objects: 0,
    }));
    let known = Known {
        all: (0..PROFILES)
            .map(profile)
            .map(|one| ((one.kind, one.key.clone()), Arc::new(one)))
            .collect(),
        kinds: BTreeMap::from([(ProfileKind::Hardware, Presence::Present)]),
        ..Known::default()
    };
    let known = watch::channel(Arc::new(known)).1;
    let profiles = Profiles::new(Some(known), Some(followed.clone()), None);
    let view = FleetView::new(fleet, clock).with_profiles(profiles);
    let mut registry = Registry::default();
    rest::metrics::register(&mut registry, view.clone());
    let router = rest::router(rest::ApiContext {
        view: view.clone(),
        availability: Counter::new(view, Some(followed)),
        registry: Arc::new(registry),
        ready: watch::channel(true).1,
        max_streams: 1,
    });
    let gate = Guard::open(Stats::default());
    (say, guarded(router, gate))
}

/// Pods change, and the cluster watcher reports them.
async fn churn(say: watch::Sender<Arc<WatchedCluster>>) {
    let mut every = tokio::time::interval(EVERY);
    let mut number = 0;
    loop {
        every.tick().await;
        let mut snapshot = ClusterSnapshot::clone(&say.borrow().snapshot);
        for _ in 0..CHANGED {
            number += 1;
            let pod = pod(number * 7919 % PODS, number);
            snapshot.pods.insert(Arc::new(pod.key.clone()), Arc::new(pod));
        }
        say.send_replace(Arc::new(WatchedCluster {
            snapshot: Arc::new(snapshot),
            current_at: Some(Instant::now()),
            error: None,
            invalid_objects: 0,
        }));
    }
}

fn node(number: usize) -> ClusterNode {
    let mut labels: BTreeMap<String, String> = (0..60)
        .map(|one| {
            (format!("feature.node.kubernetes.io/cpu-cpuid.FEATURE{one}"), "true".to_owned())
        })
        .collect();
    labels.insert("octavo.dev/type".to_owned(), TYPES[number % TYPES.len()].to_owned());
    let has = Amounts::default()
        .with("cpu", 192_000)
        .with("memory", 2 << 40)
        .with(GPU, 8)
        .with("pods", 110);
    ClusterNode {
        name: format!("node-{number}"),
        labels,
        readiness: Readiness::Ready,
        capacity: has.clone(),
        allocatable: has,
        ..ClusterNode::default()
    }
}

/// Every fourth has a GPU, and every hundredth waits for one.
fn pod(number: usize, version: usize) -> ClusterPod {
    let waits = number.is_multiple_of(100);
    let devices = u64::from(waits || number.is_multiple_of(4));
    let amounts = Amounts::default()
        .with("cpu", 2000 + u64::from(version.is_multiple_of(2)))
        .with(GPU, devices);
    ClusterPod {
        key: PodKey { namespace: format!("team-{}", number % 40), name: format!("job-{number}") },
        node: (!waits).then(|| format!("node-{}", number / 4 % NODES)),
        phase: if waits { Phase::Pending } else { Phase::Bound },
        requirements: PodRequirements {
            amounts,
            tolerations: vec![Toleration::for_key(GPU)],
            ..PodRequirements::default()
        },
        ..ClusterPod::default()
    }
}

fn profile(number: usize) -> HardwareProfile {
    let kind = TYPES[number % TYPES.len()];
    HardwareProfile {
        key: ProfileKey { namespace: "team".to_owned(), name: format!("profile-{number}") },
        display_name: Some(format!("Profile {number}")),
        identifiers: vec![Identifier {
            display_name: "GPU".to_owned(),
            resource: GPU.to_owned(),
            min: Count::whole(1),
            max: Some(Count::whole(8)),
            default: Count::whole(1 + u64::try_from(number % 4).unwrap()),
            resource_type: None,
        }],
        scheduling: Scheduling::Node {
            selector: BTreeMap::from([("octavo.dev/type".to_owned(), kind.to_owned())]),
            tolerations: vec![Toleration::for_key(GPU)],
        },
        ..HardwareProfile::default()
    }
}
