//! What the aggregator costs, as it ships, under a swarm of agents: `make bench`.
//!
//! The aggregator is a process of its own; the swarm and the readers are this one, with real connections. Agents tell the
//! status of a real (simulated) machine, read through the same code as on a node. It prints tables in Markdown for
//! `docs/performance.md`; it never fails on a figure.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "a benchmark is a script: it measures the wall clock, prints, and stops at the first thing out of order"
)]

#[path = "support/aggregator.rs"]
mod aggregator;
#[path = "support/fleet_of.rs"]
mod fleet_of;
#[path = "support/large.rs"]
mod large;
#[path = "support/simulated.rs"]
mod simulated;
#[path = "support/swarm.rs"]
mod swarm;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use octavo_model::inventory::Inventory;
use octavo_stream::protocol::Parts;
use tokio::runtime::Builder;

use aggregator::{Aggregator, Answer, Listen, Serving, get};
use swarm::{Connect, Swarm, name};

/// Agents that are connected in the large runs, unless the command line says otherwise.
const MANY: usize = 10_000;

fn main() {
    // `cargo bench` passes its own flags; a number of agents is ours.
    let many = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(MANY);
    let machine = fleet_of::inventory("H100_80GB_SXM", 0);
    let whole = fleet_of::parts(&machine);
    let partitioned = fleet_of::inventory("A100_80GB", 7);
    let split = fleet_of::parts(&partitioned);
    println!(
        "Status of 8 x H100, whole: {} bytes in {} parts; of 8 x A100 with 56 partitions: {} bytes.\n",
        whole.size(),
        whole.len(),
        split.size()
    );
    let runtime = Arc::new(Builder::new_current_thread().enable_all().build().unwrap());
    let swarms = Arc::clone(&runtime);
    std::thread::spawn(move || swarms.block_on(std::future::pending::<()>()));
    // Swarms live on that thread; this one measures, and may block.
    let here = runtime.enter();
    memory(many, &whole, &split);
    ingest(&machine);
    queries(many, &machine);
    restart(many, &whole);
    drop(here);
    large::run([&machine, &partitioned]);
}

/// Memory per connected agent: what the aggregator has with the swarm, less what it has without, by agent.
fn memory(many: usize, whole: &Parts, split: &Parts) {
    println!("| memory per connected agent, KiB PSS | plain | TLS |\n|---|---|---|");
    let tls = fleet_of::Certificates::new();
    let least = fleet_of::least(whole);
    for (what, parts, count) in [
        ("1,000 agents, a status of one small part", &least, 1000),
        ("1,000 agents, 8 x H100", whole, 1000),
        ("1,000 agents, 8 x A100 with 56 partitions", split, 1000),
        (&*format!("{many} agents, 8 x H100"), whole, many),
    ] {
        let mut row = Vec::new();
        for serving in [Serving::Plain, tls.serving()] {
            let aggregator = Aggregator::start(&serving, Listen::ANYWHERE);
            let empty = aggregator.pss_kib();
            let swarm = Swarm::start(count, &tls.connect(&serving, aggregator.grpc), parts);
            swarm.in_sync();
            row.push((aggregator.pss_kib() - empty) / count as f64);
        }
        println!("| {what} | {:.1} | {:.1} |", row[0], row[1]);
    }
    println!();
}

/// Deltas that one core takes in: two hundred agents that each say the next as soon as the last was acknowledged.
fn ingest(machine: &Inventory) {
    const AGENTS: usize = 200;
    const SPAN: Duration = Duration::from_secs(10);
    let aggregator = Aggregator::start(&Serving::Plain, Listen::ANYWHERE);
    let swarm = Swarm::start(AGENTS, &Connect::plain(aggregator.grpc), &fleet_of::parts(machine));
    swarm.in_sync();
    let variants = fleet_of::variants(machine, 64);
    let (acknowledged, cpu) =
        (swarm.tally.acknowledged.load(Ordering::Relaxed), aggregator.cpu("ingest"));
    let start = Instant::now();
    let mut round = 0_usize;
    while start.elapsed() < SPAN {
        for number in 0..AGENTS {
            swarm.say(number, variants[round % variants.len()].1.clone());
        }
        round += 1;
        swarm.in_sync();
    }
    let took = start.elapsed().as_secs_f64();
    let deltas = (swarm.tally.acknowledged.load(Ordering::Relaxed) - acknowledged) as f64;
    let busy = (aggregator.cpu("ingest").saturating_sub(cpu)).as_secs_f64();
    println!("| ingest through sockets, {AGENTS} agents | |\n|---|---|");
    println!(
        "| deltas a second, this machine with the swarm on the other core | {:.0} |",
        deltas / took
    );
    println!("| deltas a second of CPU of the ingest thread | {:.0} |\n", deltas / busy);
}

