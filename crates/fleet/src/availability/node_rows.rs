//! Rows of a single node: the units that it has, by type, resource and shape.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::agent_units::{AgentUnits, UnitCounts};
use super::row::{AddedUnits, Row, RowKey};
use super::shape::Shape;
use super::unavailable::{AgentState, UnavailableReason, unavailable_reason};
use super::unit_type::{TypeResolver, UnitType, memory_from_labels};
use crate::cluster::{Amounts, ClusterNode, PODS};
use crate::type_labels::NVIDIA_PRODUCT_LABEL;
use crate::type_source::TypeSource;

/// Resource whose usual toleration also allows pods that request a partition: only NVIDIA devices can be
/// repartitioned.
const NVIDIA_GPU_RESOURCE: &str = "nvidia.com/gpu";

/// Node with an agent.
#[derive(Debug, Clone, Copy)]
pub struct AgentNode<'a> {
    /// Node name.
    pub name: &'a str,
    /// Units that the agent reports. The same object stands for the same report.
    pub seen: &'a Arc<AgentUnits>,
    /// True if the agent's last report is too old.
    pub is_stale: bool,
    /// True if the node is being repartitioned.
    pub is_changing: bool,
}

/// Rows of one node. Nodes with equal rows share them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct NodeRows {
    /// Ordered by key, each once; without pending pods and waiting times.
    pub rows: Vec<Row>,
    /// Resources that the node offers, or that pods hold on it.
    pub(super) resources: Vec<NodeResource>,
}

/// Resource of a node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeResource {
    /// Row with its units.
    pub(super) key: RowKey,
    /// True if another pod could use the units that a pod releases.
    pub(super) is_usable: bool,
}

/// Node of the cluster with its allocations and its agent.
#[derive(Clone, Copy)]
pub(super) struct NodeContext<'a> {
    pub(super) node: &'a ClusterNode,
    pub(super) held: &'a Amounts,
    pub(super) agent: Option<&'a AgentNode<'a>>,
}

impl NodeContext<'_> {
    /// State of the agent that affects whether its node can take pods.
    fn agent_state(&self) -> AgentState {
        self.agent.map_or_else(AgentState::default, |agent| AgentState {
            is_stale: agent.is_stale,
            is_changing: agent.is_changing && !agent.is_stale,
        })
    }
}

impl NodeRows {
    /// Counts one node of the cluster.
    pub(super) fn of_node(of: &NodeContext<'_>, names: &mut TypeResolver) -> Self {
        let mut builder = NodeRowsBuilder::default();
        builder.add_node(of, names);
        builder.build()
    }

    /// Counts an agent's units where its node is not in the cluster data; `why` is the reason why all of them are
    /// unavailable.
    pub(super) fn of_agent(agent: &AgentNode<'_>, why: Option<UnavailableReason>) -> Self {
        let mut builder = NodeRowsBuilder::default();
        builder.add_agent_units(agent, why);
        builder.build()
    }
}

/// Intermediate result of the count of one node.
#[derive(Debug, Default)]
struct NodeRowsBuilder {
    rows: BTreeMap<RowKey, Row>,
    resources: Vec<NodeResource>,
}

impl NodeRowsBuilder {
    fn build(self) -> NodeRows {
        NodeRows { rows: self.rows.into_values().collect(), resources: self.resources }
    }

    fn row(&mut self, key: &RowKey) -> &mut Row {
        self.rows.entry(key.clone()).or_insert_with(|| Row::new(key.clone()))
    }

    fn add_agent_units(&mut self, agent: &AgentNode<'_>, why: Option<UnavailableReason>) {
        for units in &agent.seen.units {
            let row = self.row(&units.key());
            let free = if why.is_none() { units.free } else { 0 };
            row.add_units(AddedUnits::new(units.total, free), units.memory, TypeSource::Agent);
            row.nodes = row.nodes.saturating_add(1);
            row.add_unavailable(UnavailableReason::Passthrough, units.reserved);
            row.add_unavailable(UnavailableReason::Unhealthy, units.broken);
            row.add_unavailable(UnavailableReason::StaticLayout, units.covered);
            let sound = units.sound();
            if let Some(why) = why {
                row.add_unavailable(why, sound);
            } else {
                row.allocatable = row.allocatable.saturating_add(sound);
                row.taken = row.taken.saturating_add(units.in_use);
                row.add_unavailable(UnavailableReason::UseUnknown, units.unknown_use());
            }
        }
        if why.is_none() {
            self.add_potential(agent.seen, |resource| {
                let all = agent.seen.units.iter().filter(|units| units.resource == resource);
                all.map(|units| units.free).fold(0, u64::saturating_add)
            });
        }
    }

