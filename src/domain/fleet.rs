//! Fleet summaries: devices, nodes and types in numbers.
//!
//! Each device counts once, under its current [`Occupancy`], so the counts of a type always add up to its number of
//! devices. "Free" follows the driver: no process and no partition. Allocations to pods that have not started yet are
//! not considered here.

mod counts;
mod device;
mod group;
mod labeled;
mod layout;
mod neuron;
mod node;
mod pace;
mod parts;
mod rank;
mod sharing;
mod usage;

pub use counts::{Counts, TypeCounts};
pub use device::{DeviceSummary, Occupancy, Partitions};
pub use group::Group;
pub use layout::{
    DeviceLayout, LONGEST_TEXT, LONGEST_WORD, LayoutStatus, LayoutSummary, MOST_DEVICES,
};
pub use neuron::stepped;
pub use node::{NodeState, NodeSummary, Sharing};
pub use pace::{MOST_TOLD, Pace, Step, USAGE_EVERY};
pub use parts::{Part, parts_of};
pub use rank::{UsageRank, ranked};
pub use sharing::{
    ByTurns, LONGEST_CONFIG, MOST_KEPT, MOST_RESOURCES, MOST_UNITS, SharingReport, SharingSummary,
};
pub use usage::{Alarm, LARGEST_USAGE, MOST_MISSING, MOST_OF_TENANT, MOST_USED, alarms, told};

#[cfg(test)]
mod tests;
