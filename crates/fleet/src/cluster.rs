//! Scheduler's view of a cluster: node capacity, pod requests, and which pod fits on which node.
//!
//! Contains only what decides the placement of pods with devices. Used to count free capacity and to find the nodes
//! that a selector matches; `octavo_kube` fills it from the API server.

mod amounts;
mod placement;
mod quantity;
mod selector;
mod snapshot;
mod taint;

pub use self::amounts::Amounts;
pub use self::placement::{PlacementObstacle, free_slots, placement_obstacle};
pub use self::quantity::{Quantity, QuantityError};
pub use self::selector::{Affinity, Operator, Requirement, Selector, Term};
pub use self::snapshot::{
    ClusterNode, ClusterPod, ClusterSnapshot, LayoutReport, NodePods, Phase, PodKey, PodOwner,
    PodRequirements, Readiness,
};
pub use self::taint::{Effect, Taint, TaintOperator, Toleration};

/// Kubernetes resource that limits the number of pods on a node.
pub const PODS: &str = "pods";
/// Kubernetes resource of CPU time.
pub const CPU: &str = "cpu";
/// Kubernetes resource of memory.
pub const MEMORY: &str = "memory";
