//! Capacity of the fleet as offers for matching: whole devices, MIG partitions, and time-sliced devices.
//!
//! ```text
//! counted.rs   offers of a watched cluster, from the availability count
//! parts.rs     MIG partitions of a node, for fleets without a watched cluster
//! through.rs   offers that hardware profiles lead to
//! ```
//!
//! The REST API calls this in small steps, because other tasks share its thread. Without a watched cluster, a device is
//! free if it has no process and its node is not stale. A node's partitions are decoded once per version of the node,
//! because offers are requested more often than nodes are repartitioned.

mod counted;
mod parts;
mod through;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use self::counted::{Counts, left_out};
use self::parts::Part;
pub use self::parts::Shelf;
pub use self::through::Ground;
use super::clock::Moment;
use super::fleet::{Fleet, Node};
use crate::domain::fleet::{ByTurns, DeviceSummary, Occupancy};
use crate::domain::id::TypeName;
use crate::domain::matching::{Bytes, Change, Free, Isolation, Offer, Request, Shape, Traits};
use crate::domain::price::PriceBook;

/// Nodes per step.
const AT_ONCE: usize = 64;

/// Offers being collected, step by step.
#[derive(Debug)]
pub struct Gathering<'f> {
    nodes: Vec<&'f Arc<Node>>,
    shelf: &'f Shelf,
    isolation: Isolation,
    now: Moment,
    drafts: BTreeMap<(TypeName, Shape), Draft>,
}

/// Totals of one offer, collected so far.
#[derive(Debug, Default)]
struct Draft {
    memory: Option<Bytes>,
    total: u64,
    most: u32,
    free: u64,
    free_on_one: u32,
    /// Units whose usage is unknown.
    untold: u64,
    /// The node that would have the most free units after a change, and their number.
    change: Option<(u32, String)>,
    mixed: bool,
}

/// Units of one type on one node.
#[derive(Debug, Default, Clone, Copy)]
struct OnNode {
    memory: Option<Bytes>,
    units: u32,
    lost: u32,
    free: u32,
    untold: u32,
    /// Partitioned devices without an allocated partition.
    idle: u32,
}

impl<'f> Gathering<'f> {
    /// Starts with the nodes of `fleet`, as of `now`, for pods with this isolation.
    pub fn new(fleet: &'f Fleet, shelf: &'f Shelf, isolation: Isolation, now: Moment) -> Self {
        let mut nodes: Vec<&Arc<Node>> = fleet.nodes.iter().collect();
        // Nodes are popped from the end.
        nodes.reverse();
        Self {
            nodes,
            shelf,
            isolation,
            now,
            drafts: BTreeMap::new(),
        }
    }

    /// Adds some more nodes; returns whether any remain.
    pub fn step(&mut self) -> bool {
        for _ in 0..AT_ONCE {
            match self.nodes.pop() {
                Some(node) => self.look(node),
                None => return false,
            }
        }
        true
    }

    /// Returns the collected offers with prices.
    pub fn offers(self, prices: Option<&PriceBook>, request: &Request) -> Vec<Offer> {
        let drafts = self.drafts.into_iter();
        let offers = drafts.map(|((type_name, shape), draft)| {
            // Prices are known for whole devices only; the price of a partition or a time slice cannot be derived from
            // them.
            let price = prices
                .filter(|_| shape == Shape::Whole)
                .and_then(|book| book.price(&type_name, request.option));
            Offer {
                price,
                ..draft.offer(type_name, shape)
            }
        });
        offers.collect()
    }

    fn look(&mut self, node: &Arc<Node>) {
        let stale = node.freshness.is_stale(self.now);
        let turns = node.summary.given.as_ref().map(|given| given.by_turns);
        let turns = turns.unwrap_or_default();
        let shape = match turns {
            ByTurns::All => Shape::Shared,
            ByTurns::None | ByTurns::Some => Shape::Whole,
        };
        let mut kinds: BTreeMap<&TypeName, OnNode> = BTreeMap::new();
        for device in &node.devices {
            if let Some(name) = &device.type_name {
                kinds.entry(name).or_default().add(device, stale);
            }
        }
        let has_parts = is_partitioned(node);
        for (name, on_node) in kinds {
            let draft = self
                .drafts
                .entry((name.clone(), shape.clone()))
                .or_default();
            draft.add(on_node, node, shape == Shape::Shared);
            draft.mixed |= turns == ByTurns::Some;
        }
        if self.isolation != Isolation::Exclusive && has_parts && turns == ByTurns::None {
            for part in self.shelf.parts(node).iter() {
                let key = (part.type_name.clone(), Shape::Mig(part.profile.clone()));
                let draft = self.drafts.entry(key).or_default();
                draft.add(OnNode::of(part, stale), node, false);
            }
        }
    }
}

