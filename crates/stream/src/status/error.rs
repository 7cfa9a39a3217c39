//! Errors while decoding a status.

use octavo_model::id::IdError;
use octavo_model::label::LabelError;
use octavo_model::profile::ProfileNameError;
use octavo_model::quantity::DriverVersionError;
use octavo_model::resource::ResourceError;
use thiserror::Error;

use crate::protocol::PartKey;

/// An invalid part, with the location of the error such as `mig.gpu_instances[2].placement`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the part {part} of a status cannot be{}{field}", if .field.is_empty() { "" } else { ", at " })]
pub struct StatusError {
    part: PartKey,
    field: String,
    #[source]
    problem: StatusProblem,
}

/// Why a part is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StatusProblem {
    /// A required part is missing.
    #[error("it is missing")]
    MissingPart,
    /// The device's address is not in canonical form.
    #[error("its address is not spelt like 0000:07:00.0")]
    NonCanonicalAddress,
    /// The device's number is not in canonical form.
    #[error("its number is not spelt like 7")]
    NonCanonicalNumber,
    /// The bytes are not a Protobuf message of the expected type.
    #[error("it is no Protobuf message of its kind")]
    Message(#[from] prost::DecodeError),
    /// An invalid identifier.
    #[error(transparent)]
    Id(#[from] IdError),
    /// An invalid driver version.
    #[error(transparent)]
    DriverVersion(#[from] DriverVersionError),
    /// An invalid profile name.
    #[error(transparent)]
    Profile(#[from] ProfileNameError),
    /// An invalid label.
    #[error(transparent)]
    Label(#[from] LabelError),
    /// An invalid resource name or device ID.
    #[error(transparent)]
    Resource(#[from] ResourceError),
    /// A required field is missing.
    #[error("it is missing")]
    Missing,
    /// An unexpected text.
    #[error("{text:?} is not {expected}")]
    UnexpectedText {
        /// The text.
        text: String,
        /// What is expected.
        expected: &'static str,
    },
    /// The text or message is too long.
    #[error("{length} bytes are too long for what stands there")]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// A number is too large.
    #[error("{number} is more than {largest}")]
    TooLarge {
        /// The number.
        number: u32,
        /// The maximum.
        largest: u32,
    },
    /// A number that must be at least one is zero.
    #[error("it is 0")]
    Zero,
    /// An unknown enum value in a field without a fallback.
    #[error("{0} is no choice that this version knows")]
    UnknownEnumValue(i32),
    /// A list has too many items.
    #[error("{count} are more than {limit}")]
    TooMany {
        /// Number of items.
        count: usize,
        /// Maximum number of items.
        limit: usize,
    },
    /// The referenced part with the profile catalog is missing.
    #[error("{0:?} is no part of this status")]
    NoSuchPart(String),
    /// A SKU without a type. A SKU is more specific than a type, so it implies one.
    #[error("a SKU without a type")]
    SkuWithoutType,
}

/// A field error that is not yet associated with a part.
#[derive(Debug)]
pub(super) struct FieldError {
    field: String,
    problem: StatusProblem,
}

impl StatusError {
    /// The key of the part.
    pub fn key(&self) -> &PartKey {
        &self.part
    }

    /// The field of the part, such as `mig.gpu_instances[2].placement`; empty if the part as a whole is invalid.
    pub fn place(&self) -> &str {
        &self.field
    }

    /// Why it is invalid.
    pub fn problem(&self) -> &StatusProblem {
        &self.problem
    }

    pub(super) fn part(key: &PartKey, problem: impl Into<StatusProblem>) -> Self {
        Self {
            part: key.clone(),
            field: String::new(),
            problem: problem.into(),
        }
    }

    pub(super) fn field(key: &PartKey, error: FieldError) -> Self {
        Self {
            part: key.clone(),
            field: error.field,
            problem: error.problem,
        }
    }
}

impl FieldError {
    pub(super) fn new(field: &str, problem: impl Into<StatusProblem>) -> Self {
        Self {
            field: field.to_owned(),
            problem: problem.into(),
        }
    }

    /// Prepends the parent's path.
    pub(super) fn within(mut self, parent: &str) -> Self {
        self.field = format!("{parent}.{}", self.field);
        self
    }
}
