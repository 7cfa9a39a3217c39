//! Nodes of the cluster without an agent, merged with those that agents report.
//!
//! The merge runs on request, and only after a change of the agents or the cluster. A node that an agent has reported
//! takes precedence, connected or not, so no node appears twice. Only lists for readers contain both; availability
//! counts use agents and cluster separately.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use octavo_fleet::cluster::{ClusterNode, ClusterSnapshot, Readiness};
use octavo_fleet::summary::NodeSummary;
use octavo_fleet::type_labels::TYPE_LABEL;
use octavo_kube::cluster::WatchedCluster;
use octavo_model::accelerators::Catalog;
use octavo_model::id::NodeName;
use octavo_model::label::{LabelKey, LabelValue};
use octavo_node::label_set::LabelSet;
use tokio::sync::watch;

use super::clock::Moment;
use super::fleet::{Fleet, Freshness, Node};

/// Age from which the cluster's snapshot, or a count, is marked as stale; the bound is set by the requirements.
pub(super) const STALE_AFTER: Duration = Duration::from_mins(1);

/// Watched cluster whose nodes are listed. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct ClusterNodes {
    watched: watch::Receiver<Arc<WatchedCluster>>,
    merged: Arc<Mutex<MergeState>>,
}

/// Last merge, with its inputs.
#[derive(Debug)]
struct MergeState {
    catalog: Catalog,
    snapshot: Arc<ClusterSnapshot>,
    /// Nodes of the cluster, each with its entry if it has an accelerator.
    known: BTreeMap<String, (Arc<ClusterNode>, Option<Arc<Node>>)>,
    agents: Fleet,
    /// Entries that are part of `fleet`.
    listed: Vec<Arc<Node>>,
    /// Number of changes of `listed`.
    changes: u64,
    fleet: Fleet,
    /// Freshness of the cluster's snapshot; shared by all entries.
    freshness: Freshness,
    /// Whether the snapshot was stale at the last merge.
    is_stale: bool,
}

/// Returns whether an agent should report this node: it is ready and has the labels of an agent.
pub(super) fn expects_agent(node: &ClusterNode) -> bool {
    node.readiness == Readiness::Ready && node.label(TYPE_LABEL).is_some()
}

/// Nodes of the cluster whose agents have not reported since the start of the aggregator.
pub(super) fn unreported_nodes<'a>(
    fleet: &'a Fleet,
    cluster: &'a ClusterSnapshot,
) -> impl Iterator<Item = &'a Arc<ClusterNode>> {
    cluster.nodes.values().filter(|node| {
        let name = node.name.parse::<NodeName>();
        expects_agent(node) && name.is_ok_and(|name| fleet.nodes.get(&name).is_none())
    })
}

impl ClusterNodes {
    /// Creates the merge of a watched cluster.
    pub(super) fn new(watched: watch::Receiver<Arc<WatchedCluster>>) -> Self {
        let merged = MergeState {
            catalog: Catalog::built_in(),
            snapshot: Arc::default(),
            known: BTreeMap::new(),
            agents: Fleet::default(),
            listed: Vec::new(),
            changes: 0,
            fleet: Fleet::default(),
            freshness: Freshness::new(Moment::default(), STALE_AFTER),
            is_stale: false,
        };
        Self { watched, merged: Arc::new(Mutex::new(merged)) }
    }

    /// Merges the nodes that agents report with those of the cluster without an agent, at `now`.
    pub(super) fn merge(&self, agents: &watch::Receiver<Fleet>, now: Moment) -> Fleet {
        let mut merged = self.merged.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock, so that a later merge never has older inputs.
        let watched = Arc::clone(&self.watched.borrow());
        let agents = agents.borrow().clone();
        merged.merge(agents, &watched, now)
    }

