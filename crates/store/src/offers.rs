//! Capacity of the fleet as offers for matching: whole devices, MIG partitions, and time-sliced devices.
//!
//! ```text
//! cluster_offers.rs   offers of a watched cluster, from the availability count
//! partition_cache.rs  MIG partitions of a node, for fleets without a watched cluster
//! profile_offers.rs   offers that hardware profiles lead to
//! ```
//!
//! The REST API calls this in small steps, because other tasks share its thread. Without a watched cluster, a device is
//! free if it has no process and its node is not stale. A node's partitions are decoded once per version of the node,
//! because offers are requested more often than nodes are repartitioned.

mod cluster_offers;
mod partition_cache;
mod profile_offers;

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_fleet::matching::{Bytes, Isolation, Offer, Request, Shape};
use octavo_fleet::price::CurrentPrices;
use octavo_fleet::summary::{DeviceSummary, Occupancy, TimeSlicingExtent};
use octavo_model::id::TypeName;

pub use self::cluster_offers::{ClusterOffers, unoffered_units_note};
use self::cluster_offers::{OfferFigures, UnitCounts};
use self::partition_cache::NodePartitions;
pub use self::partition_cache::PartitionCache;
pub use self::profile_offers::OfferSource;
use super::clock::Moment;
use super::fleet::{Fleet, Node};

/// Nodes per step.
const NODES_PER_STEP: usize = 64;

/// Offers being collected, step by step.
#[derive(Debug)]
pub struct OfferCollector<'f> {
    nodes: Vec<&'f Arc<Node>>,
    partitions: &'f PartitionCache,
    isolation: Isolation,
    now: Moment,
    drafts: BTreeMap<(TypeName, Shape), OfferTotals>,
}

/// Totals of one offer, collected so far.
#[derive(Debug, Default)]
struct OfferTotals {
    memory: Option<Bytes>,
    figures: OfferFigures,
    /// Units whose usage is unknown.
    unknown: u64,
    mixed: bool,
}

/// Units of one type on one node.
#[derive(Debug, Default, Clone, Copy)]
struct NodeUnits {
    memory: Option<Bytes>,
    units: u32,
    unavailable: u32,
    free: u32,
    unknown: u32,
    /// Partitioned devices without an allocated partition.
    idle: u32,
}

impl<'f> OfferCollector<'f> {
    /// Starts with the nodes of `fleet`, as of `now`, for pods with this isolation.
    pub fn new(
        fleet: &'f Fleet,
        partitions: &'f PartitionCache,
        isolation: Isolation,
        now: Moment,
    ) -> Self {
        let mut nodes: Vec<&Arc<Node>> = fleet.local_nodes().collect();
        // Nodes are popped from the end.
        nodes.reverse();
        Self { nodes, partitions, isolation, now, drafts: BTreeMap::new() }
    }

    /// Adds some more nodes; returns whether any remain.
    pub fn step(&mut self) -> bool {
        for _ in 0..NODES_PER_STEP {
            match self.nodes.pop() {
                Some(node) => self.add_node(node),
                None => return false,
            }
        }
        true
    }

    /// Returns the collected offers with prices.
    pub fn offers(self, prices: Option<&CurrentPrices>, request: &Request) -> Vec<Offer> {
        let drafts = self.drafts.into_iter();
        let offers = drafts.map(|((type_name, shape), draft)| {
            // Prices are known for whole devices only; the price of a partition or a time slice cannot be derived from
            // them.
            let price = prices
                .filter(|_| shape == Shape::Whole)
                .and_then(|price_list| price_list.price(&type_name, request.purchase_option));
            Offer { price, ..draft.offer(type_name, shape) }
        });
        offers.collect()
    }

