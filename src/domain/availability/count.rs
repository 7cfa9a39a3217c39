//! Counting: aggregates nodes into rows, then adds pending pods and waiting times.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::could::Could;
use super::history::{Guess, History};
use super::kind::{Kind, Names, PRODUCT, Source, memory};
use super::pending::{self, Held, HeldByNode, Members, held_names};
use super::row::{Key, OnNode, Row, Unknown, Wait};
use super::seen::{Seen, SeenUnits};
use super::shape::{Shape, is_accelerator};
use super::standing::{AgentWord, Why, standing};
use crate::domain::cluster::{Amounts, ClusterNode, PODS, Sights};
use crate::domain::id::TypeName;

/// Availability of the fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Availability {
    /// Data that the counts are based on.
    pub basis: Basis,
    /// Rows ordered by type, resource and shape; at most [`MOST_ROWS`].
    pub rows: Vec<Row>,
    /// Number of rows omitted because of that limit.
    pub left_out: usize,
}

/// Data that the counts are based on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
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
    pub seen: &'a Seen,
    /// True if the agent's last report is too old.
    pub is_stale: bool,
    /// True if the node is being repartitioned.
    pub is_changing: bool,
}

/// Resource whose usual toleration also allows pods that request a partition: only NVIDIA devices can be
/// repartitioned.
const WHOLE: &str = "nvidia.com/gpu";
/// Maximum number of rows, because types and resource names come from the cluster and are unbounded.
pub const MOST_ROWS: usize = 2048;

/// Past holding times, for estimates of the waiting time.
#[derive(Debug)]
pub struct Past<'a> {
    /// Recorded holding times.
    pub history: &'a mut History,
    /// Current time in seconds since 1970.
    pub now: i64,
}

/// Counts the units that `agents` and the cluster report, each node once. Without `past`, waiting times come from pod
/// deadlines only.
pub fn count(
    agents: &[AgentNode<'_>],
    sights: Option<&Sights>,
    names: &mut Names,
    past: Option<Past<'_>>,
) -> Availability {
    let mut sum = Sum::default();
    if let Some(sights) = sights {
        cluster(&mut sum, agents, sights, names);
        sum.waits(past, names);
    } else {
        for agent in agents {
            sum.seen(agent, agent.is_stale.then_some(Why::Stale));
        }
        for row in sum.rows.values_mut() {
            row.wait = Wait::Unknown(Unknown::NoCluster);
        }
    }
    let mut rows: Vec<Row> = sum.rows.into_values().collect();
    for row in rows.iter_mut().filter(|row| row.free > 0) {
        row.wait = Wait::Now;
    }
    let left_out = rows.len().saturating_sub(MOST_ROWS);
    if left_out > 0 {
        // Rows with nodes take precedence over rows that pods merely request.
        rows.sort_by_key(|row| row.nodes == 0);
        rows.truncate(MOST_ROWS);
        rows.sort_by(|one, other| one.key.cmp(&other.key));
    }
    Availability {
        basis: match sights {
            Some(_) => Basis::Cluster,
            None => Basis::Agents,
        },
        rows,
        left_out: left_out.saturating_add(sum.left_out),
    }
}

fn cluster<'a>(sum: &mut Sum<'a>, agents: &[AgentNode<'a>], sights: &'a Sights, names: &mut Names) {
    let by_name: BTreeMap<&str, &AgentNode<'_>> =
        agents.iter().map(|agent| (agent.name, agent)).collect();
    let held = sights.held();
    let nothing = Amounts::default();
    sum.holders = pending::holders(sights);
    for node in sights.nodes.values() {
        let agent = by_name.get(node.name.as_str()).copied();
        let held = held.get(node.name.as_str()).unwrap_or(&nothing);
        let of = Of {
            name: node.name.as_str().into(),
            node,
            held,
            agent,
        };
        sum.node(&of, names);
    }
    let absent = |agent: &&AgentNode<'_>| !sights.nodes.contains_key(agent.name);
    for agent in agents.iter().filter(absent) {
        sum.seen(agent, Some(Why::NoSuchNode));
    }
    sum.left_out = pending::add(&mut sum.rows, &sum.members, sights);
}

/// Node of the cluster with its allocations and its agent.
struct Of<'a, 'b> {
    node: &'a ClusterNode,
    name: Arc<str>,
    held: &'b Amounts,
    agent: Option<&'b AgentNode<'a>>,
}

impl Of<'_, '_> {
    /// State of the agent that affects whether its node can take pods.
    fn word(&self) -> AgentWord {
        self.agent
            .map_or_else(AgentWord::default, |agent| AgentWord {
                is_stale: agent.is_stale,
                is_changing: agent.is_changing && !agent.is_stale,
            })
    }
}

/// Intermediate result of a count.
#[derive(Debug, Default)]
struct Sum<'a> {
    rows: BTreeMap<Key, Row>,
    members: Members<'a>,
    holders: HeldByNode<'a>,
    held_of_rows: BTreeMap<Key, Held<'a>>,
    /// Number of rows that were only requested by pods and are omitted because of the limit.
    left_out: usize,
}

