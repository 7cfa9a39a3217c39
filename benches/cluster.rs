//! What it costs to be in a cluster, against a real API server: `cargo bench --bench cluster`.
//!
//! From a change of the hardware to the Node's label, and from a label to the hardware, with the agent as it ships on simulated
//! machines; what five hundred agents ask of one API server; what following a Node costs an agent at rest. Beside what we do
//! stands what the same server takes for one label without us. Tables are in Markdown for `docs/performance.md`; it never fails
//! on a figure.
//!
//! `-- AGENTS RUNS SECONDS` for other numbers than 500 agents, 20 runs of each change and 120 seconds at rest (a
//! quarter of that for one agent).
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::unreachable,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark is a script: it measures the wall clock, prints, and stops at the first thing out of order"
)]

#[path = "support/at_rest.rs"]
mod at_rest;
#[path = "support/bed.rs"]
mod bed;
#[expect(dead_code, reason = "what only measures whole applies is not for here")]
#[path = "support/changes.rs"]
mod changes;
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
#[path = "support/followed.rs"]
mod followed;
#[path = "support/keepers.rs"]
mod keepers;
#[path = "support/process.rs"]
mod process;
#[path = "support/simulated.rs"]
mod simulated;
#[path = "support/spread.rs"]
mod spread;
#[expect(dead_code, reason = "tests need more of it")]
#[path = "../tests/support/time_limits.rs"]
mod time_limits;

use std::time::Duration;

use bed::Bed;

fn main() {
    // `cargo bench` passes its own flags; numbers are ours.
    let given: Vec<usize> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let number = |place: usize, otherwise: usize| given.get(place).copied().unwrap_or(otherwise);
    let (agents, runs, seconds) = (number(0, 500), number(1, 20), number(2, 120));
    let span = Duration::from_secs(u64::try_from(seconds).unwrap());
    let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
    let load = std::fs::read_to_string("/proc/loadavg").unwrap();
    println!("Profile: {profile}. Load of the machine at the start: {load}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let bed = Bed::start();
        followed::to_label(&bed, runs).await;
        followed::to_geometry(&bed, runs).await;
        at_rest::run(&bed, span / 4).await;
        drop(bed);
        // Another server, whose memory is unused.
        keepers::run(&Bed::start(), agents, span).await;
    });
}
