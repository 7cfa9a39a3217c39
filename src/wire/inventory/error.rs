//! What can be wrong with a value of a document whose shape is right.

use thiserror::Error;

use crate::domain::id::IdError;
use crate::domain::profile::ProfileNameError;
use crate::domain::quantity::DriverVersionError;

/// A value that cannot be, with its place such as `devices[2].pci`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("at {path}")]
pub struct FieldError {
    path: String,
    #[source]
    problem: FieldProblem,
}

/// What is wrong with a value.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FieldProblem {
    /// An identifier that is none.
    #[error(transparent)]
    Id(#[from] IdError),
    /// A driver version that is none.
    #[error(transparent)]
    DriverVersion(#[from] DriverVersionError),
    /// A profile name that is none.
    #[error(transparent)]
    Profile(#[from] ProfileNameError),
    /// Another text that is not what stands there.
    #[error("{text:?} is not {expected}")]
    Text {
        /// The text.
        text: String,
        /// What belongs there.
        expected: &'static str,
    },
    /// A number that is not what stands there.
    #[error("{number} is not {expected}")]
    Number {
        /// The number.
        number: u64,
        /// What belongs there.
        expected: &'static str,
    },
    /// Two devices at one address.
    #[error("another device has the same address")]
    Duplicate,
    /// Two Neuron devices with one number.
    #[error("another device has the same number")]
    DuplicateNumber,
    /// A SKU is finer than a type, so it cannot be known where the type is not.
    #[error("a SKU without a type")]
    SkuWithoutType,
    /// Who says of what type it is, and nobody does.
    #[error("given, and there is no type")]
    SourceWithoutType,
    /// A link to a device or a switch says where that is.
    #[error("missing, and the far end of the link is a device or a switch")]
    RemoteMissing,
    /// A link to something hidden or unknown has no remote address.
    #[error("given, and the remote of the link has no address")]
    RemoteNeedless,
}

impl FieldError {
    /// Where the value stands, from the root of the document.
    pub fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn new(field: &str, problem: impl Into<FieldProblem>) -> Self {
        Self {
            path: field.to_owned(),
            problem: problem.into(),
        }
    }

    /// The same error seen from the thing that holds it.
    pub(super) fn within(mut self, parent: &str) -> Self {
        self.path = format!("{parent}.{}", self.path);
        self
    }
}
