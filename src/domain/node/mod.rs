//! The Kubernetes Node of this machine: what it says to us, and what we say in it.
//!
//! ```text
//!   View ----> selection: which layout its labels ask for ---> settled: whether that stands
//!     |
//!     +------> keep: what differs of Wanted, key by key, and who else has a key ---> a write, or none
//!
//!   Status --> telling: what is an event ------> operands: who is paused, and for how long
//!     +------> drain: who is evicted, and for how long
//! ```
//!
//! All of it is level-triggered: what is to be is held against what is, whatever happened between. So an agent or an API
//! server that was away needs no memory, and nothing is written while nothing differs.

pub mod budget;
pub mod drain;
pub mod event_queue;
pub mod keep;
pub mod operands;
pub mod pace;
pub mod selection;
pub mod settled;
pub mod telling;
pub mod view;

pub use keep::{Decision, Labels, PluginLabel, SHARING_MANAGER, Wanted, Write, Yielded, decide};
pub use selection::{Compat, Selected, select};
pub use settled::Settled;
pub use view::{Owners, Taint, View};

/// Who we are among those who write to a Node. Source: Kubernetes, "Server-Side Apply", managers.
pub const MANAGER: &str = "octavo-agent";
/// Who we are where we answer in the place of another program, whose keys we take.
pub const COMPAT_MANAGER: &str = "octavo-agent-compat";

/// A person's: which layout the node shall have.
pub const LAYOUT: &str = "octavo.dev/layout";
/// A person's: which messages the agent logs, for as long as it is there.
pub const LOG_LEVEL: &str = "octavo.dev/log-level";
/// Ours: where the node stands.
pub const STATUS: &str = "octavo.dev/status";
/// Ours: no pod goes where a layout is not in force yet.
pub const NOT_READY: &str = "octavo.dev/not-ready";
/// Ours: no pod goes where others are evicted for a layout.
pub const REPARTITIONING: &str = "octavo.dev/repartitioning";
/// What our taints do to pods that are still to come.
pub const EFFECT: &str = "NoSchedule";

/// What mig-manager is asked by. Source: NVIDIA mig-parted, `deployments/container`, README.
pub const MIG_CONFIG: &str = "nvidia.com/mig.config";
/// What mig-manager answers: `pending`, `rebooting`, `success` or `failed`.
pub const MIG_CONFIG_STATE: &str = "nvidia.com/mig.config.state";
