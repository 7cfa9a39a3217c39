//! Octavo's domain model and decision logic, as plain data and pure functions.
//!
//! Code in this module does not read files, the clock, the environment or the network, and does not log. Observations
//! arrive as an [`inventory::Inventory`] and decisions are returned as data. This makes every rule testable in
//! microseconds and lets the agent, the aggregator and the command line share the same code.

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
pub mod fleet;
pub mod hardware_profile;
pub mod holder;
pub mod id;
pub mod interconnect;
pub mod inventory;
mod label_text;
pub mod labels;
pub mod layout;
pub mod lease;
pub mod matching;
pub mod node;
pub mod plan;
pub mod price;
pub mod profile;
pub mod quantity;
pub mod reading;
pub mod reason;
pub mod reconcile;
pub mod sharing;
pub(crate) mod similar_names;
pub mod slices;
pub mod slo;
mod split;
pub mod stream;
pub mod text;
pub mod workload;
