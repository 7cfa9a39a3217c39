//! What people ask an aggregator that follows a cluster, as it ships and over real sockets: `cargo bench --bench served`.
//!
//! A real API server has 1,000 nodes without a machine, 20,000 bound pods and 200 hardware profiles; pods come and go all the time. The
//! aggregator is a process of its own, and a hundred clients have a connection each. Measured: how long answers take, beside the same
//! clients at a route that answers nothing; how late a change in the cluster is seen; what memory and processor that takes; and all of
//! it again with an agent on every node. It prints tables in Markdown for `docs/performance.md`; it never fails on a figure.
//!
//! `-- SECONDS STALENESS` for other spans than 10 s for each question and 60 s in which it is looked how late changes are seen.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark is a script: it measures the wall clock, prints, and stops at the first thing out of order"
)]

#[expect(dead_code, reason = "what a swarm is measured by is not for here")]
#[path = "support/aggregator.rs"]
mod aggregator;
#[expect(dead_code, reason = "what watches agents is not for here")]
#[path = "support/bed.rs"]
mod bed;
#[path = "support/clients.rs"]
mod clients;
#[expect(dead_code, reason = "tests need more of it")]
#[path = "../tests/it-cluster/cluster"]
mod cluster {
    mod api;
    mod kubectl;
    mod objects;
    mod supervisor;

    pub(crate) use api::Api;
    pub(crate) use objects::TokenKubeconfig;
}
#[path = "support/filled.rs"]
mod filled;
#[expect(dead_code, reason = "certificates and changes of agents are not for here")]
#[path = "support/fleet_of.rs"]
mod fleet_of;
#[path = "support/lateness.rs"]
mod lateness;
#[path = "support/objects.rs"]
mod objects;
#[expect(dead_code, reason = "how often it wakes up is not for here")]
#[path = "support/process.rs"]
mod process;
#[path = "support/simulated.rs"]
mod simulated;
#[path = "support/spread.rs"]
mod spread;
#[expect(dead_code, reason = "agents that come back are not for here")]
#[path = "support/swarm.rs"]
mod swarm;
#[expect(dead_code, reason = "tests need more of it")]
#[path = "../tests/support/time_limits.rs"]
mod time_limits;

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};

use aggregator::{Aggregator, Listen, Serving, get};
use bed::Bed;
use clients::ask;
use filled::{PODS, PROFILES, TYPES, WAITING};
use objects::NODES;
use spread::Spread;
use swarm::{Connect, Swarm};

const CLIENTS: usize = 100;
const CHANGES_A_SECOND: u32 = 100;
/// What is asked when it is not one question alone.
const ALL: [&str; 6] = [
    "/api/hardware-profiles",
    "/api/v1/profiles?type=nvidia-h200-141gb",
    "/api/v1/profiles/team-0/profile-7",
    "/api/v1/availability",
    "/api/v1/availability?type=nvidia-h200-141gb",
    "/api/v1/types",
];
const TRIVIAL: &str = "/healthz";

/// The aggregator and all around it.
struct Site {
    runtime: Arc<Runtime>,
    bed: Arc<Bed>,
    aggregator: Aggregator,
    changes: Arc<AtomicUsize>,
    /// How long each question is asked.
    span: Duration,
    /// How long it is looked how late changes are seen.
    looked: Duration,
}

fn main() {
    // `cargo bench` passes its own flags; numbers are ours.
    let mut given = std::env::args().filter_map(|argument| argument.parse().ok());
    let [span, looked] = [10, 60].map(|usual| Duration::from_secs(given.next().unwrap_or(usual)));
    let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
    println!("Profile: {profile}. Load of the machine at the start: {}", load());
    let runtime = Arc::new(Builder::new_current_thread().enable_all().build().unwrap());
    let bed = Arc::new(runtime.block_on(async { Bed::start() }));
    let took = runtime.block_on(filled::fill(&bed));
    println!(
        "{NODES} nodes of {} types, {PODS} bound pods and {WAITING} that wait, {PROFILES} profiles; made in {:.0} s.\n",
        TYPES.len(),
        took.as_secs_f64()
    );
    let site = Site::start(runtime, bed, (span, looked));
    println!("{COSTS}");
    site.costs("idle, all read", || std::thread::sleep(span));
    let churning = site.churn();
    site.costs("pods change", || std::thread::sleep(span));
    println!();
    site.questions();
    site.late();
    let swarm = site.agents();
    println!("With {} agents that report, one on each node:\n\n{COSTS}", swarm.len());
    site.costs("pods change, 1,000 agents", || std::thread::sleep(span));
    println!();
    site.questions();
    site.late();
    churning.abort();
    println!("Load of the machine at the end: {}", load());
}

