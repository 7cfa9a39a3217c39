//! JSON and YAML documents of the REST API, of the command line and of recorded machines.
//!
//! These types are a public contract and only grow by addition. `From` converts a value of the model and cannot fail;
//! `TryFrom` converts back and reports the location of an error.

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
