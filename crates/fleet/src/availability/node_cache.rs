//! Rows of all nodes, retained from one count to the next.
//!
//! Few nodes change between two counts, and most nodes of a fleet are equal. Therefore, only the rows of nodes whose inputs
//! differ are determined again, nodes with equal rows share them, and the sum multiplies them by the number of nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;
use std::sync::Arc;
use std::vec::IntoIter;

use octavo_model::accelerators::Catalog;

use super::agent_units::AgentUnits;
use super::node_rows::{AgentNode, NodeContext, NodeRows};
use super::pending::HeldUnits;
use super::row::{Row, RowKey, RowNodes};
use super::unavailable::UnavailableReason;
use super::unit_type::TypeResolver;
use crate::cluster::{Amounts, ClusterNode, ClusterSnapshot, NodePods};

/// State that counts reuse.
#[derive(Debug)]
pub struct CountCache {
    pub(super) nodes: NodeCache,
    pub(super) names: TypeResolver,
}

/// Rows of the nodes of the last count.
#[derive(Debug, Default)]
pub(super) struct NodeCache {
    has_cluster: bool,
    /// Ordered by name.
    nodes: Vec<CachedNode>,
    /// Distinct rows.
    shared: BTreeSet<Arc<NodeRows>>,
}

/// Rows of a node, with the inputs that they were determined from.
#[derive(Debug)]
struct CachedNode {
    name: Arc<str>,
    node: Option<Arc<ClusterNode>>,
    pods: Option<Arc<NodePods>>,
    agent: Option<CachedAgent>,
    rows: Arc<NodeRows>,
}

/// Owned form of [`AgentNode`].
#[derive(Debug)]
struct CachedAgent {
    seen: Arc<AgentUnits>,
    is_stale: bool,
    is_changing: bool,
}

/// Current inputs of a node.
#[derive(Clone, Copy)]
struct NodeInputs<'a> {
    name: &'a str,
    node: Option<&'a Arc<ClusterNode>>,
    pods: Option<&'a Arc<NodePods>>,
    agent: Option<&'a AgentNode<'a>>,
}

impl CountCache {
    /// Creates an empty cache of counts that resolve names by this catalog.
    pub fn new(catalog: Catalog) -> Self {
        Self { nodes: NodeCache::default(), names: TypeResolver::new(catalog) }
    }
}

impl NodeCache {
    /// Determines the rows of the nodes whose inputs have changed. `agents` are ordered by name.
    pub(super) fn update(
        &mut self,
        agents: &[AgentNode<'_>],
        snapshot: Option<&ClusterSnapshot>,
        names: &mut TypeResolver,
    ) {
        // The rows of an agent without a Node object depend on the presence of a cluster.
        let has_cluster = snapshot.is_some();
        let before = std::mem::take(&mut self.nodes);
        let before = if has_cluster == self.has_cluster { before } else { Vec::new() };
        self.has_cluster = has_cluster;
        let mut before = before.into_iter().peekable();
        for inputs in all_inputs(agents, snapshot) {
            let cached = take(&mut before, inputs.name);
            let cached = match cached {
                Some(cached) if cached.is_of(&inputs) => cached,
                other => self.cached(&inputs, other, names),
            };
            self.nodes.push(cached);
        }
        drop(before);
        self.shared.retain(|rows| Arc::strong_count(rows) > 1);
    }

    fn cached(
        &mut self,
        inputs: &NodeInputs<'_>,
        before: Option<CachedNode>,
        names: &mut TypeResolver,
    ) -> CachedNode {
        let rows = inputs.rows(self.has_cluster, names);
        let rows = if let Some(known) = self.shared.get(&rows) {
            Arc::clone(known)
        } else {
            let rows = Arc::new(rows);
            self.shared.insert(Arc::clone(&rows));
            rows
        };
        CachedNode {
            name: before.map_or_else(|| inputs.name.into(), |before| before.name),
            node: inputs.node.map(Arc::clone),
            pods: inputs.pods.map(Arc::clone),
            agent: inputs.agent.map(CachedAgent::new),
            rows,
        }
    }

    /// Sums up the rows of all nodes.
    pub(super) fn sum(&self) -> BTreeMap<RowKey, Row> {
        let mut counts: BTreeMap<*const NodeRows, (&NodeRows, u32)> = BTreeMap::new();
        for cached in &self.nodes {
            let (_, count) = counts.entry(Arc::as_ptr(&cached.rows)).or_insert((&cached.rows, 0));
            *count = count.saturating_add(1);
        }
        let mut sum: BTreeMap<RowKey, Row> = BTreeMap::new();
        for (rows, count) in counts.into_values() {
            for row in &rows.rows {
                let all = sum.entry(row.key.clone()).or_insert_with(|| Row::new(row.key.clone()));
                all.add_nodes(row, count);
            }
        }
        sum
    }

    /// Names of the nodes that have units, in order, with their rows.
    pub(super) fn rows_by_node(&self) -> Vec<(Arc<str>, Arc<NodeRows>)> {
        let nodes = self.nodes.iter().filter(|cached| !cached.rows.rows.is_empty());
        nodes.map(|cached| (Arc::clone(&cached.name), Arc::clone(&cached.rows))).collect()
    }

    /// Nodes of the cluster that have a resource or whose pods hold it, by its row.
    pub(super) fn nodes_by_row(&self) -> RowNodes<'_> {
        let mut all = RowNodes::new();
        for (cached, node) in self.nodes.iter().filter_map(|one| Some((one, one.node.as_ref()?))) {
            for resource in &cached.rows.resources {
                all.entry(&resource.key).or_default().push(node);
            }
        }
        all
    }

