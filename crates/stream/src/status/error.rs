//! Errors while decoding a status.

use octavo_model::id::ParseError;
use octavo_model::label::LabelError;
use octavo_model::profile::ProfileNameError;
use octavo_model::resource::ResourceError;
use thiserror::Error;

use crate::protocol::PartKey;

/// An invalid part, with the location of the error such as `mig.gpu_instances[2].placement`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("invalid part {part} of a status{}{field}", if .field.is_empty() { "" } else { ", at " })]
pub struct StatusError {
    /// The key of the part.
    pub part: PartKey,
    /// The field of the part, such as `mig.gpu_instances[2].placement`; empty if the part as a whole is invalid.
    pub field: String,
    /// Why it is invalid.
    #[source]
    pub problem: StatusProblem,
}

/// Why a part is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StatusProblem {
    /// A required part is missing.
    #[error("it is missing")]
    MissingPart,
    /// The device's address is not in canonical form.
    #[error("its address is not in the form 0000:07:00.0")]
    NonCanonicalAddress,
    /// The device's number is not in canonical form.
    #[error("its number is not in the form 7")]
    NonCanonicalNumber,
    /// The bytes are not a Protobuf message of the expected type.
    #[error("it is not a Protobuf message of the expected type")]
    Message(#[from] prost::DecodeError),
    /// An invalid identifier or version.
    #[error(transparent)]
    Id(#[from] ParseError),
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
    /// The text or message is too long.
    #[error("{length} bytes are too long for this field")]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// A number is too large.
    #[error("{number} is more than the maximum of {largest}")]
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
    #[error("{0} is not a value that this version knows")]
    UnknownEnumValue(i32),
    /// A list has too many items.
    #[error("{count} is more than the maximum of {limit}")]
    TooMany {
        /// Number of items.
        count: usize,
        /// Maximum number of items.
        limit: usize,
    },
    /// The referenced part with the profile catalog is missing.
    #[error("{0:?} is not a part of this status")]
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
    pub(super) fn part(key: &PartKey, problem: impl Into<StatusProblem>) -> Self {
        Self { part: key.clone(), field: String::new(), problem: problem.into() }
    }

    pub(super) fn field(key: &PartKey, error: FieldError) -> Self {
        Self { part: key.clone(), field: error.field, problem: error.problem }
    }
}

impl FieldError {
    pub(super) fn new(field: &str, problem: impl Into<StatusProblem>) -> Self {
        Self { field: field.to_owned(), problem: problem.into() }
    }

    /// Prepends the parent's path.
    pub(super) fn within(mut self, parent: &str) -> Self {
        self.field = format!("{parent}.{}", self.field);
        self
    }
}
