//! Memory and CPU of the cluster watcher, by number of pods: `cargo bench --bench cluster_watcher`.
//!
//! The API server is simulated in this process. It generates each page of a list on request and stores none. Each number of pods is
//! measured in a separate process, so that the memory of one measurement does not affect the next. It prints tables in Markdown for
//! `docs/performance.md` and never fails on a figure.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark is a script: it measures, prints, and stops at the first error"
)]

#[path = "support/objects.rs"]
mod objects;
#[expect(dead_code, reason = "other benchmarks use the rest")]
#[path = "support/process.rs"]
mod process;

use std::convert::Infallible;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::{Request, Response, Uri};
use octavo_kube::cluster::{ClusterWatcher, WatchedCluster};
use serde_json::{Value, json};
use tokio::runtime::Builder;
use tokio::sync::{mpsc, watch};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use objects::{NODES, node, pod};

/// Changes of pods while CPU is measured.
const CHANGES_PER_SECOND: u32 = 100;
/// Duration of the CPU measurement.
const SPAN: Duration = Duration::from_secs(10);

/// The simulated API server.
struct Server {
    pods: usize,
    /// Channel for the events of pods, while a client watches them.
    events: watch::Sender<Option<mpsc::Sender<Bytes>>>,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(index) = arguments.iter().position(|argument| argument == "pods") {
        let pods = arguments[index + 1].parse().unwrap();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        return runtime.block_on(measure(pods));
    }
    println!(
        "{NODES} nodes of {} bytes each, pods of {} bytes each, as JSON.\n",
        node(0).to_string().len(),
        pod(0, 0).to_string().len()
    );
    println!(
        "| pods | additional memory, MiB | peak, MiB | CPU time to read all, s (with the server) | millicores at {CHANGES_PER_SECOND} changes/s (with the server) | memory after the changes, MiB more |"
    );
    println!("|---|---|---|---|---|---|");
    for pods in ["0", "10000", "20000", "50000"] {
        let program = std::env::current_exe().unwrap();
        let status = Command::new(program).args(["pods", pods]).status();
        assert!(status.unwrap().success());
    }
}

async fn measure(pods: usize) {
    let (events, mut watched) = watch::channel(None);
    let server = Arc::new(Server { pods, events });
    let handler = Arc::clone(&server);
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let server = Arc::clone(&handler);
        async move { Ok::<_, Infallible>(server.respond(request.uri())) }
    });
    let cluster_watcher = ClusterWatcher::new(kube::Client::new(service, "default"));
    let mut snapshots = cluster_watcher.subscribe();
    let (before, cpu) = (anonymous_mib(), cpu_ms());
    tokio::spawn(cluster_watcher.run());
    let is_complete = |cluster: &WatchedCluster| {
        cluster.current_at.is_some() && cluster.snapshot.pods().len() == pods
    };
    snapshots.wait_for(|cluster| is_complete(cluster)).await.unwrap();
    let cpu = cpu_ms() - cpu;
    let after = anonymous_mib();
    let peak = process::peak_anonymous_mib(std::process::id());
    let events = watched.wait_for(Option::is_some).await.unwrap().clone();
    let millicores = churn(&events.unwrap(), pods, &mut snapshots).await;
    let later = anonymous_mib();
    println!(
        "| {pods} | {:.1} | {:.1} | {:.2} | {millicores:.1} | {:.1} |",
        after - before,
        peak - before,
        cpu / 1e3,
        later - after
    );
}

/// Changes pods at a constant rate. Returns the CPU in millicores, which includes the generation of events.
async fn churn(
    events: &mpsc::Sender<Bytes>,
    pods: usize,
    watched: &mut watch::Receiver<Arc<WatchedCluster>>,
) -> f64 {
    let (start, cpu) = (Instant::now(), cpu_ms());
    let mut interval = tokio::time::interval(Duration::from_secs(1) / CHANGES_PER_SECOND);
    let mut number = 0;
    while start.elapsed() < SPAN && pods > 0 {
        tokio::select! {
            _ = interval.tick() => {
                number += 1;
                let pod = pod(number * 7919 % pods, number);
                let event = json!({"type": "MODIFIED", "object": pod}).to_string() + "\n";
                events.send(event.into()).await.unwrap();
            }
            changed = watched.changed() => {
                changed.unwrap();
                // A reader holds one snapshot while the next is created.
                drop(Arc::clone(&watched.borrow_and_update()));
            }
        }
    }
    (cpu_ms() - cpu) / start.elapsed().as_secs_f64()
}

impl Server {
    fn respond(&self, uri: &Uri) -> Response<Body> {
        let query = uri.query().unwrap_or_default();
        let number = |name: &str| {
            let fields = query.split('&').filter_map(|field| field.split_once('='));
            let mut values = fields.filter(|(key, _)| *key == name);
            values.next().and_then(|(_, value)| value.parse::<usize>().ok())
        };
        let is_pods = uri.path().ends_with("/pods");
        if query.contains("watch=true") {
            let (sender, receiver) = mpsc::channel(64);
            let _retained = if is_pods {
                self.events.send_replace(Some(sender))
            } else {
                // This watch has no events and does not end.
                Box::leak(Box::new(sender));
                None
            };
            return Response::new(Body::from_stream(
                ReceiverStream::new(receiver).map(Ok::<_, Infallible>),
            ));
        }
        let (from, limit) = (number("continue").unwrap_or(0), number("limit").unwrap());
        let count = if is_pods { self.pods } else { NODES };
        let end = count.min(from + limit);
        let items: Vec<Value> =
            (from..end).map(|number| if is_pods { pod(number, 0) } else { node(number) }).collect();
        let rest = if end < count { end.to_string() } else { String::new() };
        let page = json!({
            "kind": "List", "apiVersion": "v1", "items": items,
            "metadata": {"resourceVersion": "1", "continue": rest},
        });
        Response::new(Body::from(page.to_string()))
    }
}

fn anonymous_mib() -> f64 {
    process::memory(std::process::id()).anonymous
}

fn cpu_ms() -> f64 {
    process::cpu_ms(std::process::id())
}
