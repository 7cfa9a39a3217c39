//! Pods that wait for accelerators: what each namespace waits for, and why.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use octavo_model::text::count_noun;

use super::pending::{matches_node, requested_key};
use super::row::{RowKey, RowNodes};
use super::shape::Shape;
use super::unit_type::UnitType;
use crate::cluster::{
    Amounts, ClusterNode, ClusterSnapshot, PODS, PlacementObstacle, PodRequirements,
    placement_obstacle,
};

/// Maximum number of distinct requests whose obstacles are determined, those with the most pods first, because each is
/// compared with every node that has the resource.
const MAX_EXPLAINED: usize = 64;
/// Maximum number of groups, because anyone who may create pods chooses their content.
pub const MAX_DEMANDS: usize = 1024;

/// Pending pods of a namespace that request the same resource and wait for the same reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    /// Their namespace.
    pub namespace: String,
    /// Type that they request; unknown if they accept several, or if no node has one that matches. Without obstacles,
    /// it is the type in their node selector.
    pub kind: UnitType,
    /// Resource that they request.
    pub resource: String,
    /// Shape of one unit.
    pub shape: Shape,
    /// Number of pods.
    pub pods: u64,
    /// Number of these pods that no other demand includes in this number, so that the sum over all demands counts each
    /// pod once. A pod with several resources counts for the first one.
    pub distinct_pods: u64,
    /// Total number of units that they request.
    pub units: u64,
    /// Number of nodes by the obstacle; `None` if it was not determined, because there are too many different requests.
    pub obstacles: Option<Obstacles>,
}

/// Number of nodes with the requested resource by the obstacle.
pub type Obstacles = BTreeMap<Obstacle, u32>;

/// First reason why a pod is not placed on a node that has the requested resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obstacle {
    /// Nothing: the scheduler has not placed the pod yet.
    Nothing,
    /// Too few units are free on the node.
    Occupied,
    /// Enough units are free, but not enough CPU, memory or other resources.
    OtherResources,
    /// The node never has as many units as the pod requests.
    TooSmall,
    /// The node is cordoned.
    Cordoned,
    /// The pod does not tolerate a taint of the node.
    Tainted,
    /// The node selector or the node affinity of the pod excludes the node.
    NotSelected,
}

impl Obstacle {
    /// Describes the obstacle on these nodes, as a clause: `too few units are free on 3 nodes`.
    pub fn describe(self, nodes: u32) -> String {
        let count =
            |one, several| count_noun(usize::try_from(nodes).unwrap_or(usize::MAX), one, several);
        let on = count("node", "nodes");
        match self {
            Self::Nothing => {
                format!("there is room on {on}: the scheduler has not placed them yet")
            }
            Self::Occupied => format!("too few units are free on {on}"),
            Self::OtherResources => {
                format!("too little CPU, memory or another resource is free on {on}")
            }
            Self::TooSmall => {
                let have = count("node has", "nodes have");
                format!("{have} fewer units than the pod requests")
            }
            Self::Cordoned => count("node is cordoned", "nodes are cordoned"),
            Self::Tainted => format!("the pod does not tolerate a taint of {on}"),
            Self::NotSelected => format!("the node selector or affinity excludes {on}"),
        }
    }
}

