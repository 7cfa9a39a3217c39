//! Allocation of devices and partitions to pods, including time-slicing, and usage by pod.
//!
//! ```text
//!   Inventory + Targets --> offer: units, resource names and ids
//!                             |
//!                             +--> hold: ids listed to kubelet, including those that pods hold (ledger: allocations)
//!                             +--> hand_off: configuration of NVIDIA's device plugin, and its rollout
//!                                     +--> diagnosis: why the rollout failed
//!   Xids, condition --------> health: health of each unit, and its recovery
//!   kubelet's requests -----> allocation: preferred ids among the available ones
//!   status of the layout ---> withhold: devices without new allocations until their layout is applied
//!   processes, pods --------> usage: usage by pod
//! ```
//!
//! A *unit* is what a container can be allocated: a whole device or a partition. Time-slicing allocates one unit to
//! several containers; each allocation is a *replica*. Memory is not isolated between the replicas of a unit.

pub mod allocation;
pub mod diagnosis;
pub mod forecast;
pub mod guard;
pub mod hand_off;
pub mod health;
pub mod injection;
pub mod join;
pub mod ledger;
pub mod listing;
pub mod offer;
pub mod slice_length;
pub mod usage;
pub mod withhold;

pub use offer::{CompiledOffers, Offer, Offers, Partition, Unit};