impl<'a> Sum<'a> {
    fn row(&mut self, key: &Key) -> &mut Row {
        let fresh = || Row::new(key.clone());
        self.rows.entry(key.clone()).or_insert_with(fresh)
    }

    /// Sets the waiting time of rows without a free unit.
    fn waits(&mut self, past: Option<Past<'_>>, names: &mut Names) {
        let past = past.map(|past| {
            past.history.learn(&self.members, names);
            (&*past.history, past.now)
        });
        for (key, held) in &self.held_of_rows {
            let row = self.rows.get_mut(key);
            if let Some(row) = row.filter(|row| row.free == 0) {
                row.wait = held.wait(|works| match past {
                    Some((history, now)) => history.guess(key, works, now),
                    None => Guess::Unknown(Unknown::NoDeadline),
                });
            }
        }
    }

    /// Counts an agent's units where its node is not in the cluster data; `why` is the reason why all of them are
    /// unavailable.
    fn seen(&mut self, agent: &AgentNode<'_>, why: Option<Why>) {
        let node: Arc<str> = agent.name.into();
        for units in &agent.seen.units {
            let row = self.row(&units.key());
            let free = if why.is_none() { units.free } else { 0 };
            row.is_had_by(OnNode::has(&node, units.total, free));
            row.nodes = row.nodes.saturating_add(1);
            row.has_memory(units.memory);
            row.sources.insert(Source::Agent);
            row.capacity = row.capacity.saturating_add(units.total);
            let sound = units.total.saturating_sub(units.broken);
            let sound = sound.saturating_sub(units.set_aside);
            row.is_of_no_use(Why::SetAside, units.set_aside);
            if let Some(why) = why {
                row.is_of_no_use(Why::Unhealthy, units.broken);
                row.is_of_no_use(why, sound);
                continue;
            }
            row.allocatable = row.allocatable.saturating_add(sound);
            row.taken = row.taken.saturating_add(units.in_use);
            row.free = row.free.saturating_add(units.free);
            row.is_of_no_use(Why::Unhealthy, units.broken);
            row.is_of_no_use(Why::UseUnknown, units.unknown());
        }
        if why.is_none() {
            let idle = |resource: &str| {
                let mut all = agent.seen.units.iter();
                let found = all.find(|units| units.resource == resource);
                found.map_or(0, |units| units.free)
            };
            self.could(&node, agent.seen, idle);
        }
    }

    /// Counts an agent's units on a node that offers no accelerator resource. Units that pods still hold are already
    /// counted.
    fn unoffered(&mut self, agent: &AgentNode<'_>, held: &Amounts) {
        for units in &agent.seen.units {
            let held = held.get(&units.resource);
            let row = self.row(&units.key());
            row.nodes = row.nodes.saturating_add(u32::from(held == 0));
            row.has_memory(units.memory);
            row.sources.insert(Source::Agent);
            let rest = units.total.saturating_sub(held);
            let set_aside = units.set_aside.min(rest);
            let rest = rest.saturating_sub(set_aside);
            let broken = units.broken.min(rest);
            row.is_of_no_use(Why::SetAside, set_aside);
            row.capacity = row.capacity.saturating_add(units.total);
            row.is_had_by(OnNode::has(&agent.name.into(), units.total, 0));
            row.is_of_no_use(Why::Unhealthy, broken);
            row.is_of_no_use(Why::PluginMissing, rest.saturating_sub(broken));
        }
    }

    /// Counts one node of the cluster.
    fn node(&mut self, of: &Of<'a, '_>, names: &mut Names) {
        let node = of.node;
        let told = node.capacity.iter().chain(node.allocatable.iter());
        let mut resources: BTreeSet<&str> = told
            .filter(|(name, count)| *count > 0 && is_accelerator(name))
            .map(|(name, _)| name)
            .collect();
        let is_offered = !resources.is_empty();
        resources.extend(held_names(of.held.devices()));
        let mut budget: BTreeMap<&str, u64> = BTreeMap::new();
        for resource in resources {
            let free = self.resource(of, resource, names);
            budget.insert(resource, free);
        }
        let Some(agent) = of.agent.filter(|agent| !agent.is_stale) else {
            return;
        };
        if is_offered && can_take_pods(of) {
            self.could(&of.name, agent.seen, |resource| {
                budget.get(resource).copied().unwrap_or(0)
            });
        } else if !is_offered {
            self.unoffered(agent, of.held);
        }
    }