    /// Row of a resource on a node; `None` if the node does not have it.
    pub(super) fn row_key(&self, node: &str, resource: &str) -> Option<&RowKey> {
        let at = self.nodes.binary_search_by(|cached| (*cached.name).cmp(node)).ok()?;
        let mut resources = self.nodes.get(at)?.rows.resources.iter();
        resources.find(|one| one.key.resource == resource).map(|one| &one.key)
    }

    /// Adds the holders of the units of these rows.
    pub(super) fn add_holders<'a>(&'a self, rows: &mut BTreeMap<&RowKey, HeldUnits<'a>>) {
        if rows.is_empty() {
            return;
        }
        for (cached, pods) in self.nodes.iter().filter_map(|one| Some((one, one.pods.as_ref()?))) {
            for resource in &cached.rows.resources {
                if let Some(held) = rows.get_mut(&resource.key) {
                    held.add_pods(pods, &resource.key.resource, resource.is_usable);
                }
            }
        }
    }
}

/// Inputs of each node of the cluster and of each agent, ordered by name.
fn all_inputs<'a>(
    agents: &'a [AgentNode<'a>],
    snapshot: Option<&'a ClusterSnapshot>,
) -> impl Iterator<Item = NodeInputs<'a>> {
    let mut agents = agents.iter().peekable();
    let nodes = snapshot.into_iter().flat_map(|snapshot| {
        snapshot.nodes.iter().map(move |(name, node)| (name, node, snapshot.pods_on(name)))
    });
    let mut nodes = nodes.peekable();
    std::iter::from_fn(move || {
        let is_before = |agent: &&AgentNode<'_>| {
            nodes.peek().is_none_or(|(name, ..)| agent.name < name.as_str())
        };
        if let Some(agent) = agents.next_if(is_before) {
            return Some(NodeInputs {
                name: agent.name,
                node: None,
                pods: None,
                agent: Some(agent),
            });
        }
        let (name, node, pods) = nodes.next()?;
        let agent = agents.next_if(|agent| agent.name == name);
        Some(NodeInputs { name, node: Some(node), pods, agent })
    })
}

/// Takes the node with this name, and drops those before it.
fn take(nodes: &mut Peekable<IntoIter<CachedNode>>, name: &str) -> Option<CachedNode> {
    while nodes.next_if(|cached| *cached.name < *name).is_some() {}
    nodes.next_if(|cached| *cached.name == *name)
}

impl NodeInputs<'_> {
    fn rows(&self, has_cluster: bool, names: &mut TypeResolver) -> NodeRows {
        match (self.node, self.agent) {
            (Some(node), agent) => {
                let nothing = Amounts::default();
                let held = self.pods.map_or(&nothing, |pods| pods.held());
                NodeRows::of_node(&NodeContext { node, held, agent }, names)
            }
            (None, Some(agent)) if has_cluster => {
                NodeRows::of_agent(agent, Some(UnavailableReason::NoSuchNode))
            }
            (None, Some(agent)) => {
                NodeRows::of_agent(agent, agent.is_stale.then_some(UnavailableReason::Stale))
            }
            (None, None) => NodeRows::default(),
        }
    }
}

impl CachedNode {
    /// Returns `true` if these are the inputs of the rows.
    fn is_of(&self, inputs: &NodeInputs<'_>) -> bool {
        is_same(self.node.as_ref(), inputs.node)
            && is_same(self.pods.as_ref(), inputs.pods)
            && match (&self.agent, inputs.agent) {
                (Some(then), Some(now)) => then.is_of(now),
                (None, None) => true,
                (Some(_), None) | (None, Some(_)) => false,
            }
    }
}

impl CachedAgent {
    fn new(agent: &AgentNode<'_>) -> Self {
        let AgentNode { name: _, seen, is_stale, is_changing } = *agent;
        Self { seen: Arc::clone(seen), is_stale, is_changing }
    }

    fn is_of(&self, agent: &AgentNode<'_>) -> bool {
        Arc::ptr_eq(&self.seen, agent.seen)
            && (self.is_stale, self.is_changing) == (agent.is_stale, agent.is_changing)
    }
}

/// Returns `true` if both are the same object or both are absent.
fn is_same<T>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}