    fn add_node(&mut self, node: &Arc<Node>) {
        let stale = node.freshness.is_stale(self.now);
        let turns = node.summary.sharing_status.as_ref().map(|sharing| sharing.time_slicing);
        let turns = turns.unwrap_or_default();
        let shape = match turns {
            TimeSlicingExtent::All => Shape::Shared,
            TimeSlicingExtent::None | TimeSlicingExtent::Some => Shape::Whole,
        };
        let mut kinds: BTreeMap<&TypeName, NodeUnits> = BTreeMap::new();
        for device in &node.devices {
            if let Some(name) = &device.type_name {
                kinds.entry(name).or_default().add(device, stale);
            }
        }
        let has_parts = is_partitioned(node);
        for (name, on_node) in kinds {
            let draft = self.drafts.entry((name.clone(), shape.clone())).or_default();
            draft.add(on_node, node, shape == Shape::Shared);
            draft.mixed |= turns == TimeSlicingExtent::Some;
        }
        if self.isolation != Isolation::Exclusive && has_parts && turns == TimeSlicingExtent::None {
            for part in self.partitions.parts(node).iter() {
                let key = (part.type_name.clone(), Shape::Mig(part.profile.clone()));
                let draft = self.drafts.entry(key).or_default();
                draft.add(NodeUnits::of(part, stale), node, false);
            }
        }
    }
}

fn is_partitioned(node: &Node) -> bool {
    let mut devices = node.devices.iter();
    devices.any(|device| matches!(device.occupancy, Occupancy::Partitioned(_)))
}

impl NodeUnits {
    fn add(&mut self, device: &DeviceSummary, stale: bool) {
        let memory = device.memory.filter(|memory| memory.get() > 0).map(Bytes::from);
        self.memory = min_memory(self.memory, memory);
        let place = match device.occupancy {
            _ if stale => &mut self.unknown,
            Occupancy::Free => &mut self.free,
            Occupancy::Partitioned(parts) if parts.in_use == 0 => &mut self.idle,
            Occupancy::InUse | Occupancy::Partitioned(_) => &mut self.units,
            Occupancy::Unavailable | Occupancy::Passthrough => &mut self.unavailable,
            Occupancy::Unknown => &mut self.unknown,
        };
        *place = place.saturating_add(1);
    }

    fn of(part: &NodePartitions, stale: bool) -> Self {
        let memory = part.memory;
        if stale {
            return Self { memory, unknown: part.count, ..Self::default() };
        }
        let units = part.count.saturating_sub(part.free);
        Self { memory, units, free: part.free, ..Self::default() }
    }

    fn usable(self) -> u32 {
        [self.units, self.free, self.unknown, self.idle].into_iter().fold(0, u32::saturating_add)
    }
}

impl OfferTotals {
    fn add(&mut self, on: NodeUnits, node: &Node, by_turns: bool) {
        self.memory = min_memory(self.memory, on.memory);
        let most = u64::from(on.usable());
        let total = most.saturating_add(on.unavailable.into());
        let (unknown, free, more) = if by_turns {
            // A process on a time-sliced device does not show how many more slices are free.
            (most, 0, 0)
        } else {
            (on.unknown.into(), on.free.into(), on.idle.into())
        };
        self.unknown = self.unknown.saturating_add(unknown);
        self.figures.add(node.name.as_str(), UnitCounts { total, most, free, more });
    }

    fn offer(self, type_name: TypeName, shape: Shape) -> Offer {
        let name = match &shape {
            Shape::Whole => type_name.to_string(),
            Shape::Mig(part) | Shape::Part(part) => format!("{type_name}/{part}"),
            Shape::Shared => format!("{type_name}/shared"),
        };
        let memory = self.memory;
        let mut offer =
            self.figures.apply_to(Offer { memory, ..Offer::new(name, type_name, shape) });
        if self.unknown > 0 && offer.free.is_some_and(|free| free.total == 0) {
            offer.free = None;
        } else if self.unknown > 0 {
            offer.notes.push(format!(
                "{} of unknown availability: the node is stale, or its driver does not report usage",
                self.unknown
            ));
        }
        if self.mixed {
            let note = "some of these devices are time-sliced; which ones is unknown";
            offer.notes.push(note.to_owned());
        }
        offer
    }
}

/// Removes node names, for callers who are not allowed to list nodes.
pub fn redact_node_names(offers: &mut [Offer]) {
    let changes = offers.iter_mut();
    for change in changes.filter_map(|offer| offer.after_change.as_mut()) {
        "by repartitioning a node".clone_into(&mut change.how);
    }
}

fn min_memory(one: Option<Bytes>, other: Option<Bytes>) -> Option<Bytes> {
    one.into_iter().chain(other).min()
}
