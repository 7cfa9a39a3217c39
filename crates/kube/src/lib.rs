//! Clients of the Kubernetes API server.

pub mod access_review;
pub mod aggregator_access;
pub mod apply;
mod backoff;
pub mod claim_status;
pub mod client;
pub mod cluster;
pub mod diagnostics;
pub mod events;
pub mod evict;
pub mod gpu_operator;
pub mod hardware_profiles;
pub mod leader_label;
pub mod lease;
pub mod node;
pub mod node_feature;
pub mod nvidia_plugin;
pub mod nvidia_plugin_config;
mod optional_kind;
pub mod pod_annotations;
pub mod policies;
pub mod resource_claims;
pub mod resource_slices;
pub mod token_review;
pub mod validation;
mod write_status;
