//! Requests of 100 clients over sockets to an aggregator that watches a cluster: `cargo bench --bench cluster_requests`.
//!
//! A real API server has 1,000 nodes without machines, 20,000 bound pods and 200 hardware profiles. Pods are created and deleted all
//! the time. The aggregator is a separate process. It measures, without agents and with an agent on every node:
//!
//! - response times, compared with those of a route without work;
//! - the time until a change in the cluster is visible;
//! - memory and CPU of the aggregator.
//!
//! It prints tables in Markdown for `docs/performance.md` and never fails on a figure.
//!
//! `-- SECONDS DELAY_SECONDS` changes the duration of each request measurement (10) and of each delay measurement (60).
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark is a script: it measures the wall clock, prints, and stops at the first error"
)]

#[expect(dead_code, reason = "other benchmarks use the rest")]
#[path = "support/aggregator.rs"]
mod aggregator;
#[path = "support/change_delay.rs"]
mod change_delay;
#[path = "support/clients.rs"]
mod clients;
#[expect(dead_code, reason = "tests use the rest")]
#[path = "../tests/it-cluster/cluster"]
mod cluster {
    mod api;
    mod kubectl;
    mod objects;
    mod supervisor;

    pub(crate) use api::Api;
    pub(crate) use objects::TokenKubeconfig;
}
#[path = "support/cluster_data.rs"]
mod cluster_data;
#[path = "support/distribution.rs"]
mod distribution;
#[path = "support/inspect.rs"]
mod inspect;
#[expect(dead_code, reason = "other benchmarks use the rest")]
#[path = "support/node_status.rs"]
mod node_status;
#[path = "support/objects.rs"]
mod objects;
#[expect(dead_code, reason = "other benchmarks use the rest")]
#[path = "support/process.rs"]
mod process;
#[expect(dead_code, reason = "other benchmarks use the rest")]
#[path = "support/simulated_agents.rs"]
mod simulated_agents;
#[path = "support/simulated_machine.rs"]
mod simulated_machine;
#[expect(dead_code, reason = "other benchmarks use the rest")]
#[path = "support/test_cluster.rs"]
mod test_cluster;
#[expect(dead_code, reason = "tests use the rest")]
#[path = "../tests/support/time_limits.rs"]
mod time_limits;

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};

use aggregator::{Aggregator, Listen, Serving, get};
use clients::measure;
use cluster_data::{PENDING_PODS, PODS, PROFILES, TYPES};
use distribution::Distribution;
use objects::NODES;
use simulated_agents::{Connect, SimulatedAgents};
use test_cluster::TestCluster;

const CLIENTS: usize = 100;
const CHANGES_PER_SECOND: u32 = 100;
const PATHS: [&str; 6] = [
    "/api/hardware-profiles",
    "/api/v1/profiles?type=nvidia-h200-141gb",
    "/api/v1/profiles/team-0/profile-7",
    "/api/v1/availability",
    "/api/v1/availability?type=nvidia-h200-141gb",
    "/api/v1/types",
];
/// A route without work.
const HEALTH: &str = "/healthz";

/// The aggregator, the cluster that it watches, and the durations of the measurements.
struct Bench {
    runtime: Arc<Runtime>,
    cluster: Arc<TestCluster>,
    aggregator: Aggregator,
    /// Number of pods that were created or deleted.
    changes: Arc<AtomicUsize>,
    /// Duration of each request measurement.
    request_time: Duration,
    /// Duration of each delay measurement.
    delay_time: Duration,
}

