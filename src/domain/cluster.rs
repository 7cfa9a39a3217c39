//! A cluster as its scheduler sees it: what nodes have to give, what pods ask for, and which pod may stand on which node.
//!
//! Only what decides where a pod with devices may go is kept of either. Called by whoever counts what is free and by whoever asks
//! which nodes something reaches; `k8s` reads it from the API server.

mod amounts;
mod node;
mod placing;
mod pod;
mod quantity;
mod selector;
mod sights;
mod taint;

pub use self::amounts::Amounts;
pub use self::node::{ClusterNode, Readiness};
pub use self::placing::{Hindrance, hindrance, room};
pub use self::pod::{ClusterPod, Phase, PodKey, Wants};
pub use self::quantity::{Quantity, QuantityError};
pub use self::selector::{Affinity, Operator, Requirement, Selector, Term};
pub use self::sights::Sights;
pub use self::taint::{Effect, Taint, TaintOperator, Toleration};

/// Kubernetes' name of what pods are counted by on a node.
pub const PODS: &str = "pods";
/// Kubernetes' name of processor time.
pub const CPU: &str = "cpu";
