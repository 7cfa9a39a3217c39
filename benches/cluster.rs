//! Agents with a real API server: `cargo bench --bench cluster`.
//!
//! It measures, with agents on simulated machines:
//!
//! - the time from a hardware change to the Node's label, and from a label to the changed partitions;
//! - the cost of watching a Node while the agent is idle;
//! - the load of 500 agents on one API server.
//!
//! For comparison, it measures the time of one label that the same server sets without an agent. It prints tables in Markdown for
//! `docs/performance.md` and never fails on a figure.
//!
//! `-- AGENTS RUNS SECONDS` changes the numbers of agents (500), of runs of each change (20), and of idle seconds (120; a quarter of
//! it for a single agent).
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::unreachable,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark is a script: it measures the wall clock, prints, and stops at the first error"
)]

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
#[path = "support/distribution.rs"]
mod distribution;
#[path = "support/idle_agents.rs"]
mod idle_agents;
#[path = "support/inspect.rs"]
mod inspect;
#[expect(dead_code, reason = "other benchmarks use the rest")]
#[path = "support/layout_runs.rs"]
mod layout_runs;
#[path = "support/node_controllers.rs"]
mod node_controllers;
#[path = "support/partitions.rs"]
mod partitions;
#[expect(dead_code, reason = "other benchmarks use the rest")]
#[path = "support/process.rs"]
mod process;
#[path = "support/simulated_machine.rs"]
mod simulated_machine;
#[path = "support/test_cluster.rs"]
mod test_cluster;
#[expect(dead_code, reason = "tests use the rest")]
#[path = "../tests/support/time_limits.rs"]
mod time_limits;
#[path = "support/watched_node.rs"]
mod watched_node;

use std::time::Duration;

use test_cluster::TestCluster;

fn main() {
    // `cargo bench` adds flags of its own.
    let numbers: Vec<usize> =
        std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let number = |index: usize, default: usize| numbers.get(index).copied().unwrap_or(default);
    let (agents, runs, seconds) = (number(0, 500), number(1, 20), number(2, 120));
    let span = Duration::from_secs(u64::try_from(seconds).unwrap());
    let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
    let load = std::fs::read_to_string("/proc/loadavg").unwrap();
    println!("Profile: {profile}. Load average at the start: {load}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let cluster = TestCluster::start();
        watched_node::to_label(&cluster, runs).await;
        watched_node::to_partitions(&cluster, runs).await;
        idle_agents::run(&cluster, span / 4).await;
        drop(cluster);
        // A new API server, because the memory of the first one has grown.
        node_controllers::run(&TestCluster::start(), agents, span).await;
    });
}
