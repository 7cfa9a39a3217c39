//! How devices and partitions are given out, also to several at once, and who has them.
//!
//! ```text
//!   Inventory + Targets --> offer: what is given out, under which name ---> resource names and ids
//!                             |
//!                             +--> hand-off: the same as NVIDIA's device plugin is told it
//!   Xids, condition --------> health: whether it is fit to be given out, and the way back
//!   what kubelet asks ------> allocation: which of what is free
//!   processes, pods --------> usage: who has what, and how much of it
//! ```
//!
//! A *unit* is what a container can have: a whole device or a partition. Time-slicing gives one unit to several by turns; each
//! turn is a *replica*. Nothing isolates the memory of replicas of one unit.

pub mod allocation;
pub mod guard;
pub mod health;
pub mod join;
pub mod offer;
pub mod resource;
pub mod status;
pub mod usage;

pub use offer::{Compiled, Offer, Offers, Partition, Unit};
pub use resource::{ResourceName, ShareId};
pub use status::SharingStatus;
