//! Memory, ingest, latency and restart of the aggregator with many agents: `cargo bench --bench fleet`.
//!
//! The aggregator is a separate process. The agents and the readers run in this process and use real connections. Agents report
//! the status of simulated machines, which `octavo inspect` has read. It prints tables in Markdown for `docs/performance.md` and never
//! fails on a figure. `-- AGENTS` changes the number of agents in the large measurements (10,000), and `-- ingest large` runs two
//! of the measurements only: `memory`, `ingest`, `queries`, `restart`, `day` and `large`.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "a benchmark is a script: it measures the wall clock, prints, and stops at the first error"
)]

#[path = "support/aggregator.rs"]
mod aggregator;
#[path = "support/inspect.rs"]
mod inspect;
#[path = "support/large_fleet.rs"]
mod large_fleet;
#[path = "support/node_status.rs"]
mod node_status;
#[expect(dead_code, reason = "other benchmarks use the rest")]
#[path = "support/process.rs"]
mod process;
#[path = "support/simulated_agents.rs"]
mod simulated_agents;
#[path = "support/simulated_machine.rs"]
mod simulated_machine;
#[path = "support/store_ingest.rs"]
mod store_ingest;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use octavo_model::inventory::Inventory;
use octavo_stream::protocol::Parts;
use tokio::runtime::Builder;

use aggregator::{Aggregator, Listen, Serving, get};
use simulated_agents::{Connect, SimulatedAgents, name};

/// Default number of agents in the large measurements.
const DEFAULT_AGENT_COUNT: usize = 10_000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let agent_count = arguments.iter().find_map(|argument| argument.parse().ok());
    let agent_count = agent_count.unwrap_or(DEFAULT_AGENT_COUNT);
    let names = ["memory", "ingest", "queries", "restart", "day", "large"];
    // `cargo bench` adds flags of its own.
    let is_selective = arguments.iter().any(|argument| names.contains(&argument.as_str()));
    let is_wanted = |name: &str| !is_selective || arguments.iter().any(|argument| argument == name);
    let machine = node_status::inventory("H100_80GB_SXM", 0);
    let whole = node_status::parts(&machine);
    let partitioned = node_status::inventory("A100_80GB", 7);
    let split = node_status::parts(&partitioned);
    println!(
        "Status of 8 x H100, whole: {} bytes in {} parts; of 8 x A100 with 56 partitions: {} bytes.\n",
        whole.size(),
        whole.len(),
        split.size()
    );
    let runtime = Arc::new(Builder::new_current_thread().enable_all().build().unwrap());
    let background = Arc::clone(&runtime);
    std::thread::spawn(move || background.block_on(std::future::pending::<()>()));
    // Agents run on that thread, because the measurements block this one.
    let context = runtime.enter();
    for name in names.into_iter().filter(|name| is_wanted(name)) {
        match name {
            "memory" => memory(agent_count, &whole, &split),
            "ingest" => ingest(&machine),
            "queries" => queries(agent_count, &machine),
            "restart" => restart(agent_count, &whole),
            "day" => day(&machine),
            _ => large_fleet::run([&machine, &partitioned]),
        }
    }
    drop(context);
}

/// Measures memory per connected agent: the difference of the aggregator with and without agents, divided by their number.
fn memory(agent_count: usize, whole: &Parts, split: &Parts) {
    println!("| memory per connected agent, KiB PSS | plain | TLS |\n|---|---|---|");
    let tls = node_status::Certificates::new();
    let minimal = node_status::minimal(whole);
    for (name, parts, count) in [
        ("1,000 agents, each with a small status of one part", &minimal, 1000),
        ("1,000 agents, 8 x H100", whole, 1000),
        ("1,000 agents, 8 x A100 with 56 partitions", split, 1000),
        (&*format!("{agent_count} agents, 8 x H100"), whole, agent_count),
    ] {
        let mut row = Vec::new();
        for serving in [Serving::Plain, tls.serving()] {
            let aggregator = Aggregator::start(&serving, Listen::ANYWHERE);
            let empty = aggregator.pss_kib();
            let agents =
                SimulatedAgents::start(count, &tls.connect(&serving, aggregator.grpc), parts);
            agents.wait_until_in_sync();
            row.push((aggregator.pss_kib() - empty) / count as f64);
        }
        println!("| {name} | {:.1} | {:.1} |", row[0], row[1]);
    }
    println!();
}

