//! What a fleet comes to: devices, nodes and types in numbers.
//!
//! A device is counted once, under what can be done with it now ([`Occupancy`]), so the counts of a type always add up to
//! the devices there are. "Free" is what the driver says, no process and no partition; what Kubernetes has promised to a pod
//! that has not started is not known here.

mod counts;
mod device;
mod layout;
mod node;

pub use counts::{Counts, TypeCounts};
pub use device::{DeviceSummary, Occupancy, Partitions};
pub use layout::{
    DeviceLayout, LONGEST_TEXT, LONGEST_WORD, LayoutStatus, LayoutSummary, MOST_DEVICES,
};
pub use node::{NodeState, NodeSummary, Sharing};

#[cfg(test)]
mod tests;
