//! Proposals for the pending pods of the watched cluster, planned on request.
//!
//! Planning decodes the reports of all agents if a pod waits, so it runs on a blocking thread, one at a time. Concurrent requests receive
//! the previous report or, if that one is too old, wait.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use octavo_demand::{DemandReport, NodeChange, ObservedNode, has_requests, propose};
use octavo_files::checkpoint;
use octavo_fleet::cluster::ClusterSnapshot;
use octavo_kube::cluster::WatchedCluster;
use octavo_kube::policies::KnownPolicies;
use octavo_policy::{InstanceChange, NodeProposal, Policy, PolicyDemand, demand_by_node};
use thiserror::Error;
use tokio::sync::watch;

use super::clock::{Clock, Moment};
use super::cluster_nodes::{STALE_AFTER, unreported_nodes};
use super::dry_run::observed_holders;
use super::fleet::{Fleet, Node};
use super::policies::world;
use super::stale_while_revalidate::{Cached, Freshness, StaleWhileRevalidate};

/// Minimum interval between two plans; requests within it receive the previous report.
const PAUSE: Duration = Duration::from_secs(2);
/// Maximum age of a report that is returned while a new one is planned.
const MEANWHILE: Duration = Duration::from_secs(10);

/// Reason why there are no proposals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DemandError {
    /// No cluster is watched.
    #[error(
        "pending pods are unknown; start the aggregator with --follow-cluster (chart: aggregator.followCluster)"
    )]
    NoCluster,
    /// The cluster was not read yet.
    #[error("the nodes and pods of the cluster are not known yet")]
    NotRead,
    /// Planning failed.
    #[error("the proposals could not be calculated because of an internal error; retry")]
    Internal,
}

/// Proposals for pending pods.
#[derive(Debug)]
pub struct Proposals {
    /// The proposals by pod.
    pub report: DemandReport,
    /// The instances by node.
    pub nodes: BTreeMap<String, NodeProposal>,
    /// Nodes whose agents do not report the users of all devices at the moment.
    pub unknown_nodes: BTreeSet<String>,
    /// True if agents had not reported since the start of the aggregator.
    lacks_agents: bool,
}

/// Plans instances for pending pods. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct DemandPlanner {
    cluster: watch::Receiver<Arc<WatchedCluster>>,
    cache: StaleWhileRevalidate<Arc<Proposals>>,
}

impl DemandPlanner {
    pub(super) fn new(cluster: watch::Receiver<Arc<WatchedCluster>>) -> Self {
        Self { cluster, cache: StaleWhileRevalidate::default() }
    }

    /// Returns the proposals for the current state or a recent one. During the start of the aggregator, reports of agents can be missing.
    pub(super) async fn proposals(
        &self,
        fleet: Fleet,
        clock: Clock,
        policies: Option<Arc<KnownPolicies>>,
        is_starting: bool,
    ) -> Result<Arc<Proposals>, DemandError> {
        let watched = Arc::clone(&self.cluster.borrow());
        let current_at = watched.current_at.ok_or(DemandError::NotRead)?;
        let lacks_agents =
            is_starting && unreported_nodes(&fleet, &watched.snapshot).next().is_some();
        let plan = move |(): &mut (), _previous| {
            let now = clock.now();
            let snapshot = &watched.snapshot;
            // Without demand, no report needs to be decoded.
            let mut nodes = if has_requests(snapshot) {
                observed_nodes(&fleet, snapshot, now)
            } else {
                Vec::new()
            };
            if let Some(policies) = policies {
                set_policies(&mut nodes, &policies, snapshot, (&fleet, now));
            }
            let wall_clock = clock.wall(now);
            let plan = propose(snapshot, &nodes, wall_clock.as_second());
            let stale = current_at.elapsed() > STALE_AFTER;
            let report = DemandReport { as_of: wall_clock.to_string(), stale, ..plan.report };
            let unknown = nodes.iter().filter(|node| !is_use_known(node));
            let unknown = unknown.map(|node| node.name.clone());
            let unreported = unreported_nodes(&fleet, snapshot).map(|node| node.name.clone());
            let unknown_nodes: BTreeSet<String> = unknown.chain(unreported).collect();
            // The plan continues reservations of unknown nodes.
            let changes = plan.changes.into_iter();
            let changes = changes.filter(|change| !unknown_nodes.contains(&change.node));
            let nodes = changes.filter_map(node_proposal).collect();
            Arc::new(Proposals { report, nodes, unknown_nodes, lacks_agents })
        };
        // Without the reports of some agents, the proposals of their nodes would look withdrawn.
        let freshness = |last: &Cached<Arc<Proposals>>| match last.done.elapsed() {
            _ if last.value.lacks_agents && !lacks_agents => Freshness::Expired,
            age if age < PAUSE => Freshness::Fresh,
            age if age < MEANWHILE => Freshness::Stale,
            _ => Freshness::Expired,
        };
        self.cache.current(freshness, plan).await.map_err(|_panicked| DemandError::Internal)
    }
}