    /// Counts an agent's units on a node that offers no accelerator resource. Units that pods still hold are already
    /// counted.
    fn add_unoffered_units(&mut self, agent: &AgentNode<'_>, held: &Amounts) {
        let mut counted: BTreeMap<&str, u64> = BTreeMap::new();
        for units in &agent.seen.units {
            // Units of several shapes and types can have one resource.
            let counted = counted.entry(&units.resource).or_default();
            let held = held.get(&units.resource).saturating_sub(*counted).min(units.total);
            *counted = counted.saturating_add(held);
            let row = self.row(&units.key());
            row.nodes = row.nodes.saturating_add(u32::from(held == 0));
            row.add_units(AddedUnits::new(units.total, 0), units.memory, TypeSource::Agent);
            let rest = units.total.saturating_sub(held);
            let passthrough = units.reserved.min(rest);
            let rest = rest.saturating_sub(passthrough);
            let broken = units.broken.min(rest);
            row.add_unavailable(UnavailableReason::Passthrough, passthrough);
            row.add_unavailable(UnavailableReason::Unhealthy, broken);
            row.add_unavailable(UnavailableReason::PluginMissing, rest.saturating_sub(broken));
        }
    }

    /// Counts one node of the cluster.
    fn add_node(&mut self, of: &NodeContext<'_>, names: &mut TypeResolver) {
        let reported = of.node.capacity.accelerators().chain(of.node.allocatable.accelerators());
        let mut resources: BTreeSet<&str> = reported.map(|(name, _)| name).collect();
        let is_offered = !resources.is_empty();
        let agent = of.agent.filter(|agent| !agent.is_stale);
        let serves_claims = agent.is_some_and(|agent| agent.seen.serves_claims);
        // Pods can hold resources that the node no longer reports. Extended resources that Kubernetes allocates by claims
        // are units of the agent.
        if is_offered || !serves_claims {
            resources.extend(of.held.accelerators().map(|(name, _)| name));
        }
        let budget = resources.into_iter();
        let budget: BTreeMap<&str, u64> =
            budget.map(|name| (name, self.add_resource(of, name, names))).collect();
        let Some(agent) = agent else {
            return;
        };
        if is_offered && can_take_pods(of) {
            self.add_potential(agent.seen, |resource| budget.get(resource).copied().unwrap_or(0));
        } else if !is_offered && serves_claims {
            let why = unavailable_reason(of.node, NVIDIA_GPU_RESOURCE, of.agent_state());
            self.add_claim_units(agent, why);
        } else if !is_offered {
            self.add_unoffered_units(agent, of.held);
        }
    }

    /// Counts the units of a node that serves resource claims. `why` is the reason why it accepts no further claim.
    fn add_claim_units(&mut self, agent: &AgentNode<'_>, why: Option<UnavailableReason>) {
        for units in &agent.seen.units {
            let row = self.row(&units.key());
            let free = if why.is_none() { units.free } else { 0 };
            row.add_units(AddedUnits::new(units.total, free), units.memory, TypeSource::Agent);
            row.nodes = row.nodes.saturating_add(1);
            row.allocatable = row.allocatable.saturating_add(units.sound());
            row.taken = row.taken.saturating_add(units.in_use);
            row.add_unavailable(UnavailableReason::Passthrough, units.reserved);
            row.add_unavailable(UnavailableReason::Unhealthy, units.broken);
            row.add_unavailable(UnavailableReason::StaticLayout, units.covered);
            row.add_unavailable(UnavailableReason::UseUnknown, units.unknown_use());
            if let Some(why) = why {
                row.add_unavailable(why, units.free);
            }
        }
    }

