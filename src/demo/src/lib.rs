//! The simulated fleet of `octavo demo`: machines of `tests/nvml-sim`, and the processes that run on this machine for
//! them. The command line starts them and shows the result.
//!
//! ```text
//! programs.rs     programs that the demo needs
//! scenario.rs     the machines, and their expected counts
//! machine.rs      one simulated machine in a directory
//! sharing_pods.rs pods that share a machine's GPU, as kubelet and the kernel report them
//! processes.rs    child processes: start, log, stop
//! events.rs       events on the machines
//! simulated.rs    a machine that exists for a single scan
//! ```

mod error;
mod events;
mod machine;
mod processes;
mod programs;
pub mod scenario;
mod sharing_pods;
mod simulated;

pub use self::error::DemoError;
pub use self::events::{DemoAction, DemoEvent, event_cycle};
pub use self::machine::DemoMachine;
pub use self::processes::{ChildProcesses, ProcessLog};
pub use self::programs::Programs;
pub use self::simulated::{SimulatedMachine, SimulationError, is_scenario};
