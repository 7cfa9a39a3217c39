//! Allocations and usage by namespace and type over the whole fleet, decoded on request in small steps.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_model::id::{NodeName, PciAddress, TypeName};
use octavo_node::workload::{IdleHolder, TeamUsages, team_usage};
use octavo_stream::protocol::PartKey;
use octavo_stream::status;

use super::search::{BYTES_PER_STEP, MAX_BYTES_READ};
use crate::clock::Moment;
use crate::fleet::{Fleet, Node};

/// Maximum number of groups, because peers choose the namespaces and types.
const MAX_GROUPS: usize = 10_000;

/// Maximum number of allocations without a process that are listed: those with the most memory.
pub const MAX_IDLE_HOLDERS: usize = 200;

/// Summary in progress. Pure: the caller yields between the steps.
#[derive(Debug)]
pub struct Summary<'a> {
    nodes: Vec<&'a Arc<Node>>,
    next: usize,
    read: usize,
    most: usize,
    now: Moment,
    namespace: Option<&'a str>,
    totals: UsageTotals,
}

/// Result of a summary.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UsageTotals {
    /// Allocations and usage by namespace and type.
    pub teams: TeamUsages,
    /// Allocations without a process, in descending order of memory; at most [`MAX_IDLE_HOLDERS`].
    pub idle: Vec<(NodeName, IdleHolder)>,
    /// Number of allocations without a process that are not in `idle` because of that limit.
    pub omitted_idle: u64,
    /// Number of stale nodes, whose pods are not counted.
    pub stale_nodes: u64,
    /// Whether the limit of bytes or groups was exceeded.
    pub is_truncated: bool,
}

impl<'a> Summary<'a> {
    /// Prepares a summary of all nodes of `fleet`, without reading.
    pub fn new(fleet: &'a Fleet, now: Moment) -> Self {
        Self::within(fleet, now, MAX_BYTES_READ)
    }

    /// Like [`new`](Self::new), with a limit of bytes to read.
    pub(super) fn within(fleet: &'a Fleet, now: Moment, most: usize) -> Self {
        Self {
            nodes: fleet.nodes.iter().collect(),
            next: 0,
            read: 0,
            most,
            now,
            namespace: None,
            totals: UsageTotals::default(),
        }
    }

    /// Limits the summary to the pods of a namespace, if one is given.
    #[must_use]
    pub fn of_namespace(self, namespace: Option<&'a str>) -> Self {
        Self { namespace, ..self }
    }

    /// Reads some nodes; returns whether more have to be read.
    pub fn step(&mut self) -> bool {
        let pause = self.read.saturating_add(BYTES_PER_STEP);
        while self.read < pause {
            let Some(node) = self.nodes.get(self.next) else {
                return false;
            };
            if self.read >= self.most {
                self.totals.is_truncated = true;
                return false;
            }
            self.next = self.next.saturating_add(1);
            self.take(node);
        }
        true
    }

    /// Returns the result.
    pub fn totals(mut self) -> UsageTotals {
        self.totals.limit_idle();
        self.totals
    }

    fn take(&mut self, node: &Node) {
        let Some(part) = node.parts.get(PartKey::USAGE) else {
            return;
        };
        if node.freshness.is_stale(self.now) {
            self.totals.stale_nodes = self.totals.stale_nodes.saturating_add(1);
            return;
        }
        self.read = self.read.saturating_add(part.bytes().len());
        // The store accepts decodable parts only.
        let Ok(usage) = status::decode_usage(part) else {
            return;
        };
        let (teams, idle) = team_usage(&usage, &types(node));
        let namespace = self.namespace;
        let is_wanted = |name: &str| namespace.is_none_or(|wanted| wanted == name);
        for (group, usage) in teams.into_iter().filter(|((name, _), _)| is_wanted(name)) {
            let known = &mut self.totals.teams;
            if known.len() >= MAX_GROUPS && !known.contains_key(&group) {
                self.totals.is_truncated = true;
                continue;
            }
            known.entry(group).or_default().add_all(&usage);
        }
        let idle = idle.into_iter().filter(|holder| is_wanted(&holder.namespace));
        self.totals.idle.extend(idle.map(|holder| (node.name.clone(), holder)));
        if self.totals.idle.len() > MAX_IDLE_HOLDERS.saturating_mul(2) {
            self.totals.limit_idle();
        }
    }
}

impl UsageTotals {
    /// Sorts the allocations without a process by memory, then by name, and omits those beyond the limit.
    fn limit_idle(&mut self) {
        self.idle.sort_by(|(one_node, one), (other_node, other)| {
            let by_memory = other.memory_mib.cmp(&one.memory_mib);
            by_memory.then_with(|| one.cmp(other)).then_with(|| one_node.cmp(other_node))
        });
        let omitted = self.idle.drain(self.idle.len().min(MAX_IDLE_HOLDERS)..).count();
        self.omitted_idle =
            self.omitted_idle.saturating_add(u64::try_from(omitted).unwrap_or(u64::MAX));
    }
}

/// Types of the node's devices. The fleet stores devices in the order of the addresses in their parts' keys.
pub fn types(node: &Node) -> BTreeMap<PciAddress, TypeName> {
    let keys = status::device_parts(&node.parts);
    let mut addresses: Vec<PciAddress> =
        keys.filter_map(|(key, _)| status::device_address(key).ok()).collect();
    addresses.sort_unstable();
    let both = addresses.into_iter().zip(&node.devices);
    both.filter_map(|(pci, device)| Some((pci, device.type_name.clone()?))).collect()
}