fn main() {
    // `cargo bench` adds flags of its own.
    let mut numbers = std::env::args().filter_map(|argument| argument.parse().ok());
    let [request_time, delay_time] =
        [10, 60].map(|default| Duration::from_secs(numbers.next().unwrap_or(default)));
    let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
    println!("Profile: {profile}. Load average at the start: {}", load());
    let runtime = Arc::new(Builder::new_current_thread().enable_all().build().unwrap());
    let cluster = Arc::new(runtime.block_on(async { TestCluster::start() }));
    let time = runtime.block_on(cluster_data::create(&cluster));
    println!(
        "{NODES} nodes of {} types, {PODS} bound pods, {PENDING_PODS} pending pods, {PROFILES} profiles; created in {:.0} s.\n",
        TYPES.len(),
        time.as_secs_f64()
    );
    let bench = Bench::start(runtime, cluster, (request_time, delay_time));
    println!("{COST_HEAD}");
    bench.costs("fleet loaded, idle");
    let churn = bench.churn();
    bench.costs("pods change");
    println!();
    bench.requests();
    bench.delays();
    let agents = bench.agents();
    println!("With {} reporting agents, one on each node:\n\n{COST_HEAD}", agents.len());
    bench.costs("pods change, 1,000 agents");
    println!();
    bench.requests();
    bench.delays();
    churn.abort();
    println!("Load average at the end: {}", load());
}

const COST_HEAD: &str = "| aggregator | MiB PSS | anonymous | peak anonymous | millicores | API server, millicores | changes/s |\n|---|---|---|---|---|---|---|";

impl Bench {
    fn start(
        runtime: Arc<Runtime>,
        cluster: Arc<TestCluster>,
        (request_time, delay_time): (Duration, Duration),
    ) -> Self {
        let kubeconfig = format!("--kubeconfig={}", cluster.api.kubeconfig().display());
        let start = Instant::now();
        let aggregator = Aggregator::start_with(
            &Serving::Plain,
            Listen::ANYWHERE,
            &["--follow-cluster", &kubeconfig],
        );
        let http = aggregator.http;
        let pods = format!("octavo_cluster_objects{{kind=\"pod\"}} {}", PODS + PENDING_PODS);
        wait_until(http, "/metrics", |body| body.contains(&pods));
        wait_until(http, PATHS[0], |body| body.matches("\"name\":").count() > PROFILES);
        println!(
            "From its start until it has read and published the fleet: {:.1} s, {:.1} s of CPU time, peak {:.0} MiB anonymous.\n",
            start.elapsed().as_secs_f64(),
            process::cpu_time(aggregator.id()).as_secs_f64(),
            process::peak_anonymous_mib(aggregator.id())
        );
        let background = Arc::clone(&runtime);
        std::thread::Builder::new()
            .name("cluster".to_owned())
            .spawn(move || background.block_on(std::future::pending::<()>()))
            .unwrap();
        Self { runtime, cluster, aggregator, changes: Arc::default(), request_time, delay_time }
    }

    fn churn(&self) -> tokio::task::JoinHandle<()> {
        let (client, changes) = (self.cluster.client.clone(), Arc::clone(&self.changes));
        self.runtime.spawn(cluster_data::churn(client, CHANGES_PER_SECOND, changes))
    }

    /// Prints memory and CPU of the aggregator over `request_time`.
    fn costs(&self, name: &str) {
        let pid = self.aggregator.id();
        reset_peak(pid);
        let (start, cpu, server) = (Instant::now(), process::cpu_time(pid), self.cluster.usage());
        let changes = self.changes.load(Ordering::Relaxed);
        std::thread::sleep(self.request_time);
        let time = start.elapsed().as_secs_f64();
        let cpu = process::cpu_time(pid).saturating_sub(cpu).as_secs_f64();
        let server = self.cluster.usage().cpu_s - server.cpu_s;
        let changes = self.changes.load(Ordering::Relaxed) - changes;
        let memory = process::memory(pid);
        println!(
            "| {name} | {:.1} | {:.1} | {:.1} | {:.0} | {:.0} | {:.0} |",
            memory.pss,
            memory.anonymous,
            process::peak_anonymous_mib(pid),
            cpu / time * 1e3,
            server / time * 1e3,
            f64::from(u32::try_from(changes).unwrap()) / time
        );
    }

