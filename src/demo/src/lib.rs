//! `octavo demo`: machines of `tests/nvml-sim`, the processes that run on this machine for them, and the check that the
//! aggregator shows them.
//!
//! ```text
//! runner.rs       the whole demo
//! check.rs        expected state of the aggregator
//! tour.rs         ten commands for a first visit
//! outcome.rs      the end of a demo
//! programs.rs     programs that the demo needs
//! scenario.rs     the machines, and their expected counts
//! workloads.rs    the pods, hardware profiles, policies and prices
//! cluster.rs      the simulated Kubernetes API server
//! kubelet.rs      the simulated kubelet of a machine, and the processes of its pods
//! machine.rs      one simulated machine in a directory
//! running_machines.rs the pods and the load of all machines while the demo runs
//! processes.rs    child processes: start, log, stop
//! servers.rs      HTTP and gRPC servers of the API server and the kubelets
//! events.rs       events on the machines
//! simulated.rs    a machine that exists for a single scan
//! ```

mod check;
pub mod cluster;
mod error;
mod events;
mod kubelet;
mod machine;
mod outcome;
mod processes;
mod programs;
mod runner;
mod running_machines;
pub mod scenario;
mod servers;
mod simulated;
mod tour;
mod workloads;

pub use self::error::DemoError;
pub use self::events::{DemoAction, DemoEvent, event_cycle};
pub use self::machine::{DemoMachine, DemoSite, LAYOUTS};
pub use self::outcome::DemoOutcome;
pub use self::processes::{ChildProcesses, ProcessLog};
pub use self::programs::Programs;
pub use self::runner::{DemoOptions, DemoRunner, DescribeChange};
pub use self::running_machines::{MachineUpdate, RunningMachines};
pub use self::servers::Servers;
pub use self::simulated::{SimulatedMachine, SimulationError, is_scenario};
pub use self::workloads::{PRICES, Workloads};