/// The nodes of the cluster whose agents report them.
fn observed_nodes(fleet: &Fleet, snapshot: &ClusterSnapshot, now: Moment) -> Vec<ObservedNode> {
    let nodes = fleet.local_nodes().filter(|node| node.has_agent());
    let nodes = nodes.filter(|node| snapshot.nodes.contains_key(node.name.as_str()));
    nodes.filter_map(|node| observed_node(node, now)).collect()
}

fn observed_node(node: &Node, now: Moment) -> Option<ObservedNode> {
    // The store decoded the parts before it accepted them.
    let status = node.status().ok()?;
    let (holders, is_complete) = observed_holders(&status);
    Some(ObservedNode {
        name: node.name.to_string(),
        inventory: status.inventory,
        holders,
        sharing: status.sharing,
        is_stale: node.freshness.is_stale(now),
        are_users_known: is_complete,
        demand: PolicyDemand::default(),
        changed_for: BTreeSet::new(),
        reserved_device: None,
    })
}

/// Returns whether the agent of the node has recently reported the users of all its devices.
fn is_use_known(node: &ObservedNode) -> bool {
    !node.is_stale && node.are_users_known
}

/// Sets how the policies of the nodes use proposals, and for which pods they already change them.
fn set_policies(
    nodes: &mut [ObservedNode],
    policies: &KnownPolicies,
    snapshot: &ClusterSnapshot,
    fleet: (&Fleet, Moment),
) {
    let policies: Vec<Policy> = policies.all.values().map(|policy| Policy::clone(policy)).collect();
    let settings = demand_by_node(&world(&policies, snapshot, fleet, BTreeMap::new()));
    let mut pods: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut reservations: BTreeMap<&str, &InstanceChange> = BTreeMap::new();
    let changes = policies.iter().flat_map(|policy| &policy.status.changes);
    for change in changes.filter(|change| !change.withdrawn) {
        pods.entry(change.node.as_str()).or_default().extend(change.pods.iter().cloned());
        if change.reserved_device.is_some() {
            reservations.insert(&change.node, change);
        }
    }
    for node in nodes {
        node.demand = settings.get(&node.name).copied().unwrap_or_default();
        node.changed_for = pods.remove(node.name.as_str()).unwrap_or_default();
        // Another node can be proposed instead of one whose use is unknown.
        let reservation = reservations.get(node.name.as_str());
        let reservation =
            reservation.filter(|change| change.is_in_progress() || is_use_known(node));
        node.reserved_device = reservation.and_then(|change| change.reserved_device.clone());
    }
}

/// The change of a node as a policy carries it out; `None` if a device has no UUID.
fn node_proposal(change: NodeChange) -> Option<(String, NodeProposal)> {
    let instances = checkpoint::write(&change.inventory).ok()?;
    let NodeChange { node, pods, evictions, reserved_device, .. } = change;
    Some((node, NodeProposal { instances, pods, evictions, reserved_device }))
}

