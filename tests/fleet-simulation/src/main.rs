//! Simulates many seeds: `make fleet-simulation`.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `FLEET_SEED` | first seed | 0 |
//! | `FLEET_SEEDS` | number of seeds | 500 |
//! | `FLEET_QUIET_HOURS` | hours in which nothing may change at the end of each seed | 0 (10 minutes) |
//! | `FLEET_EVENTS` | number of events that a failure lists | 60 |
//!
//! The run stops at the first seed that violates an invariant.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a script: it reads its settings from the environment, prints, and stops at the first error"
)]

use std::fs;
use std::process::ExitCode;
use std::time::Duration;

use fleet_simulation::{Counts, Options, run};

fn main() -> ExitCode {
    let number =
        |name, default| std::env::var(name).map_or(default, |text| text.parse::<u64>().unwrap());
    let (first, count) = (number("FLEET_SEED", 0), number("FLEET_SEEDS", 500));
    let trace = usize::try_from(number("FLEET_EVENTS", 60)).unwrap();
    let mut options = Options { trace, ..Options::default() };
    if let hours @ 1.. = number("FLEET_QUIET_HOURS", 0) {
        options.quiet = Duration::from_hours(hours);
    }
    let mut total = Counts::default();
    let mut hours = 0.0;
    let began = cpu_time();
    for seed in first..first.saturating_add(count) {
        match run(seed, options) {
            Ok(outcome) => {
                total = total + outcome.counts;
                hours += outcome.node_hours();
                if count <= 10 {
                    println!("seed {seed}: digest {:016x}", outcome.digest);
                }
            }
            Err(failure) => {
                eprintln!("{failure}");
                return ExitCode::FAILURE;
            }
        }
    }
    let minutes = (cpu_time().saturating_sub(began)).as_secs_f64() / 60.0;
    println!("seeds {first} to {}: no violation", first + count - 1);
    println!("{total}");
    println!(
        "node-hours {hours:.0}, CPU minutes {minutes:.2}, node-hours per CPU minute {:.0}",
        hours / minutes
    );
    ExitCode::SUCCESS
}

/// CPU time of the main thread, which does everything. Source: Linux, `Documentation/scheduler/sched-stats.rst`.
fn cpu_time() -> Duration {
    let text = fs::read_to_string("/proc/self/schedstat").unwrap();
    Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
}
