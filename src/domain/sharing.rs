//! How devices and partitions are given out, also to several at once, and who has them.
//!
//! ```text
//!   Inventory + Targets --> offer: what is given out, under which name ---> resource names and ids
//!                             |
//!                             +--> hold: what is listed to kubelet, with what pods have kept (ledger: who has what)
//!                             +--> hand_off: the same as NVIDIA's device plugin is told it, and its course to there
//!                                     +--> diagnosis: why it did not come about
//!   Xids, condition --------> health: whether it is fit to be given out, and the way back
//!   what kubelet asks ------> allocation: which of what is free
//!   status of the layout ---> withhold: of which devices nothing new is allocated until their layout is applied
//!   processes, pods --------> usage: who has what, and how much of it
//! ```
//!
//! A *unit* is what a container can have: a whole device or a partition. Time-slicing gives one unit to several by turns; each
//! turn is a *replica*. Nothing isolates the memory of replicas of one unit.

pub mod allocation;
pub mod delivery;
pub mod diagnosis;
pub mod forecast;
pub mod guard;
pub mod hand_off;
pub mod health;
pub mod hold;
pub mod join;
pub mod ledger;
pub mod offer;
pub mod resource;
pub mod slice;
pub mod status;
pub mod usage;
pub mod withhold;

pub use offer::{Compiled, Offer, Offers, Partition, Unit};
pub use resource::{ResourceName, ShareId};
pub use status::SharingStatus;
