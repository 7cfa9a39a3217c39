//! Octavo: partitions, shares, labels and reports the accelerators of a Kubernetes fleet.

pub mod cli;
pub mod config;
pub mod domain;
pub mod wire;
