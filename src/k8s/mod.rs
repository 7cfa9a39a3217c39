//! What Kubernetes knows: so far, which pod kubelet gave which device.

pub mod pod_resources;
