//! Kubelet's device plugin sockets.

pub mod delivery;
