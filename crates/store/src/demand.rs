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
use octavo_policy::{NodeProposal, Policy, PolicyDemand, demand_by_node};
use thiserror::Error;
use tokio::sync::watch;

use super::clock::{Clock, Moment};
use super::cluster_nodes::STALE_AFTER;
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

    /// Returns the proposals for the current state or a recent one.
    pub(super) async fn proposals(
        &self,
        fleet: Fleet,
        clock: Clock,
        policies: Option<Arc<KnownPolicies>>,
    ) -> Result<Arc<Proposals>, DemandError> {
        let watched = Arc::clone(&self.cluster.borrow());
        let current_at = watched.current_at.ok_or(DemandError::NotRead)?;
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
            let nodes = plan.changes.into_iter().filter_map(node_proposal).collect();
            Arc::new(Proposals { report, nodes })
        };
        self.cache.current(freshness, plan).await.map_err(|_panicked| DemandError::Internal)
    }
}

fn freshness(last: &Cached<Arc<Proposals>>) -> Freshness {
    match last.done.elapsed() {
        age if age < PAUSE => Freshness::Fresh,
        age if age < MEANWHILE => Freshness::Stale,
        _ => Freshness::Expired,
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
    let mut reserved: BTreeMap<&str, &String> = BTreeMap::new();
    let changes = policies.iter().flat_map(|policy| &policy.status.changes);
    for change in changes.filter(|change| !change.withdrawn) {
        pods.entry(change.node.as_str()).or_default().extend(change.pods.iter().cloned());
        reserved.extend(change.reserved_device.iter().map(|pci| (change.node.as_str(), pci)));
    }
    for node in nodes {
        node.demand = settings.get(&node.name).copied().unwrap_or_default();
        node.changed_for = pods.remove(node.name.as_str()).unwrap_or_default();
        node.reserved_device = reserved.get(node.name.as_str()).map(|pci| (*pci).clone());
    }
}

/// The change of a node as a policy carries it out; `None` if a device has no UUID.
fn node_proposal(change: NodeChange) -> Option<(String, NodeProposal)> {
    let instances = checkpoint::write(&change.inventory).ok()?;
    let NodeChange { node, pods, evictions, reserved_device, .. } = change;
    Some((node, NodeProposal { instances, pods, evictions, reserved_device }))
}