/// Groups the pending pods. Returns at most [`MAX_DEMANDS`] groups, and the number of pods that are in none.
pub(super) fn demands(members: &RowNodes<'_>, snapshot: &ClusterSnapshot) -> (Vec<Demand>, u64) {
    let mut requests: BTreeMap<&PodRequirements, BTreeMap<&str, u64>> = BTreeMap::new();
    for pod in snapshot.pending_pods() {
        if pod.requirements.amounts.accelerators().next().is_some() {
            let pods = requests.entry(&pod.requirements).or_default();
            let pods = pods.entry(pod.key.namespace.as_str()).or_default();
            *pods = pods.saturating_add(1);
        }
    }
    let requests = requests.into_iter();
    let mut requests: Vec<_> = requests
        .map(|(wants, namespaces)| {
            let pods = namespaces.values().fold(0_u64, |sum, pods| sum.saturating_add(*pods));
            (pods, wants, namespaces)
        })
        .collect();
    requests.sort_by_key(|(pods, ..)| Reverse(*pods));
    let mut groups: BTreeMap<(&str, RowKey, Option<Obstacles>), PodCounts> = BTreeMap::new();
    let mut omitted = 0_u64;
    for (place, (_, wants, namespaces)) in requests.into_iter().enumerate() {
        for (number, (resource, each)) in wants.amounts.accelerators().enumerate() {
            let (key, obstacles) = if place < MAX_EXPLAINED {
                let obstacles = obstacles(wants, members_with(members, resource), snapshot);
                (requested(wants, resource, members), Some(obstacles))
            } else {
                (requested_key(wants, resource), None)
            };
            for (namespace, pods) in &namespaces {
                let distinct = if number == 0 { *pods } else { 0 };
                let group = (*namespace, key.clone(), obstacles.clone());
                if groups.len() >= MAX_DEMANDS && !groups.contains_key(&group) {
                    omitted = omitted.saturating_add(distinct);
                    continue;
                }
                let counts = groups.entry(group).or_default();
                counts.pods = counts.pods.saturating_add(*pods);
                counts.distinct = counts.distinct.saturating_add(distinct);
                counts.units = counts.units.saturating_add(pods.saturating_mul(each));
            }
        }
    }
    let groups = groups.into_iter();
    let groups = groups.map(|((namespace, key, obstacles), counts)| Demand {
        namespace: namespace.to_owned(),
        kind: key.kind,
        resource: key.resource,
        shape: key.shape,
        pods: counts.pods,
        distinct_pods: counts.distinct,
        units: counts.units,
        obstacles,
    });
    (groups.collect(), omitted)
}

/// Numbers of a group.
#[derive(Debug, Clone, Copy, Default)]
struct PodCounts {
    pods: u64,
    distinct: u64,
    units: u64,
}

/// Nodes that have a resource.
fn members_with<'a, 'b>(
    members: &'b RowNodes<'a>,
    resource: &'b str,
) -> impl Iterator<Item = &'a ClusterNode> + 'b {
    let rows = members.iter().filter(move |(key, _)| key.resource == resource);
    rows.flat_map(|(_, nodes)| nodes.iter().copied())
}

fn obstacles<'a>(
    wants: &PodRequirements,
    nodes: impl Iterator<Item = &'a ClusterNode>,
    snapshot: &ClusterSnapshot,
) -> Obstacles {
    let mut found = Obstacles::new();
    for node in nodes {
        let count = found.entry(obstacle(wants, node, snapshot.held_on(&node.name))).or_default();
        *count = count.saturating_add(1);
    }
    found
}

fn obstacle(wants: &PodRequirements, node: &ClusterNode, held: Option<&Amounts>) -> Obstacle {
    if !matches_node(wants, node) {
        return Obstacle::NotSelected;
    }
    match placement_obstacle(wants, node) {
        Some(PlacementObstacle::Cordoned) => return Obstacle::Cordoned,
        Some(PlacementObstacle::Tainted(_)) => return Obstacle::Tainted,
        Some(PlacementObstacle::Selector(_) | PlacementObstacle::Affinity) => {
            return Obstacle::NotSelected;
        }
        None => {}
    }
    let has = |name: &str, count: u64| node.allocatable.get(name) >= count;
    let has_free = |name: &str, count: u64| {
        let held = held.map_or(0, |held| held.get(name));
        node.allocatable.get(name).saturating_sub(held) >= count
    };
    if wants.amounts.accelerators().any(|(name, count)| !has(name, count)) {
        Obstacle::TooSmall
    } else if wants.amounts.accelerators().any(|(name, count)| !has_free(name, count)) {
        Obstacle::Occupied
    } else if wants.amounts.iter().any(|(name, count)| !has_free(name, count)) || !has_free(PODS, 1)
    {
        Obstacle::OtherResources
    } else {
        Obstacle::Nothing
    }
}

/// Row of the nodes that the request selects; without a type if they have several.
fn requested(wants: &PodRequirements, resource: &str, members: &RowNodes<'_>) -> RowKey {
    let rows = members.iter().filter(|(key, _)| key.resource == resource);
    let mut selected = rows.filter(|(_, nodes)| nodes.iter().any(|node| matches_node(wants, node)));
    match (selected.next(), selected.next()) {
        (Some((key, _)), None) => (*key).clone(),
        (None, _) => requested_key(wants, resource),
        (Some(_), Some(_)) => RowKey { kind: UnitType::Unknown, ..requested_key(wants, resource) },
    }
}
