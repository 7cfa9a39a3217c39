//! How much of which type each namespace has, over the fleet: read when asked, some nodes at a time, as rows are.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::aggregator::clock::Moment;
use crate::aggregator::fleet::{Fleet, Node};
use crate::domain::id::{PciAddress, TypeName};
use crate::domain::stream::PartKey;
use crate::domain::workload::{Holdings, holdings};
use crate::wire::status;

use super::search::{AT_ONCE, MOST_READ};

/// Most groups that are told: namespaces and types are what peers say.
const MOST_GROUPS: usize = 10_000;

/// A summary that is being made. Pure: whoever makes it lets others have their turn between the steps.
#[derive(Debug)]
pub struct Summary<'a> {
    nodes: Vec<&'a Arc<Node>>,
    next: usize,
    read: usize,
    most: usize,
    now: Moment,
    told: Told,
}

/// What it comes to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Told {
    /// By namespace and type.
    pub holdings: Holdings,
    /// Nodes that were not heard of for too long: what they said of their pods is not counted.
    pub stale: u64,
    /// Whether there was more than is read or told at once.
    pub is_cut: bool,
}

impl<'a> Summary<'a> {
    /// Of all nodes of `fleet`. Nothing is read yet.
    pub fn new(fleet: &'a Fleet, now: Moment) -> Self {
        Self::within(fleet, now, MOST_READ)
    }

    /// The same, which stops when it has read so many bytes.
    pub(super) fn within(fleet: &'a Fleet, now: Moment, most: usize) -> Self {
        Self {
            nodes: fleet.nodes.iter().collect(),
            next: 0,
            read: 0,
            most,
            now,
            told: Told::default(),
        }
    }

    /// Reads some nodes. Whether there are more to be read.
    pub fn step(&mut self) -> bool {
        let pause = self.read.saturating_add(AT_ONCE);
        while self.read < pause {
            let Some(node) = self.nodes.get(self.next) else {
                return false;
            };
            if self.read >= self.most {
                self.told.is_cut = true;
                return false;
            }
            self.next = self.next.saturating_add(1);
            self.take(node);
        }
        true
    }

    /// What was read.
    pub fn told(self) -> Told {
        self.told
    }

    fn take(&mut self, node: &Node) {
        let Some(part) = node.parts.get(PartKey::usage().as_str()) else {
            return;
        };
        if node.freshness.is_stale(self.now) {
            self.told.stale = self.told.stale.saturating_add(1);
            return;
        }
        self.read = self.read.saturating_add(part.bytes().len());
        // What cannot be read was never taken in, so there is nothing then.
        let Ok(usage) = status::decode_usage(part) else {
            return;
        };
        for (group, held) in holdings(&usage, &types(node)) {
            let known = &mut self.told.holdings;
            if known.len() >= MOST_GROUPS && !known.contains_key(&group) {
                self.told.is_cut = true;
                continue;
            }
            known.entry(group).or_default().add(&held);
        }
    }
}

/// The types of its devices. Those that the fleet keeps are in the order of the addresses that their parts are called by.
pub(in crate::aggregator) fn types(node: &Node) -> BTreeMap<PciAddress, TypeName> {
    let keys = status::device_parts(&node.parts);
    let mut addresses: Vec<PciAddress> = keys
        .filter_map(|(key, _)| status::device_address(key).ok())
        .collect();
    addresses.sort_unstable();
    let both = addresses.into_iter().zip(&node.devices);
    both.filter_map(|(pci, device)| Some((pci, device.type_name.clone()?)))
        .collect()
}