const COSTS: &str = "| aggregator | MiB PSS | of it anonymous | most anonymous at once | millicores | API server and etcd, millicores | changes a second |\n|---|---|---|---|---|---|---|";

impl Site {
    fn start(runtime: Arc<Runtime>, bed: Arc<Bed>, (span, looked): (Duration, Duration)) -> Self {
        let kubeconfig = format!("--kubeconfig={}", bed.api.kubeconfig().display());
        let began = Instant::now();
        let aggregator = Aggregator::start_with(
            &Serving::Plain,
            Listen::ANYWHERE,
            &["--follow-cluster", &kubeconfig],
        );
        let here = aggregator.http;
        let pods = format!("octavo_cluster_objects{{kind=\"pod\"}} {}", PODS + WAITING);
        until(here, "/metrics", |body| body.contains(&pods));
        until(here, ALL[0], |body| body.matches("\"name\":").count() > PROFILES);
        println!(
            "From its start until everything is read and told: {:.1} s, {:.1} s of processor, {:.0} MiB anonymous at most.\n",
            began.elapsed().as_secs_f64(),
            spent(aggregator.id()).as_secs_f64(),
            peak(aggregator.id())
        );
        let running = Arc::clone(&runtime);
        std::thread::Builder::new()
            .name("cluster".to_owned())
            .spawn(move || running.block_on(std::future::pending::<()>()))
            .unwrap();
        Self { runtime, bed, aggregator, changes: Arc::default(), span, looked }
    }

    fn churn(&self) -> tokio::task::JoinHandle<()> {
        let (client, changes) = (self.bed.client.clone(), Arc::clone(&self.changes));
        self.runtime.spawn(filled::churn(client, CHANGES_A_SECOND, changes))
    }

    /// Does something, and prints what the aggregator needs meanwhile.
    fn costs<T>(&self, what: &str, doing: impl FnOnce() -> T) -> T {
        let pid = self.aggregator.id();
        // From now on the most is that of this row.
        fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
        let (start, cpu, servers) = (Instant::now(), spent(self.aggregator.id()), self.bed.usage());
        let changes = self.changes.load(Ordering::Relaxed);
        let done = doing();
        let took = start.elapsed().as_secs_f64();
        let cpu = spent(self.aggregator.id()).saturating_sub(cpu).as_secs_f64();
        let servers = self.bed.usage().cpu_s - servers.cpu_s;
        let changes = self.changes.load(Ordering::Relaxed) - changes;
        let memory = process::memory(pid);
        println!(
            "| {what} | {:.1} | {:.1} | {:.1} | {:.0} | {:.0} | {:.0} |",
            memory.pss,
            memory.anonymous,
            peak(pid),
            cpu / took * 1e3,
            servers / took * 1e3,
            f64::from(u32::try_from(changes).unwrap()) / took
        );
        done
    }

    /// A hundred clients at one question after the other, each of them as often as they get an answer.
    fn questions(&self) {
        println!(
            "| {CLIENTS} clients, pods change | ms p50 / p99 / most | p50 of that of {TRIVIAL} | answers a second | bytes | aggregator, millicores | clients, millicores | API server and etcd |\n|---|---|---|---|---|---|---|---|"
        );
        let mut trivial = None;
        let pid = self.aggregator.id();
        fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
        for path in [TRIVIAL].iter().chain(&ALL).chain(&[TRIVIAL]) {
            let p50 = self.row(path, &[path], None, trivial);
            trivial.get_or_insert(p50);
        }
        self.row("all but the first, in turn", &ALL, None, trivial);
        let second = Some(Duration::from_secs(1));
        self.row("the same, each client once a second", &ALL, second, trivial);
        let memory = process::memory(pid);
        println!(
            "\nMemory of the aggregator after that: {:.1} MiB PSS, {:.1} anonymous; {:.1} anonymous at most meanwhile.\n",
            memory.pss,
            memory.anonymous,
            peak(pid)
        );
    }

