//! Decisions about all nodes: counts, availability, matching, hardware profiles, prices, estimates, objectives, and who
//! may see what. Pure functions.

pub mod accelerator_resource;
pub mod access;
pub mod availability;
pub mod cluster;
pub mod credential;
pub mod estimate;
pub mod fleet;
pub mod hardware_profile;
pub mod matching;
pub mod price;
pub mod slo;
pub mod type_source;
