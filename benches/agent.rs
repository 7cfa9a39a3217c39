//! Start time, NVML calls, memory and idle CPU of the agent on simulated machines: `cargo bench --bench agent`.
//!
//! Every figure is printed gross, and net of the NVML library (here: the simulator's), which is not part of Octavo:
//!
//! - The net time is the gross time minus the time inside NVML calls, from the simulator's call log.
//! - The net memory and idle CPU are the gross values minus those of a C program that only loads the same library and waits for
//!   its events (`benches/baseline.c`).
//!
//! NVIDIA's gpu-feature-discovery runs on the same machines, so that ratios come from one run. It prints tables in Markdown for
//! `docs/performance.md` and never fails on a figure. `-- SECONDS` sets the duration of the idle measurement (60).
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark is a script: it measures the wall clock, prints, and stops at the first error"
)]

#[path = "support/machine.rs"]
mod machine;
#[expect(dead_code, reason = "other benchmarks use the rest")]
#[path = "support/process.rs"]
mod process;
#[path = "support/simulated_machine.rs"]
mod simulated_machine;

use std::time::Duration;

use machine::{Idle, Log, Machine, MedianAndRange, Peer};
use process::Memory;

/// Runs of each short measurement.
const RUNS: usize = 21;

fn main() {
    // `cargo bench` adds flags of its own.
    let idle_s: u64 = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(60);
    let machines = [
        ("8 x H100, whole", Machine::new("h100x8", &gpus("H100_80GB_SXM", 8, "disabled", 0))),
        (
            "8 x A100-80, 7 x 1g.10gb each",
            Machine::new("a100x8-mig", &gpus("A100_80GB", 8, "enabled", 7)),
        ),
    ];
    println!("{RUNS} runs of each short measurement; median (minimum to maximum).\n");
    let peer = Peer::find();
    if peer.is_none() {
        println!(
            "gpu-feature-discovery is not built yet (`make test` builds it), so it is not measured.\n"
        );
    }
    start_to_labels(&machines, peer.as_ref());
    observation(&machines);
    memory(&machines, peer.as_ref());
    idle(&machines, Duration::from_secs(idle_s), peer.as_ref());
}

/// Returns the scenario of a machine with `count` boards and `instances` 1g.10gb instances on each.
fn gpus(board: &str, count: usize, mig: &str, instances: usize) -> String {
    let instances: String = (0..instances).map(|_| "      - {profile: 1g.10gb}\n").collect();
    let instances =
        if instances.is_empty() { String::new() } else { format!("    instances:\n{instances}") };
    format!(
        "machine: bench\nlinks: nvswitch\nlatency: null\ngpus:\n  - board: {board}\n    count: {count}\n    mig: {mig}\n{instances}"
    )
}

fn start_to_labels(machines: &[(&str, Machine)], peer: Option<&Peer>) {
    println!(
        "| time from exec to the first labels, ms | gross | inside NVML | net |\n|---|---|---|---|"
    );
    for (name, machine) in machines {
        let gross = MedianAndRange::new(RUNS, || machine.run_once(Log::Off).wall_ms);
        let inside = MedianAndRange::new(5, || machine.run_once(Log::On).nvml_ms);
        let net = gross.median() - inside.median();
        println!("| {name} | {gross} | {inside} | {net:.1} |");
        if let Some(peer) = peer {
            let peer_gross = MedianAndRange::new(RUNS, || peer.once_ms(machine));
            let ratio = peer_gross.median() / gross.median();
            println!("| {} | {peer_gross}, {ratio:.1} times Octavo | | |", peer.name());
        }
    }
    let bare = MedianAndRange::new(RUNS, machine::bare_process_ms);
    println!("| `octavo-agent --version` (bare process) | {bare} | | |\n");
}

fn observation(machines: &[(&str, Machine)]) {
    println!(
        "| one observation | NVML calls | time inside NVML, ms | CPU of the process, ms |\n|---|---|---|---|"
    );
    for (name, machine) in machines {
        let run = machine.observe_for(Duration::from_secs(5), Duration::from_millis(50));
        println!(
            "| {name}, first | {} | {:.2} | |\n| {name}, each later one | {} | {:.2} | {:.2} |",
            run.first_calls, run.first_nvml_ms, run.later_calls, run.later_nvml_ms, run.cpu_ms
        );
    }
    println!();
}

fn memory(machines: &[(&str, Machine)], peer: Option<&Peer>) {
    println!(
        "| memory, MiB | PSS | anonymous | library alone (PSS / anonymous) | net PSS | net anonymous |\n|---|---|---|---|---|---|"
    );
    for (name, machine) in machines {
        let library = machine.library_memory();
        memory_row(name, &machine.agent_memory(), &library);
        if let Some(peer) = peer {
            memory_row(&peer.name(), &peer.memory(machine), &library);
        }
    }
    println!();
}

fn memory_row(name: &str, gross: &Memory, library: &Memory) {
    println!(
        "| {name} | {:.1} | {:.1} | {:.1} / {:.1} | {:.1} | {:.1} |",
        gross.pss,
        gross.anonymous,
        library.pss,
        library.anonymous,
        gross.pss - library.pss,
        gross.anonymous - library.anonymous
    );
}

fn idle(machines: &[(&str, Machine)], span: Duration, peer: Option<&Peer>) {
    println!(
        "| idle for {} s, default interval | CPU, ms | millicores | library alone, millicores | net millicores | wake-ups/s |\n|---|---|---|---|---|---|",
        span.as_secs()
    );
    for (name, machine) in machines {
        let library = machine.library_idle(span);
        idle_row(name, &machine.agent_idle(span), &library);
        if let Some(peer) = peer {
            idle_row(&peer.name(), &peer.idle(machine, span), &library);
        }
    }
}

fn idle_row(name: &str, gross: &Idle, library: &Idle) {
    println!(
        "| {name} | {:.1} | {:.2} | {:.2} | {:.2} | {:.2} |",
        gross.cpu_ms,
        gross.millicores,
        library.millicores,
        gross.millicores - library.millicores,
        gross.wakeups_per_s
    );
}