fn is_partitioned(node: &Node) -> bool {
    let mut devices = node.devices.iter();
    devices.any(|device| matches!(device.occupancy, Occupancy::Partitioned(_)))
}

impl OnNode {
    fn add(&mut self, device: &DeviceSummary, stale: bool) {
        let memory = device
            .memory
            .filter(|memory| memory.get() > 0)
            .map(Bytes::from);
        self.memory = least(self.memory, memory);
        let place = match device.occupancy {
            _ if stale => &mut self.untold,
            Occupancy::Free => &mut self.free,
            Occupancy::Partitioned(parts) if parts.in_use == 0 => &mut self.idle,
            Occupancy::InUse | Occupancy::Partitioned(_) => &mut self.units,
            Occupancy::Unavailable | Occupancy::SetAside => &mut self.lost,
            Occupancy::Unknown => &mut self.untold,
        };
        *place = place.saturating_add(1);
    }

    fn of(part: &Part, stale: bool) -> Self {
        let (taken, free) = if stale {
            (0, 0)
        } else {
            (part.count.saturating_sub(part.free), part.free)
        };
        Self {
            memory: part.memory,
            units: taken,
            free,
            untold: if stale { part.count } else { 0 },
            ..Self::default()
        }
    }

    fn usable(self) -> u32 {
        [self.units, self.free, self.untold, self.idle]
            .into_iter()
            .fold(0, u32::saturating_add)
    }
}

impl Draft {
    fn add(&mut self, on: OnNode, node: &Node, by_turns: bool) {
        self.memory = least(self.memory, on.memory);
        let usable = on.usable();
        self.total = self
            .total
            .saturating_add(u64::from(usable))
            .saturating_add(u64::from(on.lost));
        self.most = self.most.max(usable);
        if by_turns {
            // A process on a time-sliced device does not show how many more slices are free.
            self.untold = self.untold.saturating_add(u64::from(usable));
            return;
        }
        self.untold = self.untold.saturating_add(u64::from(on.untold));
        self.free = self.free.saturating_add(u64::from(on.free));
        self.free_on_one = self.free_on_one.max(on.free);
        let after = on.free.saturating_add(on.idle);
        // Ties go to the first node by name.
        let better = self.change.as_ref().is_none_or(|(most, _)| after > *most);
        if on.idle > 0 && better {
            self.change = Some((after, node.name.to_string()));
        }
    }

    fn offer(self, type_name: TypeName, shape: Shape) -> Offer {
        let name = match &shape {
            Shape::Whole => type_name.to_string(),
            Shape::Mig(part) | Shape::Part(part) => format!("{type_name}/{part}"),
            Shape::Shared => format!("{type_name}/shared"),
        };
        let nobody_tells = self.untold > 0 && self.free == 0;
        let free = if nobody_tells {
            Free::Unknown
        } else {
            Free::Known {
                total: self.free,
                on_one_node: self.free_on_one,
            }
        };
        let mut notes = Vec::new();
        if self.untold > 0 && !nobody_tells {
            notes.push(format!(
                "of {} nobody can tell now whether they are free: their node is stale, or its driver does not say",
                self.untold
            ));
        }
        if self.mixed {
            notes.push(
                "some of them are given out by turns, and which is not known here".to_owned(),
            );
        }
        let change = self.change.map(|(on_one_node, node)| Change {
            on_one_node,
            how: format!("by repartitioning {node}"),
        });
        Offer {
            name,
            traits: Traits::of(&type_name),
            type_name,
            shape,
            memory: self.memory,
            most_on_a_node: self.most,
            total: self.total,
            free,
            could_become: change,
            price: None,
            notes,
            resource: None,
            profile: None,
            others: Vec::new(),
            lacks_profile: None,
        }
    }
}

/// Removes node names, for callers who are not allowed to list nodes.
pub fn name_no_node(offers: &mut [Offer]) {
    let changes = offers.iter_mut();
    for change in changes.filter_map(|offer| offer.could_become.as_mut()) {
        "by repartitioning a node".clone_into(&mut change.how);
    }
}

fn least(one: Option<Bytes>, other: Option<Bytes>) -> Option<Bytes> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