#[cfg(test)]
mod tests {
    use octavo_fleet::cluster::{
        Amounts, ClusterNode, ClusterPod, PodKey, PodRequirements, Readiness,
    };
    use octavo_fleet::startup::StartupProgress;
    use octavo_fleet::type_labels::TYPE_LABEL;
    use octavo_model::inventory::Inventory;
    use octavo_node::label_set::LabelSet;
    use octavo_node::sharing::usage::Usage;
    use octavo_stream::protocol::{Change, Run};
    use octavo_stream::status;
    use tokio::time::Instant;

    use super::*;
    use crate::fleet::{Freshness, ReportingAgent, StatusSummary};
    use crate::view::FleetView;

    fn cluster() -> WatchedCluster {
        let node = ClusterNode {
            name: "gpu-1".to_owned(),
            labels: [(TYPE_LABEL.to_owned(), "nvidia-a100-40gb".to_owned())].into(),
            readiness: Readiness::Ready,
            ..ClusterNode::default()
        };
        let pending = ClusterPod {
            key: PodKey { namespace: "team-a".to_owned(), name: "train-0".to_owned() },
            requirements: PodRequirements {
                amounts: Amounts::default().with("nvidia.com/mig-1g.5gb", 1),
                ..PodRequirements::default()
            },
            created_at: Some(0),
            ..ClusterPod::default()
        };
        WatchedCluster {
            snapshot: Arc::new(ClusterSnapshot::new([node], [pending])),
            current_at: Some(Instant::now()),
            ..WatchedCluster::default()
        }
    }

    fn node(name: &str, usage: Option<&Usage>) -> Arc<Node> {
        let agent = ReportingAgent {
            name: name.parse().unwrap(),
            run: Run { epoch: 1, boot_id: "b".to_owned() },
            agent_version: String::new(),
        };
        let inventory = Inventory::default();
        let parts = status::encode(&inventory, &LabelSet::default(), None);
        let changed = usage.map(status::encode_usage).into_iter().collect();
        let parts = parts.apply(&Change { changed, removed: Vec::new() });
        let summary = StatusSummary::new(&inventory, Arc::default(), None);
        let fresh = Freshness::new(Moment::default(), Duration::from_hours(1));
        Arc::new(Node::new(agent, parts, summary, fresh))
    }

    #[tokio::test(start_paused = true)]
    async fn proposals_without_the_agents_of_a_start_are_not_used_after_it() {
        let (publisher, fleet) = watch::channel(Fleet::default());
        let (_cluster, watched) = watch::channel(Arc::new(cluster()));
        let (_progress, startup) = watch::channel(Some(StartupProgress::new(0, Some(1))));
        let view = FleetView::new(fleet, Clock::start()).with_startup(startup);
        let view = view.with_cluster(Some(watched.clone()));
        let snapshot = Arc::clone(&watched.borrow().snapshot);
        assert!(view.awaits_agents(&snapshot));
        let during_start = view.demand().await.unwrap();
        assert_eq!(during_start.unknown_nodes, BTreeSet::from(["gpu-1".to_owned()]));
        assert!(Arc::ptr_eq(&during_start, &view.demand().await.unwrap()));
        publisher.send_modify(|fleet| drop(fleet.nodes.insert(node("gpu-1", None))));
        assert!(!view.awaits_agents(&snapshot));
        let complete = view.demand().await.unwrap();
        assert!(!Arc::ptr_eq(&during_start, &complete));
        // The agent has not reported the users of its devices.
        assert_eq!(complete.unknown_nodes, during_start.unknown_nodes);
        assert!(Arc::ptr_eq(&complete, &view.demand().await.unwrap()));
        let known = node("gpu-1", Some(&Usage::default()));
        publisher.send_modify(|fleet| drop(fleet.nodes.insert(known)));
        tokio::time::advance(MEANWHILE).await;
        assert!(view.demand().await.unwrap().unknown_nodes.is_empty());
    }
}
