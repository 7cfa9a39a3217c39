//! Watches the policies of a cluster, and writes their status and their nodes.
//!
//! ```text
//!  API server --> policy_watcher --> KnownPolicies, shared --> aggregator: controller, readers
//!  controller --> client: status and finalizers of policies, one patch per node, events
//!  user --> policy_writer: specs and requests for a rollback
//! ```
//!
//! A cluster without the kind is a normal state, which is checked again periodically. Every write names the resource version that it
//! is based on.

mod client;
mod object;
mod policy_watcher;
mod policy_writer;

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_policy::Policy;

pub use self::client::{EventObject, PolicyClient, PolicyRequestError, PolicyRequests};
pub use self::policy_watcher::PolicyWatcher;
pub use self::policy_writer::{PolicyWriteError, PolicyWriter};
use crate::hardware_profiles::Presence;

/// Policies of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KnownPolicies {
    /// The policies by name.
    pub all: BTreeMap<String, Arc<Policy>>,
    /// Presence of the kind in the cluster; `None` before the first list.
    pub presence: Option<Presence>,
    /// Reason why the policies may be outdated.
    pub error: Option<String>,
}
