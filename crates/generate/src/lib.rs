//! Manifests of queues, quotas and machine pools, from the nodes of a fleet. Pure functions.
//!
//! ```text
//! rows of /api/v1/nodes -----------+
//! rows of /api/v1/cluster-nodes ---+--> pools: nodes with the same type and layout, and their labels
//!                                          |
//!                                          +--> kueue: flavors, a queue and its local queues
//!                                          +--> quotas: quotas and limits of namespaces
//!                                          +--> access: types that namespaces may use
//!                                          +--> instances: by EC2 instance type and zone
//!                                                   +--> karpenter: node pools
//!                                                   +--> openshift: machine sets and autoscalers
//!                                                   +--> ec2_quotas: needs against the limits of an account
//! layouts --------------> gpu_operator: configuration of NVIDIA's components
//! Git repository -----> argocd: an application for these machine pools
//! ```
//!
//! [`migration`] converts the configuration of NVIDIA's GPU Operator to layouts, policies and chart values.
//!
//! The result depends only on the content of the documents, not on the order of their rows.

pub mod access;
pub mod argocd;
mod argocd_specs;
pub mod ec2_quotas;
mod error;
pub mod gpu_operator;
mod instances;
pub mod karpenter;
mod karpenter_specs;
pub mod kueue;
mod kueue_specs;
mod machine_sets;
pub mod manifest;
pub mod migration;
mod note;
pub mod openshift;
mod pool_labels;
mod pools;
pub mod quotas;
#[cfg(test)]
mod tests_support;

pub use self::error::GenerateError;
pub use self::machine_sets::{MachineSet, MachineSetList};
pub use self::note::{Exclusion, Note};
pub use self::pools::{NodePool, Pools};