    /// Counts one resource of one node and returns its free units.
    fn add_resource(
        &mut self,
        of: &NodeContext<'_>,
        resource: &str,
        names: &mut TypeResolver,
    ) -> u64 {
        let (node, held, agent) = (of.node, of.held, of.agent);
        let seen = || agent.into_iter().flat_map(|agent| agent.seen.units_of_resource(resource));
        let mut shape = Shape::from_resource(resource, node.label(NVIDIA_PRODUCT_LABEL));
        if shape == Shape::Device {
            // AMD's device plugin can offer partitions under the name of whole devices.
            let partition = |shape: &&Shape| matches!(shape, Shape::AmdPartition(_));
            shape = seen().map(|units| &units.shape).find(partition).cloned().unwrap_or(shape);
        }
        let (kind, source) = unit_type(of, resource, names);
        let is_whole = matches!(shape, Shape::Device | Shape::TimeSlice);
        // Devices of several types can be behind one resource.
        let reported = seen().filter_map(|units| units.memory).min();
        let memory = reported.or_else(|| memory_from_labels(node, resource, is_whole));
        let why = unavailable_reason(node, resource, of.agent_state());
        let allocatable = node.allocatable.get(resource);
        let capacity = node.capacity.get(resource).max(allocatable);
        let taken = held.get(resource);
        let faulty = agent.map_or(0, |agent| {
            agent.seen.unhealthy_offered(resource, &shape, (capacity, allocatable))
        });
        let key = RowKey { kind, resource: resource.to_owned(), shape };
        let faulty = faulty.min(allocatable.saturating_sub(taken));
        let rest = allocatable.saturating_sub(taken).saturating_sub(faulty);
        let places = node.allocatable.get(PODS).saturating_sub(held.get(PODS));
        let free = if why.is_some() { 0 } else { rest.min(places) };
        let unhealthy = capacity.saturating_sub(allocatable.max(taken));
        // A missing device plugin takes away all units; one that reports an unhealthy device leaves the others.
        let is_gone = allocatable == 0 && seen().any(UnitCounts::has_usable);
        let reserved = agent.map(|agent| agent.seen.reserved_in_capacity(resource, capacity));
        let passthrough = reserved.unwrap_or(0).min(unhealthy);
        let row = self.row(&key);
        row.add_units(AddedUnits::new(capacity, free), memory, source);
        row.nodes = row.nodes.saturating_add(1);
        row.allocatable = row.allocatable.saturating_add(allocatable);
        row.taken = row.taken.saturating_add(taken);
        let missing =
            if is_gone { UnavailableReason::PluginMissing } else { UnavailableReason::Unhealthy };
        row.add_unavailable(UnavailableReason::Passthrough, passthrough);
        row.add_unavailable(missing, unhealthy.saturating_sub(passthrough));
        row.add_unavailable(UnavailableReason::UnhealthyAdvertised, faulty);
        row.add_unavailable(why.unwrap_or(UnavailableReason::PodsFull), rest.saturating_sub(free));
        self.resources.push(NodeResource { key, is_usable: why.is_none() });
        free
    }

    /// Counts the units that idle devices of a node could become. `free` returns the free units of a resource on that
    /// node.
    fn add_potential(&mut self, seen: &AgentUnits, free: impl Fn(&str) -> u64) {
        let mut spent: BTreeMap<&str, u64> = BTreeMap::new();
        for (type_name, idle, count) in &seen.idle {
            for _ in 0..*count {
                let fits = idle.holds.iter().all(|(resource, count)| {
                    let spent = spent.get(resource.as_str()).copied().unwrap_or(0);
                    spent.saturating_add(*count) <= free(resource)
                });
                if !fits {
                    break;
                }
                for (resource, count) in &idle.holds {
                    let spent = spent.entry(resource).or_default();
                    *spent = spent.saturating_add(*count);
                }
                for could in &idle.could {
                    let row = self.row(&RowKey {
                        kind: type_name.clone().into(),
                        resource: could.resource.clone(),
                        shape: could.shape.clone(),
                    });
                    let more = AddedUnits {
                        could_add: could.fits,
                        could_become: could.more,
                        ..AddedUnits::default()
                    };
                    row.add_units(more, could.memory, TypeSource::Agent);
                }
            }
        }
    }
}

/// Returns `true` if units that result from repartitioning this node would be available to pods.
fn can_take_pods(of: &NodeContext<'_>) -> bool {
    let NodeContext { node, held, .. } = *of;
    unavailable_reason(node, NVIDIA_GPU_RESOURCE, of.agent_state()).is_none()
        && node.allocatable.get(PODS) > held.get(PODS)
}

/// Type of a resource's units on a node: of the devices that the agent reports behind it, otherwise of the node's
/// labels.
fn unit_type(
    of: &NodeContext<'_>,
    resource: &str,
    names: &mut TypeResolver,
) -> (UnitType, TypeSource) {
    let Some(agent) = of.agent.filter(|agent| !agent.seen.is_empty()) else {
        return names.resolve(of.node);
    };
    let found = agent.seen.types(resource);
    let several = found.len() > 1;
    match found.into_iter().next().flatten() {
        _ if several => (UnitType::Mixed, TypeSource::Agent),
        Some(type_name) => (UnitType::Known(type_name), TypeSource::Agent),
        None => names.resolve(of.node),
    }
}
