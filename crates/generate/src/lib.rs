//! Manifests of queues and quotas, from the nodes of a fleet. Pure functions.
//!
//! ```text
//! rows of /api/v1/nodes -----------+
//! rows of /api/v1/cluster-nodes ---+--> pools: nodes with the same type and layout, and their labels
//!                                          |
//!                                          +--> kueue: flavors, a queue and its local queues
//!                                          +--> quotas: quotas and limits of namespaces
//! ```
//!
//! [`migration`] converts the configuration of NVIDIA's GPU Operator to layouts, policies and chart values.
//!
//! The result depends only on the content of the documents, not on the order of their rows.

mod error;
pub mod kueue;
mod kueue_specs;
pub mod manifest;
pub mod migration;
mod note;
mod pool_labels;
mod pools;
pub mod quotas;
#[cfg(test)]
mod tests_support;

pub use self::error::GenerateError;
pub use self::note::{Exclusion, Note};
pub use self::pools::{NodePool, Pools};
