//! Errors for invalid values in a well-formed document.

use octavo_model::id::IdError;
use octavo_model::profile::ProfileNameError;
use octavo_model::quantity::DriverVersionError;
use thiserror::Error;

/// An invalid value with its path, such as `devices[2].pci`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("at {path}")]
pub struct FieldError {
    path: String,
    #[source]
    problem: FieldProblem,
}

/// Why a value is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FieldProblem {
    /// An invalid identifier.
    #[error(transparent)]
    Id(#[from] IdError),
    /// An invalid driver version.
    #[error(transparent)]
    DriverVersion(#[from] DriverVersionError),
    /// An invalid profile name.
    #[error(transparent)]
    Profile(#[from] ProfileNameError),
    /// An unexpected text.
    #[error("{text:?} is not {expected}")]
    UnexpectedText {
        /// The text.
        text: String,
        /// What is expected.
        expected: &'static str,
    },
    /// A number out of range.
    #[error("{number} is not {expected}")]
    OutOfRange {
        /// The number.
        number: u64,
        /// What is expected.
        expected: &'static str,
    },
    /// Two devices have the same PCI address.
    #[error("another device has the same address")]
    DuplicateAddress,
    /// Two Neuron devices have the same number.
    #[error("another device has the same number")]
    DuplicateNumber,
    /// A SKU without a type. A SKU is more specific than a type, so it implies one.
    #[error("a SKU without a type")]
    SkuWithoutType,
    /// A source of the type without a type.
    #[error("given, and there is no type")]
    SourceWithoutType,
    /// A link to a device or a switch has no remote address.
    #[error("missing, and the far end of the link is a device or a switch")]
    RemoteMissing,
    /// A link to a hidden switch or an unknown device has a remote address.
    #[error("given, and the remote of the link has no address")]
    UnexpectedRemote,
}

impl FieldError {
    /// Path of the value from the root of the document.
    pub fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn new(field: &str, problem: impl Into<FieldProblem>) -> Self {
        Self {
            path: field.to_owned(),
            problem: problem.into(),
        }
    }

    /// Prepends the parent's path.
    pub(super) fn within(mut self, parent: &str) -> Self {
        self.path = format!("{parent}.{}", self.path);
        self
    }
}
