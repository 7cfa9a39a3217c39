//! Which nodes a profile reaches, and how often its workload fits there now.

use std::collections::BTreeMap;

use super::held::Held;
use super::{HardwareProfile, Scheduling};
use crate::domain::cluster::{
    Amounts, ClusterNode, Hindrance, Sights, Taint, Wants, hindrance, room,
};
use crate::domain::id::TypeName;

/// What a profile reaches in a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reach {
    /// Nodes with the labels that it selects by.
    pub selected: u32,
    /// Of these, those that have what it asks for.
    pub offering: u32,
    /// Of these, those without a lasting taint against it.
    pub nodes: u32,
    /// Of these, those that take nothing now: cordoned, not ready, being changed.
    pub closed: u32,
    /// What the nodes have, by type. A node with several types counts for each.
    pub types: Vec<TypeReach>,
    /// Of those, nodes with several types: which one a workload gets there is chance.
    pub mixed: u32,
    /// How many more workloads fit now on nodes with several types.
    pub mixed_free: u64,
    /// How many more workloads fit now, each with what the profile asks for by default.
    pub free: u64,
    /// Lasting taints that keep it from nodes that have what it asks for, and from how many.
    pub tainted: BTreeMap<Taint, u32>,
    /// The most of each device resource that one node gives, over the nodes it selects.
    pub most: Amounts,
}

/// The devices of one type that a profile reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeReach {
    /// The type; `None` for devices nobody knows.
    pub type_name: Option<TypeName>,
    /// Nodes that have it.
    pub nodes: u32,
    /// Devices on them, given out or not.
    pub devices: u64,
    /// Of the nodes, those that have other types, too.
    pub mixed_nodes: u32,
    /// Devices of this type on such nodes.
    pub mixed_devices: u64,
    /// How many more workloads fit now on nodes that have this type alone.
    pub free: u64,
}

/// Prefixes of taints that come and go with the state of a node, and say nothing of what it is for: Kubernetes' own, the cloud
/// controller's, ours, and those of autoscalers. Source: Kubernetes, "Well-Known Labels, Annotations and Taints".
const PASSING: [&str; 7] = [
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "octavo.dev/",
    "node.cilium.io/",
    "karpenter.sh/",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
];

/// Whether a taint goes away by itself.
pub(super) fn is_passing(taint: &Taint) -> bool {
    PASSING.iter().any(|prefix| taint.key.starts_with(prefix))
}

/// What `profile` reaches; `None` where a queue decides. `holds` is what pods have on each node, `types` what nodes have.
pub fn reach(
    profile: &HardwareProfile,
    sights: &Sights,
    holds: &BTreeMap<&str, Amounts>,
    types: &BTreeMap<String, Held>,
) -> Option<Reach> {
    if matches!(profile.scheduling, Scheduling::Queue { .. }) {
        return None;
    }
    let wants = profile.wants();
    let devices = profile.devices();
    let nothing = Amounts::default();
    let mut reach = Reach::default();
    let mut by_type: BTreeMap<(bool, Option<TypeName>), TypeReach> = BTreeMap::new();
    for node in sights.nodes.values() {
        let is_selected = |(key, value): (&String, &String)| node.label(key) == Some(value);
        if !wants.selector.iter().all(is_selected) {
            continue;
        }
        reach.selected = reach.selected.saturating_add(1);
        let gives: Amounts = devices.iter().fold(Amounts::default(), |all, name| {
            all.with(name, node.allocatable.get(name))
        });
        reach.most.raise(&gives);
        if gives.iter().any(|(_, count)| count == 0) {
            continue;
        }
        reach.offering = reach.offering.saturating_add(1);
        let against = lasting(&wants, node);
        for taint in &against {
            let count = reach.tainted.entry(taint.clone()).or_default();
            *count = count.saturating_add(1);
        }
        if !against.is_empty() {
            continue;
        }
        let free = room(
            &wants,
            node,
            holds.get(node.name.as_str()).unwrap_or(&nothing),
        );
        reach.count(node, &wants, free);
        let held = types.get(&node.name);
        if held.is_some_and(|held| held.len() > 1) {
            reach.mixed = reach.mixed.saturating_add(1);
            reach.mixed_free = reach.mixed_free.saturating_add(free);
        }
        add(&mut by_type, held, free);
    }
    reach.types = by_type.into_values().collect();
    Some(reach)
}

impl Reach {
    fn count(&mut self, node: &ClusterNode, wants: &Wants, free: u64) {
        self.nodes = self.nodes.saturating_add(1);
        self.free = self.free.saturating_add(free);
        let is_closed = match hindrance(wants, node) {
            None | Some(Hindrance::Selector(_) | Hindrance::Affinity) => false,
            Some(Hindrance::Cordoned | Hindrance::Tainted(_)) => true,
        };
        self.closed = self.closed.saturating_add(u32::from(is_closed));
    }

    /// The names of the types that it reaches, and none for devices nobody knows.
    pub fn names(&self) -> Vec<&TypeName> {
        self.types
            .iter()
            .filter_map(|one| one.type_name.as_ref())
            .collect()
    }
}

/// Taints of the node that stay, and that are not tolerated.
pub(super) fn lasting(wants: &Wants, node: &ClusterNode) -> Vec<Taint> {
    let taints = node.taints.iter().filter(|taint| {
        taint.forbids() && !is_passing(taint) && !taint.is_tolerated(&wants.tolerations)
    });
    taints.cloned().collect()
}

/// Adds a node's types, by name, those without one last.
fn add(
    by_type: &mut BTreeMap<(bool, Option<TypeName>), TypeReach>,
    held: Option<&Held>,
    free: u64,
) {
    let Some(held) = held else { return };
    for (name, devices) in held {
        let row = by_type
            .entry((name.is_none(), name.clone()))
            .or_insert_with(|| TypeReach {
                type_name: name.clone(),
                nodes: 0,
                devices: 0,
                mixed_nodes: 0,
                mixed_devices: 0,
                free: 0,
            });
        row.nodes = row.nodes.saturating_add(1);
        row.devices = row.devices.saturating_add(*devices);
        if held.len() == 1 {
            row.free = row.free.saturating_add(free);
        } else {
            row.mixed_nodes = row.mixed_nodes.saturating_add(1);
            row.mixed_devices = row.mixed_devices.saturating_add(*devices);
        }
    }
}
