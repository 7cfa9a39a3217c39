//! The kubelet's interfaces on a node: the device plugin API, the DRA API, the `PodResources` API and its checkpoint.

pub mod device_plugin;
pub mod dra;
pub mod kubelet_checkpoint;
pub mod pod_allocations;
pub mod pod_resources;
pub mod proto;
pub mod unix_channel;
