//! What the agent costs, as it ships, on simulated machines: `make bench`.
//!
//! Every figure is given gross and net of the library, because the library is NVIDIA's (here: the simulator's) and not
//! ours. Net time is gross less the time spent inside NVML calls, as the simulator's call log has it; net memory is gross
//! less that of a C program which only loads the same library (`benches/baseline.c`). It prints tables in Markdown for
//! `docs/performance.md`; it never fails on a figure.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark is a script: it measures the wall clock, prints, and stops at the first thing out of order"
)]

#[path = "support/measure.rs"]
mod measure;

use std::time::Duration;

use measure::{Machine, Memory, Spread};

/// Runs of everything that is short.
const RUNS: usize = 21;

fn main() {
    // `cargo bench` passes its own flags; a number of seconds is ours.
    let idle_s: u64 = std::env::args()
        .find_map(|argument| argument.parse().ok())
        .unwrap_or(60);
    let machines = [
        (
            "8 x H100, whole",
            Machine::new("h100x8", &gpus("H100_80GB_SXM", 8, "disabled", 0)),
        ),
        (
            "8 x A100-80, 7 x 1g.10gb each",
            Machine::new("a100x8-mig", &gpus("A100_80GB", 8, "enabled", 7)),
        ),
    ];
    println!("Command: `make bench`; {RUNS} runs of each short one; median (min to max).\n");
    start_to_labels(&machines);
    observation(&machines);
    memory(&machines);
    idle(&machines, Duration::from_secs(idle_s));
}

/// A scenario of `count` boards, each with `instances` instances of one slice.
fn gpus(board: &str, count: usize, mig: &str, instances: usize) -> String {
    let instances: String = (0..instances)
        .map(|_| "      - {profile: 1g.10gb}\n")
        .collect();
    let instances = if instances.is_empty() {
        String::new()
    } else {
        format!("    instances:\n{instances}")
    };
    format!(
        "machine: bench\nlatency: null\ngpus:\n  - board: {board}\n    count: {count}\n    mig: {mig}\n{instances}"
    )
}

fn start_to_labels(machines: &[(&str, Machine)]) {
    println!("| exec to first labels, ms | gross | inside NVML | net |\n|---|---|---|---|");
    for (name, machine) in machines {
        let gross = Spread::of(RUNS, || machine.run_once(false).wall_ms);
        let inside = Spread::of(5, || machine.run_once(true).nvml_ms);
        println!(
            "| {name} | {gross} | {inside} | {:.1} |",
            gross.median() - inside.median()
        );
    }
    println!(
        "| `octavo-agent --version` (bare process) | {} | | |",
        Spread::of(RUNS, measure::bare_process_ms)
    );
    println!();
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

fn memory(machines: &[(&str, Machine)]) {
    println!(
        "| memory, MiB | PSS | of it anonymous | library alone (PSS / anonymous) | net PSS | net anonymous |\n|---|---|---|---|---|---|"
    );
    for (name, machine) in machines {
        let agent = machine.agent_memory();
        let library = machine.library_memory();
        let net = Memory {
            pss: agent.pss - library.pss,
            anonymous: agent.anonymous - library.anonymous,
        };
        println!(
            "| {name} | {:.1} | {:.1} | {:.1} / {:.1} | {:.1} | {:.1} |",
            agent.pss, agent.anonymous, library.pss, library.anonymous, net.pss, net.anonymous
        );
    }
    println!();
}

fn idle(machines: &[(&str, Machine)], span: Duration) {
    println!(
        "| idle, default interval, {} s | CPU, ms | millicores | voluntary wake-ups a second |\n|---|---|---|---|",
        span.as_secs()
    );
    for (name, machine) in machines {
        let idle = machine.idle(span);
        let millicores = idle.cpu_ms / span.as_secs_f64();
        println!(
            "| {name} | {:.1} | {millicores:.2} | {:.2} |",
            idle.cpu_ms, idle.wakeups_per_s
        );
    }
}
