//! Decisions about one node: its labels, the devices that it offers to pods, its Kubernetes Node, and the diagnosis of
//! what is missing. Pure functions.

pub mod doctor;
pub mod label_set;
pub mod labels;
pub mod lease;
pub mod mig_strategy;
pub mod node_object;
pub mod sharing;
mod token_bucket;
pub mod validation;
pub mod workload;
