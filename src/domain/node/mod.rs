//! The Kubernetes Node of this machine: its inputs to the agent, and the fields that the agent writes.
//!
//! ```text
//!   View ----> selection: the layout that its labels select ---> settled: debouncing
//!     |
//!     +------> keep: differences to Wanted, key by key, and other owners of keys ---> a write, or none
//!
//!   Status --> telling: events ------> operands: operands to pause, and for how long
//!     +------> drain: pods to evict, and for how long
//! ```
//!
//! All of it is level-triggered: the desired state is compared with the current state, whatever happened in between. An
//! outage of the agent or the API server loses no state, and nothing is written while nothing differs.

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

/// Field manager of the agent. Source: Kubernetes, "Server-Side Apply", managers.
pub const MANAGER: &str = "octavo-agent";
/// Field manager for labels that the agent sets in place of another program, such as mig-manager; takes over their
/// fields.
pub const COMPAT_MANAGER: &str = "octavo-agent-compat";

/// Label written by users: the layout of the node.
pub const LAYOUT: &str = "octavo.dev/layout";
/// Annotation written by users: log filter of the agent while the annotation exists.
pub const LOG_LEVEL: &str = "octavo.dev/log-level";
/// Annotation written by the agent: status of the node.
pub const STATUS: &str = "octavo.dev/status";
/// Taint of the agent: the layout is not applied yet.
pub const NOT_READY: &str = "octavo.dev/not-ready";
/// Taint of the agent: pods are being evicted for a layout.
pub const REPARTITIONING: &str = "octavo.dev/repartitioning";
/// Effect of the agent's taints.
pub const EFFECT: &str = "NoSchedule";

/// Label that selects mig-manager's configuration. Source: NVIDIA mig-parted, `deployments/container`, README.
pub const MIG_CONFIG: &str = "nvidia.com/mig.config";
/// Status label of mig-manager: `pending`, `rebooting`, `success` or `failed`.
pub const MIG_CONFIG_STATE: &str = "nvidia.com/mig.config.state";
