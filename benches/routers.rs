//! Requests of 100 clients for profiles and availability while pods change, without sockets: `cargo bench --bench routers`.
//!
//! The requests go through the aggregator's HTTP routers on one thread, like in the aggregator. A client sends its next request after
//! it has received a response and the other clients had a chance to run. The time of a request starts when the thread begins to
//! process it. It prints a table in Markdown for `docs/performance.md` and never fails on a figure.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a benchmark is a script: it measures, prints, and stops at the first error"
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
use octavo_kube::hardware_profiles::{Presence, Profiles as ObservedProfiles};
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
/// Duration of each measurement.
const SPAN: Duration = Duration::from_secs(8);
/// Interval between new states of the cluster, and the number of pods that change each time.
const INTERVAL: Duration = Duration::from_millis(300);
const CHANGED_PODS: usize = 30;
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
        "{NODES} nodes of {} types, {PODS} pods, {PROFILES} profiles; {CLIENTS} clients without pauses; {CHANGED_PODS} pods change every {INTERVAL:?}.\n",
        TYPES.len()
    );
    println!("| request | ms p50 / p99 / maximum | responses/s | bytes |\n|---|---|---|---|");
    for (name, path) in [
        ("list of profiles", "/api/hardware-profiles"),
        ("profiles of one type, with details", "/api/v1/profiles?type=nvidia-h200-141gb"),
        ("one profile", "/api/v1/profiles/team/profile-7"),
        ("availability", "/api/v1/availability"),
        ("availability of one type", "/api/v1/availability?type=nvidia-h200-141gb"),
        ("types", "/api/v1/types"),
    ] {
        runtime.block_on(measure(name, path));
    }
}

async fn measure(name: &str, path: &'static str) {
    let (cluster, router) = router();
    let churn = tokio::spawn(churn(cluster));
    // The first request calculates the response; it is not measured.
    request(&router, path).await;
    let start = Instant::now();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let router = router.clone();
            tokio::spawn(async move {
                let mut times = Vec::new();
                let mut bytes = 0;
                while start.elapsed() < SPAN {
                    let start = Instant::now();
                    bytes = request(&router, path).await;
                    times.push(start.elapsed());
                    // Lets the other tasks of the thread run: clients, and the cluster watcher.
                    yield_now().await;
                }
                (times, bytes)
            })
        })
        .collect();
    let (mut times, mut bytes) = (Vec::new(), 0);
    for client in clients {
        let (client_times, size) = client.await.unwrap();
        times.extend(client_times);
        bytes = size;
    }
    churn.abort();
    times.sort();
    let percentile = |percent: usize| {
        times[(times.len() * percent / 100).min(times.len() - 1)].as_secs_f64() * 1e3
    };
    let rate = times.len() / usize::try_from(SPAN.as_secs()).unwrap();
    let [p50, p99, maximum] = [50, 99, 100].map(percentile);
    println!("| {name} | {p50:.1} / {p99:.1} / {maximum:.1} | {rate} | {bytes} |");
}

/// Sends a request and returns the size of the response body.
async fn request(router: &Router, path: &str) -> usize {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let response = tower::ServiceExt::oneshot(router.clone(), request).await.unwrap();
    assert!(response.status().is_success(), "{path}: {}", response.status());
    response.into_body().collect().await.unwrap().to_bytes().len()
}

fn router() -> (watch::Sender<Arc<WatchedCluster>>, Router) {
    let clock = Clock::start();
    let (_store, fleet) = watch::channel(Fleet::default());
    let (sender, cluster) = watch::channel(Arc::new(WatchedCluster {
        snapshot: Arc::new(ClusterSnapshot::new(
            (0..NODES).map(node),
            (0..PODS).map(|number| pod(number, 0)),
        )),
        current_at: Some(Instant::now()),
        error: None,
        invalid_objects: 0,
    }));
    let observed = ObservedProfiles {
        all: (0..PROFILES)
            .map(profile)
            .map(|profile| ((profile.kind, profile.key.clone()), Arc::new(profile)))
            .collect(),
        kinds: BTreeMap::from([(ProfileKind::Hardware, Presence::Present)]),
        ..ObservedProfiles::default()
    };
    let observed = watch::channel(Arc::new(observed)).1;
    let profiles = Profiles::new(Some(observed), Some(cluster.clone()), None);
    let view = FleetView::new(fleet, clock).with_profiles(profiles);
    let mut registry = Registry::default();
    rest::metrics::register(&mut registry, view.clone());
    let router = rest::router(rest::ApiContext {
        view: view.clone(),
        availability: Counter::new(view, Some(cluster)),
        registry: Arc::new(registry),
        ready: watch::channel(true).1,
        max_streams: 1,
    });
    let guard = Guard::open(Stats::default());
    (sender, guarded(router, guard))
}

/// Changes pods without end, like a cluster watcher.
async fn churn(cluster: watch::Sender<Arc<WatchedCluster>>) {
    let mut interval = tokio::time::interval(INTERVAL);
    let mut number = 0;
    loop {
        interval.tick().await;
        let mut snapshot = ClusterSnapshot::clone(&cluster.borrow().snapshot);
        for _ in 0..CHANGED_PODS {
            number += 1;
            let pod = pod(number * 7919 % PODS, number);
            snapshot.insert_pod(Arc::new(pod));
        }
        cluster.send_replace(Arc::new(WatchedCluster {
            snapshot: Arc::new(snapshot),
            current_at: Some(Instant::now()),
            error: None,
            invalid_objects: 0,
        }));
    }
}

fn node(number: usize) -> ClusterNode {
    let mut labels: BTreeMap<String, String> = (0..60)
        .map(|feature| {
            (format!("feature.node.kubernetes.io/cpu-cpuid.FEATURE{feature}"), "true".to_owned())
        })
        .collect();
    labels.insert("octavo.dev/type".to_owned(), TYPES[number % TYPES.len()].to_owned());
    let amounts = Amounts::default()
        .with("cpu", 192_000)
        .with("memory", 2 << 40)
        .with(GPU, 8)
        .with("pods", 110);
    ClusterNode {
        name: format!("node-{number}"),
        labels,
        readiness: Readiness::Ready,
        capacity: amounts.clone(),
        allocatable: amounts,
        ..ClusterNode::default()
    }
}

/// Returns a pod. Every fourth has a GPU, and every hundredth is pending and requests one.
fn pod(number: usize, version: usize) -> ClusterPod {
    let is_pending = number.is_multiple_of(100);
    let devices = u64::from(is_pending || number.is_multiple_of(4));
    let amounts = Amounts::default()
        .with("cpu", 2000 + u64::from(version.is_multiple_of(2)))
        .with(GPU, devices);
    ClusterPod {
        key: PodKey { namespace: format!("team-{}", number % 40), name: format!("job-{number}") },
        node: (!is_pending).then(|| format!("node-{}", number / 4 % NODES)),
        phase: if is_pending { Phase::Pending } else { Phase::Bound },
        requirements: PodRequirements {
            amounts,
            tolerations: vec![Toleration::for_key(GPU)],
            ..PodRequirements::default()
        },
        ..ClusterPod::default()
    }
}

fn profile(number: usize) -> HardwareProfile {
    let type_name = TYPES[number % TYPES.len()];
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
            selector: BTreeMap::from([("octavo.dev/type".to_owned(), type_name.to_owned())]),
            tolerations: vec![Toleration::for_key(GPU)],
        },
        ..HardwareProfile::default()
    }
}
