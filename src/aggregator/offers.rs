//! What the fleet has, as offers for matching: whole devices, MIG partitions, and devices given out by turns.
//!
//! ```text
//! counted.rs   of a cluster that is followed: what availability counts, by the scheduler's rules
//! parts.rs     of agents alone: which MIG partitions a node has
//! through.rs   hardware profiles as ways to either
//! ```
//!
//! Called by the REST API, a step at a time: the thread that answers is others' too. What is free is what agents see: a device
//! without a process, of a node that is heard of. Which partitions a node has is read from its parts once for each version of
//! the node, because a fleet is asked more often than it is repartitioned.

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

/// Nodes that are looked at between two pauses.
const AT_ONCE: usize = 64;

/// Offers that are being gathered.
#[derive(Debug)]
pub struct Gathering<'f> {
    nodes: Vec<&'f Arc<Node>>,
    shelf: &'f Shelf,
    isolation: Isolation,
    now: Moment,
    drafts: BTreeMap<(TypeName, Shape), Draft>,
}

/// What is known so far of one offer.
#[derive(Debug, Default)]
struct Draft {
    memory: Option<Bytes>,
    total: u64,
    most: u32,
    free: u64,
    free_on_one: u32,
    /// Units of which nobody can tell.
    untold: u64,
    /// The node on which most would be free after a change.
    change: Option<(u32, String)>,
    mixed: bool,
}

/// Units of one kind on one node.
#[derive(Debug, Default, Clone, Copy)]
struct OnNode {
    memory: Option<Bytes>,
    units: u32,
    lost: u32,
    free: u32,
    untold: u32,
    /// Devices that are partitioned, and nobody has a part of them.
    idle: u32,
}

impl<'f> Gathering<'f> {
    /// From a fleet as it is at `now`, for pods that are so far apart from others.
    pub fn new(fleet: &'f Fleet, shelf: &'f Shelf, isolation: Isolation, now: Moment) -> Self {
        let mut nodes: Vec<&Arc<Node>> = fleet.nodes.iter().collect();
        // They are taken from the end.
        nodes.reverse();
        Self {
            nodes,
            shelf,
            isolation,
            now,
            drafts: BTreeMap::new(),
        }
    }

    /// Looks at some more nodes; says whether there are more.
    pub fn step(&mut self) -> bool {
        for _ in 0..AT_ONCE {
            match self.nodes.pop() {
                Some(node) => self.look(node),
                None => return false,
            }
        }
        true
    }

    /// What was gathered, with what it costs.
    pub fn offers(self, prices: Option<&PriceBook>, request: &Request) -> Vec<Offer> {
        let drafts = self.drafts.into_iter();
        let offers = drafts.map(|((type_name, shape), draft)| {
            // What a part or a turn costs is nobody's to guess from what the whole does.
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
            // A process on it says nothing of how many more may come.
            self.untold = self.untold.saturating_add(u64::from(usable));
            return;
        }
        self.untold = self.untold.saturating_add(u64::from(on.untold));
        self.free = self.free.saturating_add(u64::from(on.free));
        self.free_on_one = self.free_on_one.max(on.free);
        let after = on.free.saturating_add(on.idle);
        // Of those alike the first, and nodes come by name.
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

/// For who may not be told of nodes.
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
