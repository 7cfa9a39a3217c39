//! The API server and the controllers of policies.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use octavo_fleet::cluster::ClusterNode;
use octavo_node::lease::{LeaderElector, ObservedLease};
use octavo_node::node_object::ObservedNode;
use octavo_policy::{Policy, Step};

use super::machine::Link;
use super::messages::Client;

/// The API server. It never fails, but its clients can lose it.
#[derive(Debug)]
pub(crate) struct ApiServer {
    pub(crate) nodes: Vec<ObservedNode>,
    pub(crate) policy: Policy,
    pub(crate) lease: Option<ObservedLease>,
    pub(crate) version: u64,
    pub(crate) watchers: Vec<Watcher>,
    /// Number of changed objects.
    pub(crate) writes: u64,
}

/// A watch of one Node, or of all objects.
#[derive(Debug, Clone)]
pub(crate) struct Watcher {
    pub(crate) number: u64,
    pub(crate) client: Client,
    /// Arrival of the last event: events arrive in their order.
    pub(crate) last: Duration,
}

/// A controller of policies. Two of them run, and one leads.
#[derive(Debug)]
pub(crate) struct Controller {
    pub(crate) run: u32,
    pub(crate) is_running: bool,
    pub(crate) began: Duration,
    pub(crate) wall_offset: i64,
    /// Millionths by which its monotonic clock is too fast.
    pub(crate) drift: i32,
    pub(crate) link: Link,
    pub(crate) elector: LeaderElector,
    /// Policy and nodes, as last seen.
    pub(crate) policy: Option<Policy>,
    /// Nodes by name, with their versions.
    pub(crate) nodes: BTreeMap<String, Arc<ClusterNode>>,
    pub(crate) versions: BTreeMap<usize, u64>,
    pub(crate) watcher: u64,
    /// True if the policy was listed since the Lease was acquired.
    pub(crate) has_begun: bool,
    pub(crate) next_work: Option<Duration>,
    /// Steps of the current decision that are not executed yet, and whether one has changed something.
    pub(crate) steps: VecDeque<Step>,
    pub(crate) has_written: bool,
    pub(crate) requests: BTreeMap<u64, ControllerRequest>,
}

/// A request of a controller without an answer.
#[derive(Debug, Clone)]
pub(crate) enum ControllerRequest {
    /// Reads or writes the Lease. Contains the local time at which it was sent.
    Lease(Duration),
    /// Lists policies and nodes.
    Watch,
    /// Reads the node of a step, before it is changed.
    Read(Step),
    /// Executes a step.
    Step,
}

impl Controller {
    /// Its monotonic clock, which counts from its start.
    pub(crate) fn local(&self, now: Duration) -> Duration {
        let elapsed = now.saturating_sub(self.began);
        elapsed.mul_f64(1.0 + f64::from(self.drift) / 1e6)
    }

    /// The time at which its monotonic clock has advanced by `span`.
    pub(crate) fn after(&self, now: Duration, span: Duration) -> Duration {
        // Rounded up, so that a wait is never repeated without progress.
        let span = span.div_f64(1.0 + f64::from(self.drift) / 1e6);
        now + span + Duration::from_micros(1)
    }
}
