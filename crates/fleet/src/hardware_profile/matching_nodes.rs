//! Nodes that a profile reaches, and the number of workloads that currently fit there.

use std::collections::BTreeMap;

use octavo_model::id::TypeName;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use super::node_types::DevicesByType;
use super::{HardwareProfile, Scheduling};
use crate::cluster::{
    Amounts, ClusterNode, ClusterSnapshot, PodRequirements, Selector, Taint, placement_obstacle,
};

/// Nodes that a profile reaches in a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Reach)]
pub struct MatchingNodes {
    /// Number of nodes that match the selector.
    pub selected: u32,
    /// Number of those that have the requested resources and no untolerated permanent taint.
    pub nodes: u32,
    /// Number of those that currently accept no pods: cordoned, not ready, being changed.
    #[serde(rename = "closed")]
    pub unavailable_nodes: u32,
    /// Number of nodes with several types, where the type that a workload gets is not deterministic.
    pub mixed: u32,
    /// Number of additional workloads that currently fit on nodes with several types.
    #[serde(default, rename = "mixedAvailable")]
    pub mixed_free: u64,
    /// Devices by type. A node with several types counts for each.
    pub types: Vec<MatchingDevices>,
    /// Number of selected nodes that have the requested resources.
    #[serde(skip)]
    pub offering: u32,
    /// Number of additional workloads with the default counts that currently fit.
    #[serde(skip)]
    pub free: u64,
    /// Untolerated permanent taints of nodes that have the requested resources, with the number of nodes.
    #[serde(skip)]
    pub tainted: BTreeMap<Taint, u32>,
    /// Largest amount of each device resource on any selected node.
    #[serde(skip)]
    pub max_per_node: Amounts,
}

/// Devices of one type that a profile reaches.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = TypeReach)]
pub struct MatchingDevices {
    /// The type; absent for unidentified devices.
    #[serde(rename = "type")]
    #[schema(value_type = Option<String>)]
    pub type_name: Option<TypeName>,
    /// Number of nodes that have it.
    pub nodes: u32,
    /// Number of devices on them, allocated or not.
    pub devices: u64,
    /// Number of these nodes that have other types too.
    #[serde(default)]
    pub mixed_nodes: u32,
    /// Number of devices of this type on such nodes.
    #[serde(default)]
    pub mixed_devices: u64,
    /// Number of additional workloads that currently fit on nodes with this type only.
    #[serde(rename = "available")]
    pub free: u64,
}

/// Node of the cluster, with the data that decide which profiles reach it.
#[derive(Debug, Clone, Copy)]
pub struct CandidateNode<'a> {
    node: &'a ClusterNode,
    /// Amounts that pods hold on it; `None` if there are no pods.
    held: Option<&'a Amounts>,
    types: Option<&'a DevicesByType>,
}

impl<'a> CandidateNode<'a> {
    /// All nodes of the cluster. `types` are the device types of the nodes.
    pub fn all(
        snapshot: &'a ClusterSnapshot,
        types: &'a BTreeMap<String, DevicesByType>,
    ) -> Vec<Self> {
        let nodes = snapshot.nodes.iter().map(|(name, node)| Self {
            node,
            held: snapshot.held_on(name),
            types: types.get(name),
        });
        nodes.collect()
    }

    /// The nodes of `all` that the selector matches; all without a selector.
    pub fn select(all: &[Self], selector: Option<&Selector>) -> Vec<Self> {
        let is_selected = |one: &&Self| {
            let mut labels = selector.into_iter().flatten();
            labels.all(|(key, value)| one.node.label(key) == Some(value))
        };
        all.iter().filter(is_selected).copied().collect()
    }
}

/// Determines the nodes that `profile` reaches; `None` if a queue decides. `selected` are the nodes that its selector
/// matches.
pub fn matching_nodes(
    profile: &HardwareProfile,
    selected: &[CandidateNode<'_>],
) -> Option<MatchingNodes> {
    if matches!(profile.scheduling, Scheduling::Queue { .. }) {
        return None;
    }
    // The selected nodes match the selector.
    let wants = PodRequirements { selector: Selector::new(), ..profile.requirements() };
    let devices = profile.devices();
    let nothing = Amounts::default();
    let mut reach = MatchingNodes::default();
    let mut by_type: BTreeMap<(bool, Option<TypeName>), MatchingDevices> = BTreeMap::new();
    for CandidateNode { node, held, types } in selected {
        reach.selected = reach.selected.saturating_add(1);
        for name in &devices {
            reach.max_per_node.raise(name, node.allocatable.get(name));
        }
        if devices.iter().any(|name| node.allocatable.get(name) == 0) {
            continue;
        }
        reach.offering = reach.offering.saturating_add(1);
        let against = untolerated_permanent_taints(&wants, node);
        for taint in &against {
            let count = reach.tainted.entry(taint.clone()).or_default();
            *count = count.saturating_add(1);
        }
        if !against.is_empty() {
            continue;
        }
        // The permanent taints are tolerated, so any other obstacle is temporary.
        let is_closed = placement_obstacle(&wants, node).is_some();
        let fits = || node.allocatable.how_many_fit(held.unwrap_or(&nothing), &wants.amounts);
        let free = if is_closed { 0 } else { fits() };
        reach.nodes = reach.nodes.saturating_add(1);
        reach.unavailable_nodes = reach.unavailable_nodes.saturating_add(u32::from(is_closed));
        reach.free = reach.free.saturating_add(free);
        if types.is_some_and(|types| types.len() > 1) {
            reach.mixed = reach.mixed.saturating_add(1);
            reach.mixed_free = reach.mixed_free.saturating_add(free);
        }
        add(&mut by_type, *types, free);
    }
    reach.types = by_type.into_values().collect();
    Some(reach)
}

impl MatchingNodes {
    /// Copy without the parts that documents leave out, so that equal documents are equal values.
    #[must_use]
    pub fn documented(&self) -> Self {
        Self {
            offering: 0,
            free: 0,
            tainted: BTreeMap::new(),
            max_per_node: Amounts::default(),
            types: self.types.clone(),
            ..*self
        }
    }

    /// Names of the reached types, without unidentified devices.
    pub fn names(&self) -> Vec<&TypeName> {
        self.types.iter().filter_map(|one| one.type_name.as_ref()).collect()
    }
}

/// Permanent taints of the node that are not tolerated.
pub(super) fn untolerated_permanent_taints(
    wants: &PodRequirements,
    node: &ClusterNode,
) -> Vec<Taint> {
    let taints = node
        .taints
        .iter()
        .filter(|taint| taint.forbids_permanently() && !taint.is_tolerated(&wants.tolerations));
    taints.cloned().collect()
}

/// Adds the types of a node, ordered by name, unidentified devices last.
fn add(
    by_type: &mut BTreeMap<(bool, Option<TypeName>), MatchingDevices>,
    held: Option<&DevicesByType>,
    free: u64,
) {
    let Some(held) = held else { return };
    for (name, devices) in held {
        let row = by_type.entry((name.is_none(), name.clone())).or_insert_with(|| {
            MatchingDevices { type_name: name.clone(), ..MatchingDevices::default() }
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
