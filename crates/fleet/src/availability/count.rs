//! Counting: aggregates the rows of all nodes, then adds pending pods and waiting times.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr};

use super::demand::{self, Demand};
use super::history::{HoldingHistory, WaitEstimate};
use super::node_cache::{CountCache, NodeCache};
use super::node_rows::{AgentNode, NodeRows};
use super::pending::{self, HeldUnits};
use super::potential::FragmentedDevice;
use super::row::{Row, RowKey, Unknown, Wait};
use crate::cluster::ClusterSnapshot;

/// Availability of the fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Availability {
    /// Data that the counts are based on.
    pub basis: CountBasis,
    /// Rows ordered by type, resource and shape; at most [`MAX_ROWS`].
    pub rows: Vec<Row>,
    /// Number of rows omitted because of that limit.
    pub omitted_rows: usize,
    /// Names of the nodes that have units, in order, with their rows.
    pub nodes: Vec<(Arc<str>, Arc<NodeRows>)>,
    /// Devices whose idle instances prevent a larger one, with the names of their nodes; those with the largest gain first.
    /// Devices of outdated reports are excluded.
    pub fragmented: Vec<(Arc<str>, Arc<FragmentedDevice>)>,
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

/// Counts the units that `agents`, ordered by name, and the cluster report, each node once. The rows of nodes whose
/// inputs are those of the previous count come from `cache`; the result does not depend on it. Without `past`, waiting
/// times come from pod deadlines only.
pub fn count(
    agents: &[AgentNode<'_>],
    snapshot: Option<&ClusterSnapshot>,
    cache: &mut CountCache,
    past: Option<HoldingTimes<'_>>,
) -> Availability {
    cache.nodes.update(agents, snapshot, &mut cache.names);
    let nodes = &cache.nodes;
    let mut rows = nodes.sum();
    let mut demands = (Vec::new(), 0);
    let mut left_out = 0;
    if let Some(snapshot) = snapshot {
        let members = nodes.nodes_by_row();
        demands = demand::demands(&members, snapshot);
        left_out = pending::add_pending(&mut rows, &members, snapshot);
        let past = past.map(|past| {
            past.history.classify(|node, resource| nodes.row_key(node, resource), &mut cache.names);
            (&*past.history, past.now)
        });
        set_wait_times(&mut rows, nodes, past);
    } else {
        for row in rows.values_mut() {
            row.wait = Wait::Unknown(Unknown::NoCluster);
        }
    }
    let mut rows: Vec<Row> = rows.into_values().collect();
    for row in rows.iter_mut().filter(|row| row.free > 0) {
        row.wait = Wait::Now;
    }
    let excess = rows.len().saturating_sub(MAX_ROWS);
    if excess > 0 {
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
        omitted_rows: excess.saturating_add(left_out),
        nodes: nodes.rows_by_node(),
        fragmented: fragmented(agents),
        demands: demands.0,
        omitted_pods: demands.1,
    }
}

/// Sets the waiting time of rows without a free unit.
fn set_wait_times(
    rows: &mut BTreeMap<RowKey, Row>,
    nodes: &NodeCache,
    past: Option<(&HoldingHistory, i64)>,
) {
    let full =
        rows.values().filter(|row| row.free == 0).map(|row| (&row.key, HeldUnits::default()));
    let mut full: BTreeMap<&RowKey, HeldUnits<'_>> = full.collect();
    nodes.add_holders(&mut full);
    let waits = full.into_iter().map(|(key, held)| {
        let wait = held.wait_time(|works| match past {
            Some((history, now)) => history.estimate(key, works, now),
            None => WaitEstimate::Unknown(Unknown::NoDeadline),
        });
        (key.clone(), wait)
    });
    for (key, wait) in waits.collect::<Vec<_>>() {
        if let Some(row) = rows.get_mut(&key) {
            row.wait = wait;
        }
    }
}

fn fragmented(agents: &[AgentNode<'_>]) -> Vec<(Arc<str>, Arc<FragmentedDevice>)> {
    let current =
        agents.iter().filter(|agent| !agent.is_stale && !agent.seen.fragmented.is_empty());
    let mut all: Vec<(Arc<str>, Arc<FragmentedDevice>)> = current
        .flat_map(|agent| {
            let name: Arc<str> = agent.name.into();
            let devices = agent.seen.fragmented.iter();
            devices.map(move |device| (Arc::clone(&name), Arc::clone(device)))
        })
        .collect();
    all.sort_by_key(|(_, device)| Reverse(device.fragmentation.gain));
    all
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
