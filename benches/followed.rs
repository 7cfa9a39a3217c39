//! What a watched cluster costs: memory by 10,000 pods, and processor time while they come and go.
//!
//! The follower is the one that ships; its API server is a function in this process, which writes each page when it is asked for one
//! and keeps none. Each size is a process of its own, so that none has what another left. It prints tables in Markdown for
//! `docs/performance.md`; it never fails on a figure.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark is a script: it measures, prints, and stops at the first thing out of order"
)]

#[path = "support/objects.rs"]
mod objects;

use std::convert::Infallible;
use std::fs;
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

/// Changes of pods while it is looked what they cost: so many a second, so long.
const CHANGES: usize = 100;
const SPAN: Duration = Duration::from_secs(10);

/// What the API server has.
struct Server {
    pods: usize,
    /// Where events of pods are published, while a client watches.
    events: watch::Sender<Option<mpsc::Sender<Bytes>>>,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|one| one == "pods") {
        let pods = arguments[at + 1].parse().unwrap();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        return runtime.block_on(one(pods));
    }
    println!(
        "{NODES} nodes of {} bytes each, pods of {} bytes each as the API server writes them.\n",
        node(0).to_string().len(),
        pod(0, 0).to_string().len()
    );
    println!(
        "| pods | MiB more than before | of that, most at once | s of processor until all are read | at {CHANGES} changes a second: millicores | and MiB more |"
    );
    println!("|---|---|---|---|---|---|");
    for pods in ["0", "10000", "20000", "50000"] {
        let program = std::env::current_exe().unwrap();
        let status = Command::new(program).args(["pods", pods]).status();
        assert!(status.unwrap().success());
    }
}

async fn one(pods: usize) {
    let (events, mut watched) = watch::channel(None);
    let server = Arc::new(Server { pods, events });
    let serving = Arc::clone(&server);
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let server = Arc::clone(&serving);
        async move { Ok::<_, Infallible>(server.answer(request.uri())) }
    });
    let cluster_watcher = ClusterWatcher::new(kube::Client::new(service, "default"));
    let mut snapshots = cluster_watcher.subscribe();
    let (before, began) = (anonymous("Pss_Anon:"), cpu());
    tokio::spawn(cluster_watcher.run());
    let is_there =
        |all: &WatchedCluster| all.current_at.is_some() && all.snapshot.pods.len() == pods;
    snapshots.wait_for(|all| is_there(all)).await.unwrap();
    let read = cpu().saturating_sub(began);
    let (after, peak) = (anonymous("Pss_Anon:"), peak());
    let events = watched.wait_for(Option::is_some).await.unwrap().clone();
    let busy = churn(&events.unwrap(), pods, &mut snapshots).await;
    let later = anonymous("Pss_Anon:");
    println!(
        "| {pods} | {:.1} | {:.1} | {:.2} | {busy:.1} | {:.1} |",
        after - before,
        peak - before,
        read.as_secs_f64(),
        later - after
    );
}

/// Pods change, evenly over time; how many thousandths of a processor that takes, the making of events included.
async fn churn(
    events: &mpsc::Sender<Bytes>,
    pods: usize,
    watched: &mut watch::Receiver<Arc<WatchedCluster>>,
) -> f64 {
    let (start, began) = (Instant::now(), cpu());
    let mut every = tokio::time::interval(Duration::from_secs(1) / u32::try_from(CHANGES).unwrap());
    let mut number = 0;
    while start.elapsed() < SPAN && pods > 0 {
        tokio::select! {
            _ = every.tick() => {
                number += 1;
                let pod = pod(number * 7919 % pods, number);
                let event = json!({"type": "MODIFIED", "object": pod}).to_string() + "\n";
                events.send(event.into()).await.unwrap();
            }
            changed = watched.changed() => {
                changed.unwrap();
                // As a reader does, which has one while the next is made.
                drop(Arc::clone(&watched.borrow_and_update()));
            }
        }
    }
    cpu().saturating_sub(began).as_secs_f64() / start.elapsed().as_secs_f64() * 1e3
}

impl Server {
    fn answer(&self, uri: &Uri) -> Response<Body> {
        let query = uri.query().unwrap_or_default();
        let number = |name: &str| {
            let fields = query.split('&').filter_map(|one| one.split_once('='));
            let mut named = fields.filter(|(key, _)| *key == name);
            named.next().and_then(|(_, value)| value.parse::<usize>().ok())
        };
        let is_pods = uri.path().ends_with("/pods");
        if query.contains("watch=true") {
            let (sender, receiver) = mpsc::channel(64);
            let _retained = if is_pods {
                self.events.send_replace(Some(sender))
            } else {
                // Nothing is sent, and it does not end.
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
            (from..end).map(|one| if is_pods { pod(one, 0) } else { node(one) }).collect();
        let rest = if end < count { end.to_string() } else { String::new() };
        let page = json!({
            "kind": "List", "apiVersion": "v1", "items": items,
            "metadata": {"resourceVersion": "1", "continue": rest},
        });
        Response::new(Body::from(page.to_string()))
    }
}

/// In MiB. Source: `/proc/PID/smaps_rollup`.
fn anonymous(field: &str) -> f64 {
    in_mib(&fs::read_to_string("/proc/self/smaps_rollup").unwrap(), field)
}

/// Most that was there at once, in MiB; less what is of files, which hardly changes.
fn peak() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    in_mib(&status, "VmHWM:") - in_mib(&status, "RssFile:")
}

fn in_mib(text: &str, field: &str) -> f64 {
    let line = text.lines().find(|line| line.starts_with(field)).unwrap();
    let number: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    number / 1024.0
}

/// Of this process until now, making pages and events included.
fn cpu() -> Duration {
    let text = fs::read_to_string("/proc/self/schedstat").unwrap();
    Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
}
