//! Counting: aggregates nodes into rows, then adds pending pods and waiting times.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr};

use super::agent_units::{AgentUnits, UnitCounts};
use super::demand::{self, Demand};
use super::history::{HoldingHistory, WaitEstimate};
use super::pending::{self, HeldUnits, HeldUnitsByNode};
use super::potential::FragmentedDevice;
use super::row::{NodeShare, Row, RowKey, RowNodes, Unknown, Wait};
use super::shape::Shape;
use super::unavailable::{AgentState, UnavailableReason, unavailable_reason};
use super::unit_type::{TypeResolver, UnitType, memory_from_labels};
use crate::cluster::{Amounts, ClusterNode, ClusterSnapshot, PODS};
use crate::type_labels::NVIDIA_PRODUCT_LABEL;
use crate::type_source::TypeSource;

/// Availability of the fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Availability {
    /// Data that the counts are based on.
    pub basis: CountBasis,
    /// Rows ordered by type, resource and shape; at most [`MAX_ROWS`].
    pub rows: Vec<Row>,
    /// Number of rows omitted because of that limit.
    pub omitted_rows: usize,
    /// Devices whose idle instances prevent a larger one, with the names of their nodes; those with the largest gain first.
    /// Devices of outdated reports are excluded.
    pub fragmented: Vec<(Arc<str>, FragmentedDevice)>,
    /// Pending pods by namespace, resource and reason; empty without cluster data.
    pub demands: Vec<Demand>,
    /// Number of pending pods that are in none of them, because there are too many.
    pub omitted_pods: u64,
}

/// Data that the counts are based on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
#[serde(rename_all = "kebab-case")]
pub enum CountBasis {
    /// Nodes and pods of the cluster, and agents.
    Cluster,
    /// Agents only; allocations to pods are unknown.
    Agents,
}

/// Node with an agent.
#[derive(Debug, Clone, Copy)]
pub struct AgentNode<'a> {
    /// Node name.
    pub name: &'a str,
    /// Units that the agent reports.
    pub seen: &'a AgentUnits,
    /// True if the agent's last report is too old.
    pub is_stale: bool,
    /// True if the node is being repartitioned.
    pub is_changing: bool,
}

/// Resource whose usual toleration also allows pods that request a partition: only NVIDIA devices can be
/// repartitioned.
const NVIDIA_GPU_RESOURCE: &str = "nvidia.com/gpu";
/// Maximum number of rows, because types and resource names come from the cluster and are unbounded.
pub const MAX_ROWS: usize = 2048;

/// Past holding times, for estimates of the waiting time.
#[derive(Debug)]
pub struct HoldingTimes<'a> {
    /// Recorded holding times.
    pub history: &'a mut HoldingHistory,
    /// Current time in seconds since 1970.
    pub now: i64,
}

