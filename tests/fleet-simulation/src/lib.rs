//! Deterministic simulation of a fleet: nodes with GPUs and pods, their agents, the aggregator, an API server and two
//! controllers of policies, with virtual time and faults that a seed chooses.
//!
//! ```text
//!  seed --> faults, users, workloads --+
//!                                      v
//!  queue of events by virtual time --> World --> next events, in the same order in every run
//!                                      |
//!                                      +--> checks of the invariants after each event
//! ```
//!
//! The decisions are those of the product: `octavo_planner` (plans, reconciliation, transactions, journal entries),
//! `octavo_files` (layouts, journal file), `octavo_node` (labels, Node differences, drains, leader election), `octavo_stream`
//! (sessions and Protobuf code), `octavo_store` (the store of the aggregator) and `octavo_policy` (roll-outs). Simulated are
//! the hardware, the kubelet, the network, the API server, and the code that connects the crates: the order of a round of
//! `octavo_engine`, the session of the agent's uplink, the patches of `octavo_kube` and the loop of the controller.
//!
//! Faults: kills of agents at any step of a change (often twice in a row), of the aggregator and of the controllers;
//! reboots; interrupted links in one or both directions; long delays; reset connections; ended watches; jumps of wall clocks
//! and drift of monotonic ones; driver calls that fail with or without effect, report a false success or hang; incomplete
//! readings; a kubelet that does not answer; other programs that destroy instances; a policy whose status is lost.
//!
//! | invariant | checked | where |
//! |---|---|---|
//! | I1 | before each driver call: the instance has no pod, and no process that the last query of users could see | `rounds` |
//! | I2 | before each driver call: the layout in the journal covers the GPU | `rounds` |
//! | I3 | before each call: a journal entry exists; after it is removed: the GPU is in its target or in the previous state | `rounds` |
//! | I4 | before each driver call: no new change of an infeasible layout | `rounds` |
//! | I5 | after each report: every state has a reason; every change ends; at the end: every target is reached | `checks`, `convergence` |
//! | I6 | once per second, if nothing prevented a write for 40 s, and at the end; then no write without a change | `checks`, `convergence` |
//! | I7 | after each report: an applied layout equals the last reading | `checks` |
//! | I9 | after each message and once per second: staleness, order of the statuses, acknowledged statuses | `checks` |
//! | I10 | once per second: number of nodes and connections of the aggregator | `checks` |
//! | I11 | at the end: no taint of a drain remains. Operands are not simulated | `convergence` |
//! | I12 | every message between the simulated programs is valid. Invalid input is not simulated | `stream` |
//! | policies | at most one controller writes; the roll-out makes no more nodes unavailable than allowed | `checks` |
//!
//! Not checked: I8, because the simulation has no threads (`tests/it/apply/driver.rs`), and invalid input for I12 (`make fuzz`).
//! Not simulated: modes and resets of MIG, time-slicing, resource claims, demand, operands, deleted Nodes and torn writes of
//! the journal (`make crash-sweep`).

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a simulation is a test: an error in it ends it"
)]

mod agent_loop;
mod aggregator;
mod api_server;
mod checks;
mod controllers;
mod convergence;
mod faults;
mod node_writes;
mod round_inputs;
mod rounds;
mod simulation;
mod state;
mod stream;

use std::fmt;
use std::time::Duration;

pub use state::Counts;
use state::World;

/// Settings of a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Smallest and largest number of nodes.
    pub nodes: (usize, usize),
    /// Time in which faults occur.
    pub faults: Duration,
    /// Mean time between two faults.
    pub fault_interval: Duration,
    /// Time in which everything must converge.
    pub convergence: Duration,
    /// Time in which nothing may change after that.
    pub quiet: Duration,
    /// Number of events that a failure lists.
    pub trace: usize,
}

/// Result of a simulation without a violation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Number of nodes.
    pub nodes: usize,
    /// Simulated time.
    pub simulated: Duration,
    /// Digest of all events and of the final state.
    pub digest: u64,
    /// Numbers of what happened.
    pub counts: Counts,
}

/// A violated invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// Simulated time of the violation.
    pub at: Duration,
    /// The invariant, and what violates it.
    pub violation: String,
    /// The last events.
    pub events: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            nodes: (3, 8),
            faults: Duration::from_hours(3),
            fault_interval: Duration::from_secs(45),
            convergence: Duration::from_mins(75),
            quiet: Duration::from_mins(10),
            trace: 60,
        }
    }
}

/// Simulates a fleet.
///
/// # Errors
/// Returns the first violation of an invariant.
pub fn run(seed: u64, options: Options) -> Result<Outcome, Box<Failure>> {
    let mut world = World::begin(seed, Options { trace: 0, ..options });
    world.simulate();
    if world.violation.is_none() {
        return Ok(world.outcome());
    }
    // The same events happen again, and are recorded this time.
    let mut world = World::begin(seed, options);
    world.simulate();
    Err(Box::new(Failure {
        seed,
        at: world.now,
        events: world.take_trace(),
        violation: world.violation.unwrap_or_else(|| "the violation does not recur".to_owned()),
    }))
}

impl Outcome {
    /// Simulated hours of all nodes.
    pub fn node_hours(&self) -> f64 {
        self.simulated.as_secs_f64() / 3600.0 * u32::try_from(self.nodes).map_or(0.0, f64::from)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {} violates an invariant after {:?} of simulated time:",
            self.seed, self.at
        )?;
        writeln!(f, "{}", self.violation)?;
        writeln!(f, "\nlast events (seconds, event):")?;
        for event in &self.events {
            writeln!(f, "{event}")?;
        }
        write!(
            f,
            "\nreproduce it with: FLEET_SEED={} FLEET_SEEDS=1 make fleet-simulation",
            self.seed
        )
    }
}
