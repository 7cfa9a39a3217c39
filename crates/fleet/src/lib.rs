//! Decisions about all nodes: counts, changes, availability, matching, hardware profiles, prices, estimates, objectives
//! and permissions. Pure functions.

pub mod accelerator_resource;
pub mod access;
pub mod api;
pub mod availability;
pub mod budget;
pub mod changes;
pub mod cluster;
pub mod credential;
pub mod digest;
pub mod estimate;
pub mod hardware_profile;
pub mod matching;
pub mod measured_speed;
pub mod node_plan;
pub mod price;
pub mod problem;
pub mod request_error;
pub mod slo;
pub mod startup;
pub mod summary;
pub mod type_labels;
pub mod type_source;
pub mod usage;