/// Counts the units that `agents` and the cluster report, each node once. Without `past`, waiting times come from pod
/// deadlines only.
pub fn count(
    agents: &[AgentNode<'_>],
    snapshot: Option<&ClusterSnapshot>,
    names: &mut TypeResolver,
    past: Option<HoldingTimes<'_>>,
) -> Availability {
    let mut sum = CountBuilder::default();
    if let Some(snapshot) = snapshot {
        count_cluster(&mut sum, agents, snapshot, names);
        sum.set_wait_times(past, names);
    } else {
        for agent in agents {
            sum.add_agent_units(agent, agent.is_stale.then_some(UnavailableReason::Stale));
        }
        for row in sum.rows.values_mut() {
            row.wait = Wait::Unknown(Unknown::NoCluster);
        }
    }
    let mut rows: Vec<Row> = sum.rows.into_values().collect();
    for row in rows.iter_mut().filter(|row| row.free > 0) {
        row.wait = Wait::Now;
    }
    let left_out = rows.len().saturating_sub(MAX_ROWS);
    if left_out > 0 {
        // Rows with nodes take precedence over rows that pods merely request.
        rows.sort_by_key(|row| row.nodes == 0);
        rows.truncate(MAX_ROWS);
        rows.sort_by(|one, other| one.key.cmp(&other.key));
    }
    Availability {
        basis: match snapshot {
            Some(_) => CountBasis::Cluster,
            None => CountBasis::Agents,
        },
        rows,
        omitted_rows: left_out.saturating_add(sum.left_out),
        fragmented: fragmented(agents),
        demands: sum.demands.0,
        omitted_pods: sum.demands.1,
    }
}

fn fragmented(agents: &[AgentNode<'_>]) -> Vec<(Arc<str>, FragmentedDevice)> {
    let current =
        agents.iter().filter(|agent| !agent.is_stale && !agent.seen.fragmented.is_empty());
    let mut all: Vec<(Arc<str>, FragmentedDevice)> = current
        .flat_map(|agent| {
            let name: Arc<str> = agent.name.into();
            agent.seen.fragmented.iter().map(move |device| (Arc::clone(&name), device.clone()))
        })
        .collect();
    all.sort_by_key(|(_, device)| Reverse(device.fragmentation.gain));
    all
}

fn count_cluster<'a>(
    sum: &mut CountBuilder<'a>,
    agents: &[AgentNode<'a>],
    snapshot: &'a ClusterSnapshot,
    names: &mut TypeResolver,
) {
    let by_name: BTreeMap<&str, &AgentNode<'_>> =
        agents.iter().map(|agent| (agent.name, agent)).collect();
    let held = snapshot.held();
    let nothing = Amounts::default();
    sum.holders = pending::collect_holders(snapshot);
    for node in snapshot.nodes.values() {
        let agent = by_name.get(node.name.as_str()).copied();
        let held = held.get(node.name.as_str()).unwrap_or(&nothing);
        let of = NodeContext { name: node.name.as_str().into(), node, held, agent };
        sum.add_node(&of, names);
    }
    for agent in agents.iter().filter(|agent| !snapshot.nodes.contains_key(agent.name)) {
        sum.add_agent_units(agent, Some(UnavailableReason::NoSuchNode));
    }
    sum.demands = demand::demands(&sum.members, snapshot, &held);
    sum.left_out = pending::add_pending(&mut sum.rows, &sum.members, snapshot);
}

/// Node of the cluster with its allocations and its agent.
struct NodeContext<'a, 'b> {
    node: &'a ClusterNode,
    name: Arc<str>,
    held: &'b Amounts,
    agent: Option<&'b AgentNode<'a>>,
}

impl NodeContext<'_, '_> {
    /// State of the agent that affects whether its node can take pods.
    fn agent_state(&self) -> AgentState {
        self.agent.map_or_else(AgentState::default, |agent| AgentState {
            is_stale: agent.is_stale,
            is_changing: agent.is_changing && !agent.is_stale,
        })
    }
}

/// Intermediate result of a count.
#[derive(Debug, Default)]
struct CountBuilder<'a> {
    rows: BTreeMap<RowKey, Row>,
    members: RowNodes<'a>,
    holders: HeldUnitsByNode<'a>,
    held_of_rows: BTreeMap<RowKey, HeldUnits<'a>>,
    /// Number of rows that were only requested by pods and are omitted because of the limit.
    left_out: usize,
    /// Pending pods, and the number of those omitted because of the limit.
    demands: (Vec<Demand>, u64),
}

impl<'a> CountBuilder<'a> {
    fn row(&mut self, key: &RowKey) -> &mut Row {
        self.rows.entry(key.clone()).or_insert_with(|| Row::new(key.clone()))
    }

    /// Sets the waiting time of rows without a free unit.
    fn set_wait_times(&mut self, past: Option<HoldingTimes<'_>>, names: &mut TypeResolver) {
        let past = past.map(|past| {
            past.history.classify(&self.members, names);
            (&*past.history, past.now)
        });
        for (key, held) in &self.held_of_rows {
            let row = self.rows.get_mut(key);
            if let Some(row) = row.filter(|row| row.free == 0) {
                row.wait = held.wait_time(|works| match past {
                    Some((history, now)) => history.estimate(key, works, now),
                    None => WaitEstimate::Unknown(Unknown::NoDeadline),
                });
            }
        }
    }

    /// Counts an agent's units where its node is not in the cluster data; `why` is the reason why all of them are
    /// unavailable.
    fn add_agent_units(&mut self, agent: &AgentNode<'_>, why: Option<UnavailableReason>) {
        let node: Arc<str> = agent.name.into();
        for units in &agent.seen.units {
            let row = self.row(&units.key());
            let free = if why.is_none() { units.free } else { 0 };
            let share = NodeShare::new(&node, units.total, free);
            row.add_units(share, units.memory, TypeSource::Agent);
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
            self.add_potential(&node, agent.seen, |resource| {
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
            let share = NodeShare::new(&agent.name.into(), units.total, 0);
            row.add_units(share, units.memory, TypeSource::Agent);
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
    fn add_node(&mut self, of: &NodeContext<'a, '_>, names: &mut TypeResolver) {
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
            self.add_potential(&of.name, agent.seen, |resource| {
                budget.get(resource).copied().unwrap_or(0)
            });
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
            let share = NodeShare::new(&agent.name.into(), units.total, free);
            row.add_units(share, units.memory, TypeSource::Agent);
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
        of: &NodeContext<'a, '_>,
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
        row.add_units(NodeShare::new(&of.name, capacity, free), memory, source);
        row.nodes = row.nodes.saturating_add(1);
        row.allocatable = row.allocatable.saturating_add(allocatable);
        row.taken = row.taken.saturating_add(taken);
        let missing =
            if is_gone { UnavailableReason::PluginMissing } else { UnavailableReason::Unhealthy };
        row.add_unavailable(UnavailableReason::Passthrough, passthrough);
        row.add_unavailable(missing, unhealthy.saturating_sub(passthrough));
        row.add_unavailable(UnavailableReason::UnhealthyAdvertised, faulty);
        row.add_unavailable(why.unwrap_or(UnavailableReason::PodsFull), rest.saturating_sub(free));
        let holders = self.holders.get(node.name.as_str());
        if let Some(holders) = holders.and_then(|all| all.get(resource)) {
            self.held_of_rows.entry(key.clone()).or_default().add_node(holders, why.is_none());
        }
        self.members.entry(key).or_default().push(node);
        free
    }

    /// Counts the units that idle devices of a node could become. `free` returns the free units of a resource on that
    /// node.
    fn add_potential(&mut self, node: &Arc<str>, seen: &AgentUnits, free: impl Fn(&str) -> u64) {
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
                    let more = NodeShare {
                        could_add: could.fits,
                        could_become: could.more,
                        ..NodeShare::new(node, 0, 0)
                    };
                    row.add_units(more, could.memory, TypeSource::Agent);
                }
            }
        }
    }
}

/// Returns `true` if units that result from repartitioning this node would be available to pods.
fn can_take_pods(of: &NodeContext<'_, '_>) -> bool {
    let NodeContext { node, held, .. } = of;
    unavailable_reason(node, NVIDIA_GPU_RESOURCE, of.agent_state()).is_none()
        && node.allocatable.get(PODS) > held.get(PODS)
}

/// Type of a resource's units on a node: of the devices that the agent reports behind it, otherwise of the node's
/// labels.
fn unit_type(
    of: &NodeContext<'_, '_>,
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

impl Availability {
    /// Returns `true` if the result changes with time alone.
    pub fn depends_on_time(&self) -> bool {
        self.rows.iter().any(Row::depends_on_time)
    }
}

impl CountBasis {
    /// Name in documents.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}
