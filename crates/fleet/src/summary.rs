//! Fleet summaries: devices, nodes and types in numbers.
//!
//! Each device counts once, under its current [`Occupancy`], so the counts of a type always add up to its number of
//! devices. "Free" follows the driver: no process and no partition. Allocations to pods that have not started yet are
//! not considered here.

mod counts;
mod device;
mod device_facts;
mod device_use;
mod devices;
mod group;
mod instance_use;
mod layout;
mod neuron;
mod node;
mod node_from_labels;
mod node_problems;
mod node_state;
mod partitions;
mod problem;
mod report_rate;
mod sharing;
mod usage;
mod usage_rank;

pub use counts::{DeviceCounts, TypeCounts};
pub use device::{DeviceHealth, DeviceSummary, HealthState, Occupancy, PartitionCounts};
pub use device_facts::{DeviceFacts, DevicePlace};
pub use device_use::DeviceUse;
pub use group::NodeGroup;
pub use layout::{LayoutSummary, StepCounts};
pub use neuron::rounded_for_report;
pub use node::NodeSummary;
pub use node_from_labels::SHARING_LABEL;
pub use node_state::NodeState;
pub use octavo_model::sharing_mode::Sharing;
pub use partitions::{PartitionUse, partitions_of};
pub use problem::{LayoutProblem, NodeProblem, ProblemArea};
pub use report_rate::{MAX_REPORTED_TENANTS, MIN_REPORT_INTERVAL, ReportAction, ReportRate};
pub use sharing::{Replicas, SharedUnits, SharingSummary, TimeSlicingExtent};
pub use usage::{
    Alarm, MAX_ITEMS, MAX_MISSING, MAX_PAST_ITEMS, MAX_PAST_USAGES, MAX_TENANT_ITEMS,
    MAX_USAGE_BYTES, alarms, allocations_only, past_items, usage_for_report,
};
pub use usage_rank::{UsageRank, UtilizationSum, rank_memory};

#[cfg(test)]
mod tests;
