//! The Kubernetes Node of this machine: its inputs to the agent, and the fields that the agent writes.
//!
//! ```text
//!   ObservedNode -> selection: the layout that its labels select ---> debounce
//!     |
//!     +------> node_diff: differences to DesiredNode, key by key, and other owners of keys ---> a write, or none
//!
//!   Status --> event_deduplicator ---> operands: operands to pause, and for how long
//!     +------> drain: pods to evict, and for how long
//! ```
//!
//! All of it is level-triggered: the desired state is compared with the current state, whatever happened in between. An
//! outage of the agent or the API server loses no state, and nothing is written while nothing differs.

pub mod debounce;
pub mod drain;
pub mod event_deduplicator;
pub mod event_queue;
pub mod eviction_permission;
pub mod exact_instances;
pub mod node_diff;
pub mod operands;
pub mod rate_limit;
pub mod selection;
pub mod status_annotation;
pub mod view;
pub mod write_backoff;

pub use debounce::Debounced;
pub use eviction_permission::{EvictionPermission, EvictionPermissionError};
pub use exact_instances::{InstancesRejected, check_instances, demand_layout, is_demand_layout};
pub use node_diff::{
    ConflictingKey, DesiredLabels, DesiredNode, NodeChanges, NodeWrite, PluginLabel,
    SHARING_FIELD_MANAGER, diff_node,
};
pub use selection::{Compat, SelectedLayout, select};
pub use view::{FieldManagers, ObservedNode, Taint};

/// Field manager of the agent. Source: Kubernetes, "Server-Side Apply", managers.
pub const FIELD_MANAGER: &str = "octavo-agent";
/// Field manager for labels that the agent sets in place of another program, such as mig-manager; takes over their
/// fields.
pub const COMPAT_FIELD_MANAGER: &str = "octavo-agent-compat";

/// Label written by users: the layout of the node.
pub const LAYOUT_LABEL: &str = "octavo.dev/layout";
/// Annotation written by users: log filter of the agent while the annotation exists.
pub const LOG_LEVEL_ANNOTATION: &str = "octavo.dev/log-level";
/// Annotation written by a controller: exact MIG instances of the node, for a layout with the prefix `demand-`.
pub const INSTANCES_ANNOTATION: &str = "octavo.dev/instances";
/// Annotation written by a controller: pods that may be evicted for exact instances, as an [`EvictionPermission`].
pub const EVICT_ANNOTATION: &str = "octavo.dev/evict";
/// Annotation written by users and by policies: drain settings of the agent while the annotation exists.
pub const DRAIN_ANNOTATION: &str = "octavo.dev/drain";
/// Annotation written by the agent: status of the node.
pub const STATUS_ANNOTATION: &str = "octavo.dev/status";
/// Taint of the agent: the layout is not applied yet.
pub const NOT_READY_TAINT: &str = "octavo.dev/not-ready";
/// Taint of the agent: pods are being evicted for a layout.
pub const REPARTITIONING_TAINT: &str = "octavo.dev/repartitioning";
/// Effect of the agent's taints.
pub const TAINT_EFFECT: &str = "NoSchedule";

/// Label that selects mig-manager's configuration. Source: NVIDIA mig-parted, `deployments/container`, README.
pub const MIG_CONFIG_LABEL: &str = "nvidia.com/mig.config";
/// Status label of mig-manager: `pending`, `rebooting`, `success` or `failed`.
pub const MIG_CONFIG_STATE_LABEL: &str = "nvidia.com/mig.config.state";
