//! Memory slices of one device, from left to right: the instance of each slice, and free slices.
//!
//! Pictures of a device in a terminal or on a web page are drawn from it. If a driver reports inconsistent instances,
//! such as two in one slice, each slice still has one owner: the first instance is shown, and the other is hidden.

use std::collections::BTreeMap;

use crate::inventory::{Completeness, Condition, Device, GpuInstance, MigMode, MigState};

/// Maximum number of slices. A larger number is a driver error: [`UndrawableReason::TooMany`].
const MAX_SLICES: u32 = 24;

/// Drawable memory slices of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Slices<'a> {
    /// None: the device cannot be partitioned, or it is not known whether it can.
    NotPartitionable,
    /// None, although the device can be partitioned.
    Undrawable(UndrawableReason),
    /// MIG mode is disabled: one whole GPU.
    Whole {
        /// Number of slices.
        slices: u32,
    },
    /// MIG mode is enabled.
    Partitioned {
        /// Number of slices of the device.
        slices: u32,
        /// From left to right; together they cover each slice once.
        regions: Vec<Region<'a>>,
        /// Instances without a region, because they overlap an earlier one or have no slice.
        hidden: Vec<&'a GpuInstance>,
    },
}

/// Reason why the slices of a device that can be partitioned cannot be drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UndrawableReason {
    /// The driver does not report the slices.
    NoSlices,
    /// The driver reports this many, more than any device has.
    TooMany(u32),
    /// The driver does not report all partitions, so slices of unreported ones would be drawn as free.
    Geometry,
}

/// A contiguous range of slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Region<'a> {
    /// One free slice. Each one is a separate region, because they are the units of a new instance.
    Free {
        /// Its index.
        start: u32,
    },
    /// The slices of an instance.
    Instance {
        /// The instance.
        instance: &'a GpuInstance,
        /// The first slice.
        start: u32,
        /// Number of slices.
        slices: u32,
    },
}

impl<'a> Slices<'a> {
    /// The slices of `device`.
    pub fn from_device(device: &'a Device) -> Self {
        let Some(state) = device.mig.state() else {
            return Self::NotPartitionable;
        };
        if device.condition != Condition::Working {
            return Self::NotPartitionable;
        }
        let slices = count(state);
        if slices == 0 {
            return Self::Undrawable(UndrawableReason::NoSlices);
        }
        if slices > MAX_SLICES {
            return Self::Undrawable(UndrawableReason::TooMany(slices));
        }
        if state.geometry == Completeness::Partial {
            return Self::Undrawable(UndrawableReason::Geometry);
        }
        match state.current {
            MigMode::Disabled => Self::Whole { slices },
            MigMode::Enabled => partitioned(state, slices),
        }
    }

    /// Number of free slices; `None` if there are no partitions.
    pub fn free(&self) -> Option<usize> {
        match self {
            Self::NotPartitionable | Self::Undrawable(_) | Self::Whole { .. } => None,
            Self::Partitioned { regions, .. } => {
                let free = regions.iter().filter(|region| matches!(region, Region::Free { .. }));
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

    /// Number of slices.
    pub fn slices(&self) -> u32 {
        match self {
            Self::Free { .. } => 1,
            Self::Instance { slices, .. } => *slices,
        }
    }
}

/// The number of slices that the device offers, or more if its instances extend beyond them.
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
    Slices::Partitioned { slices, regions: join_regions(owners), hidden }
}

/// Joins adjacent slices of the same owner to regions.
fn join_regions<'a>(
    owners: impl IntoIterator<Item = (u32, Option<&'a GpuInstance>)>,
) -> Vec<Region<'a>> {
    let mut regions = Vec::new();
    for (start, owner) in owners {
        match (owner, regions.last_mut()) {
            (Some(owner), Some(Region::Instance { instance, slices, .. }))
                if instance.id == owner.id =>
            {
                *slices = slices.saturating_add(1);
            }
            (Some(instance), _) => regions.push(Region::Instance { instance, start, slices: 1 }),
            (None, _) => regions.push(Region::Free { start }),
        }
    }
    regions
}

pub mod words;

#[cfg(test)]
mod tests;