/// From a change on a node to an answer that has it, and how readers fare meanwhile.
fn queries(many: usize, machine: &Inventory) {
    let aggregator = Aggregator::start(&Serving::Plain, Listen::ANYWHERE);
    let parts = fleet_of::parts(machine);
    let swarm = Arc::new(Swarm::start(many, &Connect::plain(aggregator.grpc), &parts));
    swarm.in_sync();
    let variants = fleet_of::variants(machine, 64);
    println!(
        "| with {many} agents connected | at rest, ms p50 / p99 | 1,000 deltas/s, ms p50 / p99 | bytes |\n|---|---|---|---|"
    );
    let paths = [
        ("change to query", format!("/api/v1/nodes/{}", name(7))),
        ("one node", format!("/api/v1/nodes/{}", name(42))),
        (
            "filtered list, 50 rows",
            "/api/v1/nodes?type=nvidia-h100-80gb&state=ok&limit=50".to_owned(),
        ),
        ("types", "/api/v1/types".to_owned()),
        ("overview", "/".to_owned()),
        ("Node FleetView", "/nodes".to_owned()),
        ("metrics", "/metrics".to_owned()),
    ];
    for (number, (what, path)) in paths.iter().enumerate() {
        let mut cells = Vec::new();
        let mut bytes = 0;
        for busy in [false, true] {
            let load = busy.then(|| load(Arc::clone(&swarm), variants.clone()));
            let mut times = Vec::new();
            for round in 0..200_usize {
                let took = if number == 0 {
                    change_to_query(&swarm, &aggregator, &variants[round % 2], path)
                } else {
                    let answer = get(aggregator.http, path);
                    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
                    bytes = answer.bytes;
                    answer.took
                };
                times.push(took.as_secs_f64() * 1e3);
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
        println!("| {what} | {} | {} | {bytes} |", cells[0], cells[1]);
    }
    println!();
}

/// Time until a report that the agent just received is in the answer. The variants differ in the pid of a process.
fn change_to_query(
    swarm: &Swarm,
    aggregator: &Aggregator,
    variant: &(u32, Parts),
    path: &str,
) -> Duration {
    let sign = format!("\"pid\":{}", variant.0);
    let start = Instant::now();
    swarm.say(7, variant.1.clone());
    loop {
        let Answer { body, .. } = get(aggregator.http, path);
        if body.replace(' ', "").contains(&sign) {
            return start.elapsed();
        }
        assert!(start.elapsed() < Duration::from_secs(30), "never seen: {sign} in {body}");
    }
}

/// A thousand changes a second, spread over the fleet.
fn load(swarm: Arc<Swarm>, variants: Vec<(u32, Parts)>) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let mut tick = tokio::time::interval(Duration::from_millis(10));
        for round in 0_usize.. {
            tick.tick().await;
            for step in 0..10 {
                // Node 7 is the one whose change is waited for.
                let number = 8 + (round * 10 + step) % (swarm.len() - 8);
                swarm.say(number, variants[round % variants.len()].1.clone());
            }
        }
    })
}

/// kill -9, a new aggregator on the same ports, and the time until all agents are back and shown.
fn restart(many: usize, parts: &Parts) {
    println!("| kill -9 and restart, {many} agents | |\n|---|---|");
    let aggregator = Aggregator::start(&Serving::Plain, Listen::ANYWHERE);
    let swarm = Swarm::start(many, &Connect::plain(aggregator.grpc), parts);
    swarm.in_sync();
    let before = aggregator.pss_kib();
    let listen = aggregator.listen();
    aggregator.kill();
    swarm.none_in_sync();
    let aggregator = Aggregator::start(&Serving::Plain, listen);
    let start = Instant::now();
    swarm.in_sync();
    let took = start.elapsed().as_secs_f64();
    // What is acknowledged is published within some milliseconds.
    let all = format!("\"total\":{many},");
    while !get(aggregator.http, "/api/v1/nodes?limit=1").body.contains(&all) {
        assert!(start.elapsed() < Duration::from_mins(2), "nodes were lost");
    }
    println!("| all nodes back, s | {took:.1} |");
    println!("| memory after, of that before | {:.2} |\n", aggregator.pss_kib() / before);
}
