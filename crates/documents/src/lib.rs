//! Serialization of domain values: JSON, YAML, and the messages of the status stream.
//!
//! Wire types are separate from domain types. They are a public contract and only grow by addition, while the domain
//! types change freely. `From` converts to the wire type and cannot fail; `TryFrom` converts from it and reports the
//! location of an error. Used by the command line, by both ends of the status stream, and by tests that read recorded
//! machines.

pub mod agent_socket;
pub mod api;
pub mod availability;
pub mod catalog;
pub mod diagnosis;
pub mod estimates;
pub mod hardware_profiles;
pub mod history;
pub mod inventory;
pub mod labels;
pub mod matching;
pub mod node_resources;
pub mod node_status;
pub mod performance;
pub mod plan;
pub mod sharing;
pub mod slo;
pub mod startup;
pub mod strict_json;
pub mod usage;

#[cfg(test)]
#[path = "../../../tests/support/inventories/mod.rs"]
mod inventories;