/// Measures the deltas that one core processes: each of 200 agents sends the next as soon as all were acknowledged.
fn ingest(machine: &Inventory) {
    const AGENTS: usize = 200;
    const SPAN: Duration = Duration::from_secs(10);
    let (parts, variants) = (node_status::parts(machine), node_status::variants(machine, 64));
    let store_alone = store_ingest::deltas_per_cpu_second(AGENTS, &parts, &variants);
    let aggregator = Aggregator::start(&Serving::Plain, Listen::ANYWHERE);
    let agents = SimulatedAgents::start(AGENTS, &Connect::plain(aggregator.grpc), &parts);
    agents.wait_until_in_sync();
    let (acknowledged, cpu) =
        (agents.counters.acknowledged.load(Ordering::Relaxed), aggregator.cpu("ingest"));
    let start = Instant::now();
    let mut round = 0_usize;
    while start.elapsed() < SPAN {
        for number in 0..AGENTS {
            agents.report(number, variants[round % variants.len()].1.clone());
        }
        round += 1;
        agents.wait_until_in_sync();
    }
    let time = start.elapsed().as_secs_f64();
    let deltas = (agents.counters.acknowledged.load(Ordering::Relaxed) - acknowledged) as f64;
    let busy = (aggregator.cpu("ingest").saturating_sub(cpu)).as_secs_f64();
    println!("| ingest through sockets, {AGENTS} agents | |\n|---|---|");
    println!("| deltas per second, with the agents on the other core | {:.0} |", deltas / time);
    println!("| deltas per CPU second of the ingest thread | {:.0} |", deltas / busy);
    println!("| deltas per CPU second without sockets: messages and store | {store_alone:.0} |\n");
}

/// Measures the time from a change on a node to a response that includes it, and the response times of readers.
fn queries(agent_count: usize, machine: &Inventory) {
    let aggregator = Aggregator::start(&Serving::Plain, Listen::ANYWHERE);
    let parts = node_status::parts(machine);
    let agents =
        Arc::new(SimulatedAgents::start(agent_count, &Connect::plain(aggregator.grpc), &parts));
    agents.wait_until_in_sync();
    let variants = node_status::variants(machine, 64);
    println!(
        "| {agent_count} connected agents | idle, ms p50 / p99 | at 1,000 deltas/s, ms p50 / p99 | bytes |\n|---|---|---|---|"
    );
    let paths = [
        ("from a change to a response that includes it", format!("/api/v1/nodes/{}", name(7))),
        ("one node", format!("/api/v1/nodes/{}", name(42))),
        (
            "filtered list, 50 rows",
            "/api/v1/nodes?type=nvidia-h100-80gb&state=ok&limit=50".to_owned(),
        ),
        ("types", "/api/v1/types".to_owned()),
        ("overview", "/".to_owned()),
        ("Node View, first page", "/nodes".to_owned()),
        ("metrics", "/metrics".to_owned()),
    ];
    for (number, (name, path)) in paths.iter().enumerate() {
        let mut cells = Vec::new();
        let mut bytes = 0;
        for busy in [false, true] {
            let load = busy.then(|| load(Arc::clone(&agents), variants.clone()));
            let mut times = Vec::new();
            for round in 0..200_usize {
                let time = if number == 0 {
                    change_to_query(&agents, &aggregator, &variants[round % 2], path)
                } else {
                    let response = get(aggregator.http, path);
                    assert_eq!(response.status, 200, "{path}: {}", response.body);
                    bytes = response.bytes;
                    response.time
                };
                times.push(time.as_secs_f64() * 1e3);
            }
            if let Some(load) = load {
                load.abort();
            }
            times.sort_by(f64::total_cmp);
            cells.push(format!(
                "{:.1} / {:.1}",
                times[times.len() / 2],
                times[times.len() * 99 / 100]
            ));
        }
        println!("| {name} | {} | {} | {bytes} |", cells[0], cells[1]);
    }
    println!();
}

