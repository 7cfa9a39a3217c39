//! Errors of a command that is about one pending pod.

use octavo_model::text::first_names;
use thiserror::Error;

/// Maximum number of listed pods.
const MAX_LISTED: usize = 5;

/// Reason why a pod was not found among the pods with a proposal.
#[derive(Debug, Error)]
pub(crate) enum PodSelectionError {
    /// No pod has this name.
    #[error("no proposal for the pod {0}: no planned pod has this name")]
    Unknown(String),
    /// Pods of several namespaces have this name.
    #[error("several pods have the name {name}: {}", first_names(.pods, MAX_LISTED))]
    Ambiguous {
        /// The name.
        name: String,
        /// The pods, each with its namespace.
        pods: Vec<String>,
    },
}

impl PodSelectionError {
    /// Returns advice about the error.
    pub(super) fn advice(&self) -> &'static str {
        match self {
            Self::Unknown(_) => {
                "`octavo demand -o name` lists the planned pods: pending pods that request MIG \
                 instances and are at least 10 s old"
            }
            Self::Ambiguous { .. } => "specify NAMESPACE/NAME",
        }
    }
}
