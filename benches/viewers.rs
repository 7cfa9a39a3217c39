//! CPU of the aggregator with 1,000 nodes and 10 open pages: `cargo bench --bench viewers`.
//!
//! The aggregator is a separate process. 1,000 agents with 8 GPUs each are connected to it through sockets, and 50 of them report a
//! change every second. A viewer behaves like `crates/pages/assets/octavo.js`: it holds an event stream and loads its page after each
//! `change` event. It prints tables in Markdown for `docs/performance.md` and never fails on a figure.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark is a script: it measures the wall clock, prints, and stops at the first error"
)]

#[expect(dead_code, reason = "other benchmarks use the rest")]
#[path = "support/aggregator.rs"]
mod aggregator;
#[expect(dead_code, reason = "other benchmarks use the rest")]
#[path = "support/clients.rs"]
mod clients;
#[path = "support/inspect.rs"]
mod inspect;
#[expect(dead_code, reason = "other benchmarks use the rest")]
#[path = "support/node_status.rs"]
mod node_status;
#[expect(dead_code, reason = "other benchmarks use the rest")]
#[path = "support/process.rs"]
mod process;
#[expect(dead_code, reason = "other benchmarks use the rest")]
#[path = "support/simulated_agents.rs"]
mod simulated_agents;
#[path = "support/simulated_machine.rs"]
mod simulated_machine;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use octavo_stream::protocol::Parts;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use aggregator::{Aggregator, Listen, Serving, get};
use clients::Client;
use simulated_agents::{Connect, SimulatedAgents, name};

const AGENTS: usize = 1000;
const VIEWERS: usize = 10;
const CHANGES_PER_SECOND: usize = 50;
/// Duration of each measurement.
const SPAN: Duration = Duration::from_secs(20);

fn main() {
    let machine = node_status::inventory("H100_80GB_SXM", 0);
    let runtime = Arc::new(Builder::new_current_thread().enable_all().build().unwrap());
    let clients = Arc::clone(&runtime);
    std::thread::spawn(move || clients.block_on(std::future::pending::<()>()));
    let _context = runtime.enter();
    let aggregator = Aggregator::start(&Serving::Plain, Listen::ANYWHERE);
    let parts = node_status::parts(&machine);
    let agents = Arc::new(SimulatedAgents::start(AGENTS, &Connect::plain(aggregator.grpc), &parts));
    agents.wait_until_in_sync();
    println!(
        "| {VIEWERS} viewers of | millicores | page loads per second | bytes of a page |\n|---|---|---|---|"
    );
    measure("no page; no changes", &aggregator, &[]);
    let variants = node_status::variants(&machine, 64);
    let changes = tokio::spawn(change(agents, variants));
    measure(&format!("no page; {CHANGES_PER_SECOND} changes/s"), &aggregator, &[]);
    let node = format!("/nodes/{}", name(42));
    let pages =
        ["/", "/nodes", "/map?by=utilization", "/availability", "/layouts", "/teams", &node];
    for page in pages {
        measure(&format!("`{page}`"), &aggregator, &[page]);
    }
    measure("these pages, in turn", &aggregator, &pages);
    changes.abort();
    let memory = process::memory(aggregator.id());
    println!("\nMemory after that: {:.1} MiB PSS, {:.1} anonymous.", memory.pss, memory.anonymous);
}

/// Prints the CPU of the aggregator while the viewers have `pages` open; without pages there are no viewers.
fn measure(what: &str, aggregator: &Aggregator, pages: &[&str]) {
    let loads = Arc::new(AtomicUsize::new(0));
    let mut viewers = JoinSet::new();
    if !pages.is_empty() {
        for page in pages.iter().cycle().take(VIEWERS) {
            viewers.spawn(view(aggregator.http, (*page).to_owned(), Arc::clone(&loads)));
        }
    }
    let bytes = pages.iter().map(|page| get(aggregator.http, page).bytes).max().unwrap_or(0);
    let (start, cpu) = (Instant::now(), process::cpu_time(aggregator.id()));
    loads.store(0, Ordering::Relaxed);
    std::thread::sleep(SPAN);
    let seconds = start.elapsed().as_secs_f64();
    let cpu = process::cpu_time(aggregator.id()).saturating_sub(cpu);
    let loads = f64::from(u32::try_from(loads.load(Ordering::Relaxed)).unwrap());
    println!(
        "| {what} | {:.0} | {:.1} | {bytes} |",
        1e3 * cpu.as_secs_f64() / seconds,
        loads / seconds
    );
}

/// Loads `page` after each `change` event, but not more often than the page itself asks for.
async fn view(address: SocketAddr, page: String, loads: Arc<AtomicUsize>) {
    let mut client = Client::connect(address).await;
    let mut events = TcpStream::connect(address).await.unwrap();
    events.write_all(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let (body, _) = client.get(&page).await;
    let pause = refresh_interval(&String::from_utf8_lossy(body));
    let mut last = Instant::now();
    let mut buffer = [0; 4096];
    loop {
        let count = events.read(&mut buffer).await.unwrap();
        assert!(count > 0, "the aggregator closed the event stream");
        let is_change = String::from_utf8_lossy(&buffer[..count]).contains("event: change");
        if is_change && last.elapsed() >= pause {
            last = Instant::now();
            // Meanwhile, the aggregator has closed an idle connection.
            if !pause.is_zero() {
                client = Client::connect(address).await;
            }
            client.get(&page).await;
            loads.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Minimum interval between two loads of a page.
fn refresh_interval(page: &str) -> Duration {
    let value = page.split_once("data-refresh-ms=\"").and_then(|(_, rest)| rest.split_once('"'));
    Duration::from_millis(value.map_or(0, |(milliseconds, _)| milliseconds.parse().unwrap()))
}

/// Reports changes of processes, of different agents each time.
async fn change(agents: Arc<SimulatedAgents>, variants: Vec<(u32, Parts)>) {
    let mut interval = tokio::time::interval(Duration::from_millis(100));
    let per_interval = CHANGES_PER_SECOND / 10;
    for round in 0_usize.. {
        interval.tick().await;
        for step in 0..per_interval {
            let number = round * per_interval + step;
            let (_, parts) = &variants[number / AGENTS % variants.len()];
            agents.report(number % AGENTS, parts.clone());
        }
    }
}
