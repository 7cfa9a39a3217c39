//! Devices in numbers.

use super::device::{DeviceSummary, Occupancy, Partitions};
use crate::domain::id::TypeName;
use crate::domain::quantity::Mebibytes;

/// Devices, each counted once: `free`, `in_use`, `partitioned`, `unavailable`, `set_aside` and `unknown` add up to [`Counts::total`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Whole, without a process.
    pub free: u32,
    /// Whole, with a process.
    pub in_use: u32,
    /// Given out in parts.
    pub partitioned: u32,
    /// Of no use until somebody does something.
    pub unavailable: u32,
    /// Of no use to pods on purpose: set aside for virtual machines.
    pub set_aside: u32,
    /// Nobody can tell now; all devices of a stale node are.
    pub unknown: u32,
    /// The parts of those that are partitioned.
    pub partitions: Partitions,
}

/// The devices of one type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeCounts {
    /// The type; `None` for devices nobody knows.
    pub type_name: Option<TypeName>,
    /// Of how many a person said that they are of it; the catalogue says so of the others.
    pub by_hand: u32,
    /// Memory of one device; the least, should they differ.
    pub memory: Option<Mebibytes>,
    /// How many.
    pub counts: Counts,
}

impl Counts {
    /// All devices.
    pub fn total(self) -> u32 {
        [
            self.free,
            self.in_use,
            self.partitioned,
            self.unavailable,
            self.set_aside,
            self.unknown,
        ]
        .into_iter()
        .fold(0, u32::saturating_add)
    }

    /// With one more device.
    #[must_use]
    pub fn with(mut self, occupancy: Occupancy) -> Self {
        let place = match occupancy {
            Occupancy::Free => &mut self.free,
            Occupancy::InUse => &mut self.in_use,
            Occupancy::Partitioned(partitions) => {
                self.partitions = self.partitions.and(partitions);
                &mut self.partitioned
            }
            Occupancy::Unavailable => &mut self.unavailable,
            Occupancy::SetAside => &mut self.set_aside,
            Occupancy::Unknown => &mut self.unknown,
        };
        *place = place.saturating_add(1);
        self
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            free: self.free.saturating_add(other.free),
            in_use: self.in_use.saturating_add(other.in_use),
            partitioned: self.partitioned.saturating_add(other.partitioned),
            unavailable: self.unavailable.saturating_add(other.unavailable),
            set_aside: self.set_aside.saturating_add(other.set_aside),
            unknown: self.unknown.saturating_add(other.unknown),
            partitions: self.partitions.and(other.partitions),
        }
    }

    /// The same devices on a node that has not been heard of for too long: what they were is not what they are.
    #[must_use]
    pub fn stale(self) -> Self {
        Self {
            unknown: self.total(),
            ..Self::default()
        }
    }
}

impl TypeCounts {
    /// Devices by type, ordered by the type's name, those without one last.
    pub fn of(devices: &[DeviceSummary]) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for device in devices {
            let one = Self {
                type_name: device.type_name.clone(),
                by_hand: u32::from(device.by_hand),
                memory: device.memory,
                counts: Counts::default().with(device.occupancy),
            };
            Self::add(&mut all, &one);
        }
        all
    }

    /// Adds the devices of one node to those of many, keeping the order.
    pub fn add(all: &mut Vec<Self>, more: &Self) {
        match all.binary_search_by(|known| known.key().cmp(&more.key())) {
            Ok(at) => {
                if let Some(known) = all.get_mut(at) {
                    known.merge(more);
                }
            }
            Err(at) => all.insert(at, more.clone()),
        }
    }

    /// Adds devices of the same type.
    pub fn merge(&mut self, more: &Self) {
        self.counts = self.counts.and(more.counts);
        self.by_hand = self.by_hand.saturating_add(more.by_hand);
        self.memory = match (self.memory, more.memory) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }

    fn key(&self) -> (bool, Option<&TypeName>) {
        (self.type_name.is_none(), self.type_name.as_ref())
    }
}