/// Returns the time until a response includes a new report of an agent. The variants differ in the PID of a process.
fn change_to_query(
    agents: &SimulatedAgents,
    aggregator: &Aggregator,
    variant: &(u32, Parts),
    path: &str,
) -> Duration {
    let expected = format!("\"pid\":{}", variant.0);
    let start = Instant::now();
    agents.report(7, variant.1.clone());
    loop {
        let body = get(aggregator.http, path).body;
        if body.replace(' ', "").contains(&expected) {
            return start.elapsed();
        }
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "{expected} is missing after 30 s: {body}"
        );
    }
}

/// Reports a thousand changes per second, spread over the fleet.
fn load(agents: Arc<SimulatedAgents>, variants: Vec<(u32, Parts)>) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let mut interval = tokio::time::interval(Duration::from_millis(10));
        for round in 0_usize.. {
            interval.tick().await;
            for step in 0..10 {
                // Node 7 is reserved for `change_to_query`.
                let number = 8 + (round * 10 + step) % (agents.len() - 8);
                agents.report(number, variants[round % variants.len()].1.clone());
            }
        }
    })
}

/// Kills the aggregator, starts a new one on the same ports, and measures the time until it has acknowledged the status of all nodes.
fn restart(agent_count: usize, parts: &Parts) {
    println!(
        "| SIGKILL and restart on the same ports, {agent_count} agents | plain | TLS |\n|---|---|---|"
    );
    let tls = node_status::Certificates::new();
    let (mut times, mut memory) = (Vec::new(), Vec::new());
    for serving in [Serving::Plain, tls.serving()] {
        let aggregator = Aggregator::start(&serving, Listen::ANYWHERE);
        let connect = tls.connect(&serving, aggregator.grpc);
        let agents = SimulatedAgents::start(agent_count, &connect, parts);
        agents.wait_until_in_sync();
        let before = aggregator.pss_kib();
        let listen = aggregator.listen();
        aggregator.kill();
        agents.wait_until_disconnected();
        let aggregator = Aggregator::start(&serving, listen);
        let start = Instant::now();
        // A status is visible some milliseconds after its acknowledgement.
        agents.wait_until_in_sync();
        times.push(format!("{:.1}", start.elapsed().as_secs_f64()));
        memory.push(format!("{:.2}", aggregator.pss_kib() / before));
    }
    println!("| time until the status of all nodes was acknowledged, s | {} |", times.join(" | "));
    println!("| memory after the restart, relative to before | {} |\n", memory.join(" | "));
}

/// Sends the changes of a day as fast as possible: one per minute and agent. One agent in ten reconnects every hour. Prints the memory of the
/// aggregator, which must not grow.
fn day(machine: &Inventory) {
    const AGENTS: usize = 1000;
    const RECONNECTING: usize = 100;
    let variants = node_status::variants(machine, 64);
    let aggregator = Aggregator::start(&Serving::Plain, Listen::ANYWHERE);
    let connect = Connect::plain(aggregator.grpc);
    let steady = AGENTS - RECONNECTING;
    let start = |numbers| SimulatedAgents::start_numbers(numbers, &connect, &variants[0].1);
    let agents = start(0..steady);
    agents.wait_until_in_sync();
    println!("| hour, {AGENTS} agents | aggregator, MiB PSS |\n|---|---|");
    let mut memory = Vec::new();
    for hour in 1..=24_usize {
        let reconnecting = start(steady..AGENTS);
        reconnecting.wait_until_in_sync();
        for minute in 1..=60 {
            let (_, parts) = &variants[minute % variants.len()];
            agents.report_all(parts);
            reconnecting.report_all(parts);
        }
        memory.push(aggregator.pss_kib());
        if matches!(hour, 1 | 6 | 12 | 18 | 24) {
            println!("| {hour} | {:.1} |", memory[hour - 1] / 1024.0);
        }
    }
    println!("| growth per hour, hours 7 to 24, KiB | {:.1} |\n", slope(&memory[6..]));
}

/// Slope of the line with the least squares through values at equal distances.
fn slope(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let middle = (count - 1.0) / 2.0;
    let (mut product, mut square) = (0.0, 0.0);
    for (at, value) in values.iter().enumerate() {
        let distance = at as f64 - middle;
        product += distance * (value - mean);
        square += distance * distance;
    }
    product / square
}
