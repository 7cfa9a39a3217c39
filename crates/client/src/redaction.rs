//! Removal of secrets and replacement of names in documents and logs that leave the cluster.

pub mod names;
pub mod secrets;
