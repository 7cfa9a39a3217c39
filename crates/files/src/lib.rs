//! File formats: [`layouts`] in three dialects, price lists, the configuration of NVIDIA's device plugin, CDI
//! specifications, label sets, checkpoints, the journal, recorded inventories, hardware profiles, measured rows of
//! a model catalog and the resources of a Node. [`config_files`] reloads files when they are replaced.

pub mod cdi;
pub mod checkpoint;
pub mod config_files;
pub mod hardware_profiles;
pub mod history;
pub mod hooks;
pub mod inventory;
pub mod journal;
pub mod label_set;
pub mod layouts;
pub mod measured_rows;
pub mod node_resources;
pub mod opencost;
pub mod plugin_config;

#[cfg(test)]
#[path = "../../../tests/support/inventories/mod.rs"]
mod inventories;
