//! What Octavo knows and decides, as plain data and pure functions.
//!
//! Nothing here reads a file, a clock, the environment or the network, and nothing logs: an observation comes in as an
//! [`inventory::Inventory`], a decision goes out as data. That is what makes every rule worth getting right testable in
//! microseconds, and what lets the agent, the aggregator and the command line use the very same code.

pub mod accelerators;
pub mod access;
pub mod availability;
pub mod call;
pub mod catalog;
pub mod cluster;
pub mod credential;
pub mod doctor;
pub mod driver_link;
pub mod error;
pub mod estimate;
mod fit;
pub mod fleet;
pub mod hardware_profile;
pub mod holder;
pub mod id;
pub mod interconnect;
pub mod inventory;
pub mod labels;
pub mod layout;
pub mod lease;
pub mod matching;
pub(crate) mod near;
pub mod node;
pub mod plan;
pub mod price;
pub mod profile;
pub mod quantity;
pub mod reading;
pub mod reason;
pub mod reconcile;
pub mod sharing;
pub mod slices;
pub mod slo;
mod split;
pub mod stream;
pub mod text;
pub mod workload;