    /// Measures the responses to one path after the other, and to all paths in turn.
    fn requests(&self) {
        println!(
            "| {CLIENTS} clients, pods change | ms p50 / p99 / maximum | p50, times {HEALTH} | responses/s | bytes | aggregator, millicores | clients, millicores | API server, millicores |\n|---|---|---|---|---|---|---|---|"
        );
        let mut health_p50 = None;
        let pid = self.aggregator.id();
        reset_peak(pid);
        for path in [HEALTH].iter().chain(&PATHS).chain(&[HEALTH]) {
            let p50 = self.row(path, &[path], None, health_p50);
            health_p50.get_or_insert(p50);
        }
        self.row("all of these except the first, in turn", &PATHS, None, health_p50);
        let second = Some(Duration::from_secs(1));
        self.row("the same, one request per second and client", &PATHS, second, health_p50);
        let memory = process::memory(pid);
        println!(
            "\nMemory of the aggregator after that: {:.1} MiB PSS, {:.1} anonymous; peak {:.1} anonymous.\n",
            memory.pss,
            memory.anonymous,
            process::peak_anonymous_mib(pid)
        );
    }

    /// Prints one row and returns the median in milliseconds.
    fn row(
        &self,
        name: &str,
        paths: &[&str],
        pause: Option<Duration>,
        health_p50: Option<f64>,
    ) -> f64 {
        let pid = self.aggregator.id();
        let (cpu, server) = (process::cpu_time(pid), self.cluster.usage());
        let responses = measure(self.aggregator.http, paths, CLIENTS, self.request_time, pause);
        let cpu = process::cpu_time(pid).saturating_sub(cpu);
        let server = self.cluster.usage().cpu_s - server.cpu_s;
        let time = responses.time.as_secs_f64();
        let rate = f64::from(u32::try_from(responses.times.len()).unwrap()) / time;
        let times = Distribution::new(responses.times);
        let p50 = times.percentile(50);
        println!(
            "| {name} | {p50:.1} / {:.1} / {:.1} | {:.1} | {rate:.0} | {} | {:.0} | {:.0} | {:.0} |",
            times.percentile(99),
            times.percentile(100),
            p50 / health_p50.unwrap_or(p50),
            responses.bytes,
            cpu.as_secs_f64() / time * 1e3,
            responses.cpu.as_secs_f64() / time * 1e3,
            server / time * 1e3
        );
        p50
    }

    /// Measures the time until a change is visible, without other clients and with 100 clients.
    fn delays(&self) {
        println!("{}", change_delay::TABLE_HEAD);
        for (name, has_clients) in [("no other clients", false), ("100 clients", true)] {
            let (cluster, http, span) =
                (Arc::clone(&self.cluster), self.aggregator.http, self.delay_time);
            let delays = async move { change_delay::measure(&cluster.client, http, span).await };
            let delays = self.runtime.spawn(delays);
            if has_clients {
                measure(http, &PATHS, CLIENTS, span, None);
            }
            let delays = self.runtime.block_on(delays).unwrap();
            change_delay::print(name, delays);
        }
        println!();
    }

    /// Starts an agent on each node, with devices of the type in the node's label.
    fn agents(&self) -> SimulatedAgents {
        let _context = self.runtime.enter();
        let statuses =
            TYPES.map(|(_, board)| node_status::parts(&node_status::inventory(board, 0)));
        let agents =
            SimulatedAgents::start(NODES, &Connect::plain(self.aggregator.grpc), &statuses[0]);
        for number in 0..NODES {
            agents.report(number, statuses[number % statuses.len()].clone());
        }
        agents.wait_until_in_sync();
        agents
    }
}

/// Waits until the body of the response fulfills `condition`.
fn wait_until(http: SocketAddr, path: &str, condition: impl Fn(&str) -> bool) {
    let start = Instant::now();
    loop {
        let response = get(http, path);
        if response.status == 200 && condition(&response.body) {
            return;
        }
        assert!(start.elapsed() < Duration::from_mins(5), "{path}: {}", response.body);
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn reset_peak(pid: u32) {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
}

fn load() -> String {
    fs::read_to_string("/proc/loadavg").unwrap()
}