    /// Waits until the cluster changes; never returns once it is no longer watched.
    pub(super) async fn changed(&mut self) {
        if self.watched.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl MergeState {
    fn merge(&mut self, agents: Fleet, watched: &WatchedCluster, now: Moment) -> Fleet {
        if let Some(current_at) = watched.current_at {
            self.freshness.confirm(now.before(current_at.elapsed()));
        }
        let is_same_cluster = Arc::ptr_eq(&self.snapshot, &watched.snapshot);
        if !is_same_cluster {
            self.update_entries(&watched.snapshot);
        }
        let is_stale = self.freshness.is_stale(now);
        let is_same_age = is_stale == self.is_stale;
        if !is_same_age {
            self.set_stale(is_stale);
        }
        if is_same_cluster && is_same_age && agents.revision == self.agents.revision {
            return self.fleet.clone();
        }
        let entries = self.known.values().filter_map(|(_, entry)| entry.as_ref());
        let alone = entries.filter(|entry| agents.nodes.get(&entry.name).is_none());
        let listed: Vec<Arc<Node>> = alone.map(Arc::clone).collect();
        let mut pairs = listed.iter().zip(&self.listed);
        let is_same =
            listed.len() == self.listed.len() && pairs.all(|(one, other)| Arc::ptr_eq(one, other));
        if !is_same {
            self.changes = self.changes.saturating_add(1);
        }
        let mut fleet = agents.clone();
        for entry in &listed {
            fleet.nodes.insert(Arc::clone(entry));
        }
        // Both only increase, so every different fleet has a greater revision.
        fleet.revision = agents.revision.saturating_add(self.changes);
        self.agents = agents;
        self.listed = listed;
        self.fleet = fleet.clone();
        fleet
    }

    /// Replaces all entries, so that event streams report a change of staleness.
    fn set_stale(&mut self, is_stale: bool) {
        self.is_stale = is_stale;
        self.freshness = self.freshness.with_found_stale(is_stale);
        for (_, entry) in self.known.values_mut() {
            if let Some(entry) = entry {
                *entry = Arc::new(Node { freshness: self.freshness.clone(), ..Node::clone(entry) });
            }
        }
    }

    /// Reads the nodes that changed.
    fn update_entries(&mut self, snapshot: &Arc<ClusterSnapshot>) {
        self.known.retain(|name, _| snapshot.nodes.contains_key(name));
        for (name, node) in &snapshot.nodes {
            let known = self.known.get(name);
            if known.is_some_and(|(of, _)| Arc::ptr_eq(of, node)) {
                continue;
            }
            let before = known.and_then(|(_, entry)| entry.as_ref());
            let entry = self.entry(node, before);
            self.known.insert(name.clone(), (Arc::clone(node), entry));
        }
        self.snapshot = Arc::clone(snapshot);
    }

    /// Creates the entry of a node; returns `before` if it is unchanged.
    fn entry(&self, node: &ClusterNode, before: Option<&Arc<Node>>) -> Option<Arc<Node>> {
        let name = node.name.parse().ok()?;
        let (summary, source) = NodeSummary::of_labels(node, &self.catalog)?;
        let labels = labels(node);
        let same = |known: &&Arc<Node>| {
            known.summary == summary && known.source == source && *known.labels == labels
        };
        if let Some(before) = before.filter(same) {
            return Some(Arc::clone(before));
        }
        let freshness = self.freshness.clone();
        let entry = Node::without_agent(name, (summary, source), Arc::new(labels), freshness);
        Some(Arc::new(entry))
    }
}

/// Valid labels of a Node object.
fn labels(node: &ClusterNode) -> LabelSet {
    let all = node.labels.iter();
    all.filter_map(|(key, value)| {
        let key: LabelKey = key.parse().ok()?;
        let value: LabelValue = value.parse().ok()?;
        Some((key, value))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use octavo_fleet::cluster::Amounts;
    use octavo_fleet::summary::NodeState;
    use octavo_model::inventory::Inventory;
    use octavo_stream::protocol::{Parts, Run};
    use tokio::time::{Instant, timeout};

    use super::*;
    use crate::clock::Clock;
    use crate::fleet::{ReportingAgent, StatusSummary};
    use crate::view::FleetView;

    fn cluster_node(name: &str, product: &str) -> ClusterNode {
        ClusterNode {
            name: name.to_owned(),
            labels: [("nvidia.com/gpu.product".to_owned(), product.to_owned())].into(),
            capacity: Amounts::default().with("nvidia.com/gpu", 4),
            ..ClusterNode::default()
        }
    }

    fn watched(nodes: Vec<ClusterNode>) -> Arc<WatchedCluster> {
        Arc::new(WatchedCluster {
            snapshot: Arc::new(ClusterSnapshot::new(nodes, [])),
            current_at: Some(Instant::now()),
            error: None,
            invalid_objects: 0,
        })
    }

    fn agent_node(name: &str) -> Node {
        let inventory = Inventory::default();
        let origin = ReportingAgent {
            name: name.parse().unwrap(),
            run: Run { epoch: 1, boot_id: String::new() },
            agent_version: "1".to_owned(),
        };
        let summary = StatusSummary::new(&inventory, Arc::default(), None);
        let freshness = Freshness::new(Moment::default(), Duration::from_hours(1));
        Node::new(origin, Parts::default(), summary, freshness)
    }

    fn names(fleet: &Fleet) -> Vec<(String, bool)> {
        let nodes = fleet.nodes.iter();
        nodes.map(|node| (node.name.to_string(), node.has_agent())).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn ac_001_node_is_listed_once_with_or_without_agent() {
        let (agents, of_agents) = watch::channel(Fleet::default());
        let (cluster, of_cluster) = watch::channel(Arc::new(WatchedCluster::default()));
        let nodes = ClusterNodes::new(of_cluster);
        let merge = || nodes.merge(&of_agents, Moment::default());
        assert_eq!(names(&merge()), []);

        let cpu = ClusterNode { name: "cpu-1".to_owned(), ..ClusterNode::default() };
        let gpus = ["a100", "b100"].map(|name| cluster_node(name, "NVIDIA-A100-SXM4-40GB"));
        let all: Vec<ClusterNode> = gpus.into_iter().chain([cpu]).collect();
        cluster.send_replace(watched(all.clone()));
        let first = merge();
        let owned = |name: &str, has_agent: bool| (name.to_owned(), has_agent);
        assert_eq!(names(&first), [owned("a100", false), owned("b100", false)]);
        assert!(Arc::ptr_eq(
            first.nodes.iter().next().unwrap(),
            merge().nodes.iter().next().unwrap()
        ));
        assert_eq!(merge().revision, first.revision);

        // An agent reports; the cluster is read again without a change.
        agents.send_modify(|fleet| {
            fleet.revision += 1;
            fleet.nodes.insert(Arc::new(agent_node("a100")));
        });
        let second = merge();
        assert_eq!(names(&second), [owned("a100", true), owned("b100", false)]);
        assert!(second.revision > first.revision);
        cluster.send_replace(watched(all));
        let third = merge();
        assert_eq!(third.revision, second.revision);
        let difference = third.since(&second);
        assert!(difference.changed.is_empty() && difference.removed.is_empty());

        // The node leaves the cluster; the agent's entry is retained until it expires.
        cluster.send_replace(watched(Vec::new()));
        let last = merge();
        assert_eq!(names(&last), [owned("a100", true)]);
        assert!(last.revision > third.revision);
    }

    #[tokio::test(start_paused = true)]
    async fn i9_node_without_agent_becomes_stale_with_the_cluster() {
        let (_agents, of_agents) = watch::channel(Fleet::default());
        let nodes = vec![cluster_node("a100", "NVIDIA-L4")];
        let (_cluster, of_cluster) = watch::channel(watched(nodes));
        let nodes = ClusterNodes::new(of_cluster);
        let began = Moment::from_millis(500_000);
        let state = |fleet: &Fleet, at: Moment| fleet.nodes.iter().next().unwrap().state(at);
        assert_eq!(state(&nodes.merge(&of_agents, began), began), NodeState::NoAgent);
        tokio::time::advance(STALE_AFTER + Duration::from_secs(1)).await;
        let later = Moment::from_millis(500_000 + 61_000);
        assert_eq!(state(&nodes.merge(&of_agents, later), later), NodeState::Stale);
    }

    #[tokio::test(start_paused = true)]
    async fn i9_event_stream_reports_staleness_of_nodes_without_agent() {
        let (_agents, of_agents) = watch::channel(Fleet::default());
        let node = || vec![cluster_node("a100", "NVIDIA-L4")];
        let (cluster, of_cluster) = watch::channel(watched(node()));
        let mut view = FleetView::new(of_agents, Clock::start()).with_cluster(Some(of_cluster));
        let state_of = |view: &FleetView, fleet: &Fleet| {
            let now = view.clock().now();
            fleet.nodes.iter().next().unwrap().state(now)
        };
        let fresh = view.listed();
        assert_eq!(state_of(&view, &fresh), NodeState::NoAgent);
        // No more updates of the cluster arrive.
        let stale = loop {
            let next = timeout(2 * STALE_AFTER, view.listed_changed()).await;
            let next = next.unwrap().unwrap();
            if next.revision > fresh.revision {
                break next;
            }
        };
        assert_eq!(state_of(&view, &stale), NodeState::Stale);
        assert_eq!(stale.since(&fresh).changed.len(), 1);

        cluster.send_replace(watched(node()));
        let next = timeout(STALE_AFTER, view.listed_changed()).await;
        let next = next.unwrap().unwrap();
        assert_eq!(state_of(&view, &next), NodeState::NoAgent);
        assert_eq!(next.since(&stale).changed.len(), 1);
    }
}
