//! EC2 instances of pools, from the labels that the cloud provider sets on nodes.

use std::collections::{BTreeMap, BTreeSet};

use octavo_fleet::cluster::{Amounts, ClusterNode};
use octavo_fleet::price::PurchaseOption;
use octavo_fleet::summary::SHARING_LABEL;

use crate::error::GenerateError;
use crate::note::{Exclusion, Note};
use crate::pools::{NodePool, Pools};

/// Labels of the cloud provider and the kubelet. Source: Kubernetes, "Well-Known Labels".
pub(crate) const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";
pub(crate) const ARCHITECTURE: &str = "kubernetes.io/arch";

/// Labels by which users select a layout.
const SELECTED_LAYOUT: [&str; 2] = ["octavo.dev/layout", "nvidia.com/mig.config"];

/// Properties that nodes of a machine set have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instance<'a> {
    pub(crate) type_name: &'a str,
    pub(crate) zone: &'a str,
    pub(crate) architecture: &'a str,
    pub(crate) is_spot: bool,
}

/// Pool with nodes on EC2.
pub(crate) struct InstancePool<'a> {
    pub(crate) pool: &'a NodePool,
    /// Nodes by instance, ordered by name.
    pub(crate) instances: BTreeMap<Instance<'a>, Vec<&'a ClusterNode>>,
}

impl<'a> Instance<'a> {
    /// Instance of a node; `None` if its labels do not name an EC2 instance type and a zone.
    fn from_node(node: &'a ClusterNode) -> Option<Self> {
        Some(Self {
            type_name: ec2_instance_type(node)?,
            zone: node.label(ZONE)?,
            architecture: node.label(ARCHITECTURE).unwrap_or("amd64"),
            is_spot: is_spot(node),
        })
    }
}

impl InstancePool<'_> {
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &ClusterNode> {
        self.instances.values().flatten().copied()
    }

    /// Returns `true` if pods get whole devices, so that a node offers the devices of its instance type.
    pub(crate) fn has_whole_devices(&self) -> bool {
        self.nodes().all(|node| matches!(node.label(SHARING_LABEL), None | Some("exclusive")))
    }

    /// Labels for new nodes, by which pods select them before an agent runs there: those of the pool, those that select a
    /// layout, and those without a prefix, which only users set.
    pub(crate) fn node_labels(&self) -> BTreeMap<String, String> {
        let first = self.nodes().next().into_iter().flat_map(|node| &node.labels);
        let own = first.filter(|(key, value)| {
            (!key.contains('/') || SELECTED_LAYOUT.contains(&key.as_str()))
                && self.nodes().all(|node| node.label(key) == Some(value))
        });
        let own = own.map(|(key, value)| (key.clone(), value.clone()));
        own.chain(self.pool.labels.clone()).collect()
    }
}

/// EC2 instance type of a node. Other clouds have no instance type with a dot.
pub(crate) fn ec2_instance_type(node: &ClusterNode) -> Option<&str> {
    node.label(INSTANCE_TYPE).filter(|name| name.contains('.'))
}

/// Returns `true` if the cloud can reclaim the node.
pub(crate) fn is_spot(node: &ClusterNode) -> bool {
    PurchaseOption::from_labels(&node.labels) == Some(PurchaseOption::Spot)
}

/// Least amount of each resource that each of the nodes has.
pub(crate) fn least(nodes: &[&ClusterNode]) -> Amounts {
    let mut nodes = nodes.iter().map(|node| &node.allocatable);
    let Some(first) = nodes.next() else {
        return Amounts::default();
    };
    nodes.fold(first.clone(), |least, other| {
        let names = least.iter().map(|(name, count)| (name, count.min(other.get(name))));
        names.fold(Amounts::default(), |all, (name, count)| all.with(name, count))
    })
}

/// Groups the nodes of each pool by instance. Nodes without one become a note.
///
/// # Errors
///
/// Fails if no node is left.
pub(crate) fn instance_pools<'a>(
    pools: &'a Pools,
    notes: &mut Vec<Note>,
) -> Result<Vec<InstancePool<'a>>, GenerateError> {
    let mut excluded = BTreeSet::new();
    let pools = pools.all.iter().map(|pool| {
        let mut instances: BTreeMap<Instance<'_>, Vec<&ClusterNode>> = BTreeMap::new();
        for node in &pool.nodes {
            match Instance::from_node(node) {
                Some(instance) => instances.entry(instance).or_default().push(node),
                None => {
                    excluded.insert(node.name.clone());
                }
            }
        }
        InstancePool { pool, instances }
    });
    let pools: Vec<InstancePool<'_>> = pools.filter(|pool| !pool.instances.is_empty()).collect();
    if !excluded.is_empty() {
        let names = excluded.into_iter().collect();
        notes.push(Note::Excluded { why: Exclusion::NotOnEc2, nodes: names });
    }
    if pools.is_empty() {
        notes.sort_unstable();
        return Err(GenerateError::NoNodes(notes.clone()));
    }
    Ok(pools)
}
