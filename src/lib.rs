//! Octavo: partitions, shares, labels and reports the accelerators of a Kubernetes fleet.

pub mod domain;
pub mod wire;
