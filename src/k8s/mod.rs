//! Kubernetes clients: the API server, and the kubelet's interfaces on this node.

pub mod access_review;
pub mod client;
pub mod cluster;
pub mod device_plugin;
pub mod device_record;
pub mod events;
pub mod evict;
pub mod hardware_profiles;
pub mod lease;
pub mod node;
pub mod node_feature;
pub mod plugin;
pub mod plugin_config;
pub mod pod_resources;
pub mod pod_types;
pub mod token_review;
pub mod who_has;