    /// Prints one row, and gives the median.
    fn row(
        &self,
        what: &str,
        paths: &[&str],
        pause: Option<Duration>,
        trivial: Option<f64>,
    ) -> f64 {
        let (cpu, servers) = (spent(self.aggregator.id()), self.bed.usage());
        let requested = ask(self.aggregator.http, paths, CLIENTS, self.span, pause);
        let cpu = spent(self.aggregator.id()).saturating_sub(cpu);
        let servers = self.bed.usage().cpu_s - servers.cpu_s;
        let took = requested.took.as_secs_f64();
        let answers = f64::from(u32::try_from(requested.times.len()).unwrap()) / took;
        let times = Spread::of(requested.times);
        let p50 = times.at(50);
        println!(
            "| {what} | {p50:.1} / {:.1} / {:.1} | {:.1} | {answers:.0} | {} | {:.0} | {:.0} | {:.0} |",
            times.at(99),
            times.at(100),
            p50 / trivial.unwrap_or(p50),
            requested.bytes,
            cpu.as_secs_f64() / took * 1e3,
            requested.cpu.as_secs_f64() / took * 1e3,
            servers / took * 1e3
        );
        p50
    }

    /// How late changes are seen, by one that looks alone and by one among a hundred.
    fn late(&self) {
        println!("{}", lateness::HEAD);
        for (what, is_alone) in [("nobody else asks", true), ("a hundred clients ask", false)] {
            let (bed, http, span) = (Arc::clone(&self.bed), self.aggregator.http, self.looked);
            let looking = async move { lateness::look(&bed.client, http, span).await };
            let looking = self.runtime.spawn(looking);
            if !is_alone {
                ask(http, &ALL, CLIENTS, span, None);
            }
            let seen = self.runtime.block_on(looking).unwrap();
            lateness::print(what, seen);
        }
        println!();
    }

    /// One on each node, whose devices are of the type that the node's label says.
    fn agents(&self) -> Swarm {
        let _inside = self.runtime.enter();
        let kinds = TYPES.map(|(_, board)| fleet_of::parts(&fleet_of::inventory(board, 0)));
        let swarm = Swarm::start(NODES, &Connect::plain(self.aggregator.grpc), &kinds[0]);
        for number in 0..NODES {
            swarm.say(number, kinds[number % kinds.len()].clone());
        }
        swarm.in_sync();
        swarm
    }
}

/// Waits until the answer at `path` is as wanted.
fn until(here: SocketAddr, path: &str, wanted: impl Fn(&str) -> bool) {
    let start = Instant::now();
    loop {
        let answer = get(here, path);
        if answer.status == 200 && wanted(&answer.body) {
            return;
        }
        assert!(start.elapsed() < Duration::from_mins(5), "{path}: {}", answer.body);
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Most memory that a process had at once since it was last forgotten, in MiB; less what is of files, which hardly changes.
fn peak(pid: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let in_mib = |field: &str| {
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        let kibibytes = line.split_whitespace().nth(1).unwrap();
        kibibytes.parse::<f64>().unwrap() / 1024.0
    };
    in_mib("VmHWM:") - in_mib("RssFile:")
}

fn load() -> String {
    fs::read_to_string("/proc/loadavg").unwrap()
}

/// CPU time of a process so far, of threads that have ended too. Source: proc(5), `/proc/PID/stat`, in hundredths of a second on Linux.
fn spent(pid: u32) -> Duration {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // Its name may have spaces and brackets in it.
    let (_name, rest) = text.rsplit_once(')').unwrap();
    let ticks = rest.split_whitespace().skip(11).take(2);
    let ticks = ticks.map(|ticks| ticks.parse::<u64>().unwrap());
    Duration::from_millis(ticks.sum::<u64>() * 10)
}
