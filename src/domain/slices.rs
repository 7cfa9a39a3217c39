//! The memory slices of one device, from left to right: who has which, and which are free.
//!
//! It is what a picture of a device is drawn from, in a terminal or on a page. A driver that reports what makes no sense,
//! such as two instances in one slice, still gets one owner for each slice: the first keeps it, and the other is hidden.

use std::collections::BTreeMap;

use crate::domain::inventory::{Completeness, Condition, Device, GpuInstance, MigMode, MigState};

/// More slices than any device has are a driver's mistake: [`Untold::TooMany`].
const MOST_SLICES: u32 = 24;

/// What can be drawn of a device's memory slices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Slices<'a> {
    /// Nothing: the device cannot be partitioned, or nobody says whether it can.
    NotPartitionable,
    /// Nothing, although the device can be partitioned.
    Untold(Untold),
    /// MIG mode is off: one whole GPU.
    Whole {
        /// How many slices it has.
        slices: u32,
    },
    /// MIG mode is on.
    Partitioned {
        /// How many slices the device has.
        slices: u32,
        /// From left to right; together they cover every slice once.
        regions: Vec<Region<'a>>,
        /// Instances that no region shows, because an earlier one lies there or they lie nowhere.
        hidden: Vec<&'a GpuInstance>,
    },
}

/// Why the slices of a device that can be partitioned cannot be drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Untold {
    /// The driver does not say which slices there are.
    NoSlices,
    /// The driver claims this many, which no device has.
    TooMany(u32),
    /// The driver does not tell the partitions; a slice whose owner is not told would be drawn as free.
    Geometry,
}

/// A stretch of slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Region<'a> {
    /// One slice that no instance has. Each is a region of its own: they are what a new instance is counted in.
    Free {
        /// Which.
        start: u32,
    },
    /// The slices of an instance.
    Instance {
        /// Whose they are.
        instance: &'a GpuInstance,
        /// The first.
        start: u32,
        /// How many.
        slices: u32,
    },
}

impl<'a> Slices<'a> {
    /// Those of `device`.
    pub fn of(device: &'a Device) -> Self {
        let Some(state) = device.mig.state() else {
            return Self::NotPartitionable;
        };
        if device.condition != Condition::Working {
            return Self::NotPartitionable;
        }
        let slices = count(state);
        if slices == 0 {
            return Self::Untold(Untold::NoSlices);
        }
        if slices > MOST_SLICES {
            return Self::Untold(Untold::TooMany(slices));
        }
        if state.geometry == Completeness::Partial {
            return Self::Untold(Untold::Geometry);
        }
        match state.current {
            MigMode::Disabled => Self::Whole { slices },
            MigMode::Enabled => partitioned(state, slices),
        }
    }

    /// How many slices no instance has; `None` where there are no partitions to count.
    pub fn free(&self) -> Option<usize> {
        match self {
            Self::NotPartitionable | Self::Untold(_) | Self::Whole { .. } => None,
            Self::Partitioned { regions, .. } => {
                let free = regions
                    .iter()
                    .filter(|region| matches!(region, Region::Free { .. }));
                Some(free.count())
            }
        }
    }
}

impl Region<'_> {
    /// The first slice.
    pub fn start(&self) -> u32 {
        match self {
            Self::Free { start } | Self::Instance { start, .. } => *start,
        }
    }

    /// How many slices.
    pub fn slices(&self) -> u32 {
        match self {
            Self::Free { .. } => 1,
            Self::Instance { slices, .. } => *slices,
        }
    }
}

/// As many as the device offers, and no fewer than it has instances in.
fn count(state: &MigState) -> u32 {
    let taken = state.gpu_instances.iter();
    let last = taken.map(|instance| instance.placement.end()).max();
    state.catalog.memory_slices().max(last.unwrap_or(0))
}

fn partitioned(state: &MigState, slices: u32) -> Slices<'_> {
    let mut owners: BTreeMap<u32, Option<&GpuInstance>> =
        (0..slices).map(|slice| (slice, None)).collect();
    let mut hidden = Vec::new();
    for instance in &state.gpu_instances {
        let placement = instance.placement;
        let mut cells: Vec<_> = owners
            .iter_mut()
            .filter(|(slice, _)| (placement.start..placement.end()).contains(slice))
            .map(|(_, owner)| owner)
            .collect();
        if cells.is_empty() || cells.iter().any(|owner| owner.is_some()) {
            hidden.push(instance);
            continue;
        }
        for owner in &mut cells {
            **owner = Some(instance);
        }
    }
    Slices::Partitioned {
        slices,
        regions: joined(owners),
        hidden,
    }
}

/// The regions of slices whose owners are known, in the order of the slices.
fn joined<'a>(owners: impl IntoIterator<Item = (u32, Option<&'a GpuInstance>)>) -> Vec<Region<'a>> {
    let mut regions = Vec::new();
    for (start, owner) in owners {
        match (owner, regions.last_mut()) {
            (
                Some(owner),
                Some(Region::Instance {
                    instance, slices, ..
                }),
            ) if instance.id == owner.id => *slices = slices.saturating_add(1),
            (Some(instance), _) => regions.push(Region::Instance {
                instance,
                start,
                slices: 1,
            }),
            (None, _) => regions.push(Region::Free { start }),
        }
    }
    regions
}

pub mod words;

#[cfg(test)]
mod tests;
