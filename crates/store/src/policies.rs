//! Policies as readers see them, and the nodes as policies see them.
//!
//! ```text
//!  policies, watched --+
//!  cluster, watched ---+--> World --> controller, previews
//!  fleet: use, types --+
//! ```

pub mod documents;
mod feasibility;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use octavo_fleet::cluster::{ClusterPod, ClusterSnapshot};
use octavo_fleet::summary::DeviceUse;
use octavo_kube::cluster::WatchedCluster;
use octavo_kube::policies::KnownPolicies;
use octavo_model::id::NodeName;
use octavo_policy::{Policy, PolicyNode, PolicyPlan, World, plan};
use tokio::sync::watch;

pub use self::feasibility::FeasibilityCache;
use crate::clock::Moment;
use crate::fleet::{Fleet, Node};

/// Policies and nodes of the cluster, as last seen. Cheap to clone.
#[derive(Debug, Clone)]
pub struct PolicyView {
    known: watch::Receiver<Arc<KnownPolicies>>,
    cluster: watch::Receiver<Arc<WatchedCluster>>,
}

impl PolicyView {
    /// Creates a view of the watched policies and nodes.
    pub fn new(
        known: watch::Receiver<Arc<KnownPolicies>>,
        cluster: watch::Receiver<Arc<WatchedCluster>>,
    ) -> Self {
        Self { known, cluster }
    }

    /// The policies with their status.
    pub fn known(&self) -> Arc<KnownPolicies> {
        Arc::clone(&self.known.borrow())
    }

    /// The nodes and pods.
    pub fn cluster(&self) -> Arc<WatchedCluster> {
        Arc::clone(&self.cluster.borrow())
    }

    /// Waits until policies or nodes differ from the last call. Returns `false` once they are no longer watched.
    pub async fn changed(&mut self) -> bool {
        tokio::select! {
            changed = self.known.changed() => changed.is_ok(),
            changed = self.cluster.changed() => changed.is_ok(),
        }
    }

    /// Waits until the policies differ from the last call; never resolves once they are no longer watched.
    pub async fn policies_changed(&mut self) {
        if self.known.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Plans the roll-out of a policy, stored or not, beside the stored ones.
    pub fn plan(
        &self,
        policy: &Policy,
        fleet: (&Fleet, Moment),
        infeasible: Option<String>,
    ) -> PolicyPlan {
        let known = self.known();
        let stored = known.all.values().filter(|stored| stored.name != policy.name);
        let policies: Vec<Policy> =
            stored.map(|stored| Policy::clone(stored)).chain([policy.clone()]).collect();
        let cluster = self.cluster();
        let infeasible =
            infeasible.map(|message| (policy.name.clone(), message)).into_iter().collect();
        plan(&world(&policies, &cluster.snapshot, fleet, infeasible), policy)
    }
}

/// Policies and nodes at this moment.
pub fn world<'a>(
    policies: &'a [Policy],
    snapshot: &'a ClusterSnapshot,
    (fleet, now): (&Fleet, Moment),
    infeasible: BTreeMap<String, String>,
) -> World<'a> {
    let nodes = snapshot.nodes.values().map(|node| {
        let in_use = reported(fleet, &node.name).and_then(|reported| in_use(reported, now));
        (node.name.as_str(), PolicyNode::new(node, in_use))
    });
    World {
        policies,
        nodes: nodes.collect(),
        infeasible,
        proposals: None,
        unknown_nodes: BTreeSet::new(),
        waiting: BTreeSet::new(),
        now: Timestamp::now(),
    }
}

/// Pods of changes that wait for a node, as `namespace/name`.
pub fn waiting_pods(policies: &[Policy], snapshot: &ClusterSnapshot) -> BTreeSet<String> {
    let changes = policies.iter().flat_map(|policy| &policy.status.changes);
    let pods = changes.flat_map(|change| &change.pods);
    pods.filter(|pod| snapshot.pod(pod).is_some_and(ClusterPod::is_pending)).cloned().collect()
}

/// Node that an agent reported, by its name in the cluster.
fn reported<'a>(fleet: &'a Fleet, name: &str) -> Option<&'a Arc<Node>> {
    fleet.nodes.get(&name.parse::<NodeName>().ok()?).filter(|node| node.is_local())
}

/// Devices and partitions of a node that are in use or allocated; `None` if the agent does not report it.
fn in_use(node: &Node, now: Moment) -> Option<u32> {
    if !node.has_agent() || node.freshness.is_stale(now) {
        return None;
    }
    let counts = node.counts(now);
    let whole = counts.known_count(DeviceUse::InUse)?;
    Some(whole.saturating_add(counts.partitions.in_use))
}