    /// Counts one resource of one node and returns its free units.
    fn resource(&mut self, of: &Of<'a, '_>, resource: &str, names: &mut Names) -> u64 {
        let (node, held, agent) = (of.node, of.held, of.agent);
        let shape = Shape::of(resource, node.label(PRODUCT));
        let (kind, source) = whose(of, resource, names);
        let is_whole = matches!(shape, Shape::Device | Shape::Shared);
        let seen = || {
            agent
                .into_iter()
                .flat_map(|agent| agent.seen.of_resource(resource))
        };
        // Devices of several types can be behind one resource.
        let told = seen().filter_map(|units| units.memory).min();
        let memory = told.or_else(|| memory(node, resource, is_whole));
        let key = Key {
            kind,
            resource: resource.to_owned(),
            shape,
        };
        let why = standing(node, resource, of.word());
        let allocatable = node.allocatable.get(resource);
        let capacity = node.capacity.get(resource).max(allocatable);
        let taken = held.get(resource);
        let rest = allocatable.saturating_sub(taken);
        let places = node.allocatable.get(PODS).saturating_sub(held.get(PODS));
        let free = if why.is_some() { 0 } else { rest.min(places) };
        let unhealthy = capacity.saturating_sub(allocatable.max(taken));
        // A missing device plugin takes away all units; one that reports an unhealthy device leaves the others.
        let is_gone = allocatable == 0 && seen().any(SeenUnits::has_usable);
        let set_aside = agent.map_or(0, |agent| agent.seen.set_aside(resource, capacity));
        let set_aside = set_aside.min(unhealthy);
        let row = self.row(&key);
        row.nodes = row.nodes.saturating_add(1);
        row.has_memory(memory);
        row.sources.insert(source);
        row.capacity = row.capacity.saturating_add(capacity);
        row.allocatable = row.allocatable.saturating_add(allocatable);
        row.taken = row.taken.saturating_add(taken);
        row.free = row.free.saturating_add(free);
        row.is_had_by(OnNode::has(&of.name, capacity, free));
        let missing = if is_gone {
            Why::PluginMissing
        } else {
            Why::Unhealthy
        };
        row.is_of_no_use(Why::SetAside, set_aside);
        row.is_of_no_use(missing, unhealthy.saturating_sub(set_aside));
        row.is_of_no_use(why.unwrap_or(Why::PodsFull), rest.saturating_sub(free));
        let holders = self.holders.get(node.name.as_str());
        if let Some(holders) = holders.and_then(|all| all.get(resource)) {
            let sum = self.held_of_rows.entry(key.clone()).or_default();
            sum.take(holders, why.is_none());
        }
        self.members.entry(key).or_default().push(node);
        free
    }

    /// Counts the units that idle devices of a node could become. `free` returns the free units of a resource on that
    /// node.
    fn could(&mut self, node: &Arc<str>, seen: &Seen, free: impl Fn(&str) -> u64) {
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
                    self.more(node, type_name.as_ref(), could);
                }
            }
        }
    }

    fn more(&mut self, node: &Arc<str>, type_name: Option<&TypeName>, could: &Could) {
        let row = self.row(&Key {
            kind: type_name.map_or(Kind::Unknown, |name| Kind::Known(name.clone())),
            resource: could.resource.clone(),
            shape: could.shape.clone(),
        });
        row.has_memory(could.memory);
        row.sources.insert(Source::Agent);
        row.could_become = row.could_become.saturating_add(could.more);
        row.is_had_by(OnNode {
            could_become: could.more,
            ..OnNode::has(node, 0, 0)
        });
    }
}

/// Returns `true` if units that result from repartitioning this node would be available to pods.
fn can_take_pods(of: &Of<'_, '_>) -> bool {
    let Of { node, held, .. } = of;
    standing(node, WHOLE, of.word()).is_none() && node.allocatable.get(PODS) > held.get(PODS)
}

/// Type of a resource's units on a node: of the devices that the agent reports behind it, otherwise of the node's
/// labels.
fn whose(of: &Of<'_, '_>, resource: &str, names: &mut Names) -> (Kind, Source) {
    let Some(agent) = of.agent.filter(|agent| !agent.seen.is_empty()) else {
        return names.of_labels(of.node);
    };
    let found = agent.seen.types(resource);
    let several = found.len() > 1;
    match found.into_iter().next().flatten() {
        _ if several => (Kind::Mixed, Source::Agent),
        Some(type_name) => (Kind::Known(type_name), Source::Agent),
        None => names.of_labels(of.node),
    }
}

impl Availability {
    /// Returns `true` if the result changes with time alone.
    pub fn depends_on_time(&self) -> bool {
        self.rows.iter().any(Row::depends_on_time)
    }
}

impl Basis {
    /// Name in documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::Agents => "agents",
        }
    }
}
