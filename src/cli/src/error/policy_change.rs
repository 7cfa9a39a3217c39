//! Errors of changes of policies.

use octavo_kube::client::ConnectError;
use octavo_kube::policies::PolicyWriteError;
use octavo_policy::{ApprovalError, RollbackError};
use thiserror::Error;

/// Reason why a policy was not changed.
#[derive(Debug, Error)]
pub(crate) enum PolicyChangeError {
    /// The cluster cannot be reached.
    #[error("cannot connect to a cluster to change the policy")]
    Connect(#[source] ConnectError),
    /// The API server did not accept the change.
    #[error("cannot change the policy")]
    Write(#[source] Box<PolicyWriteError>),
    /// Standard input cannot confirm the change.
    #[error("nothing was changed: standard input is no terminal to confirm it")]
    NotConfirmed,
    /// A rollback cannot be requested.
    #[error("cannot roll back policy {policy}")]
    Rollback {
        /// The policy.
        policy: String,
        /// The cause.
        source: RollbackError,
    },
    /// Proposed instances cannot be approved.
    #[error("cannot approve instances of policy {policy}")]
    Approve {
        /// The policy.
        policy: String,
        /// The cause.
        source: ApprovalError,
    },
}

impl PolicyChangeError {
    /// Returns advice about the error, if there is any.
    pub(crate) fn advice(&self) -> Option<&'static str> {
        Some(match self {
            Self::Connect(error) => error.advice(),
            Self::NotConfirmed => "review the output, and repeat the command with --yes",
            Self::Rollback { source: RollbackError::Requested(_), .. } => {
                "it is carried out once: apply the manifest of that revision, or remove the \
                 annotation and repeat the command"
            }
            Self::Approve { source: ApprovalError::OtherMode(_), .. } => return None,
            Self::Approve { .. } => "`octavo policy status` lists the proposed instances",
            Self::Rollback { .. } => "`octavo policy history` lists the revisions",
            Self::Write(error) => match error.as_ref() {
                PolicyWriteError::NoKind => {
                    "install the custom resource definition, as docs/tasks/policies.md explains"
                }
                PolicyWriteError::NotFound(_) => "`octavo policy status` lists the policies",
                PolicyWriteError::Conflict { .. } => {
                    "change the fields with the client that manages them, or take them over with \
                     `kubectl apply --server-side --force-conflicts`"
                }
                PolicyWriteError::Refused { .. } => return None,
            },
        })
    }
}
