//! Why parts are no status.

use thiserror::Error;

use crate::domain::id::IdError;
use crate::domain::labels::LabelError;
use crate::domain::profile::ProfileNameError;
use crate::domain::quantity::DriverVersionError;
use crate::domain::sharing::resource::ResourceError;
use crate::domain::stream::PartKey;

/// A part that cannot be, with the place in it such as `mig.gpu_instances[2].placement`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the part {part} of a status cannot be{}{field}", if .field.is_empty() { "" } else { ", at " })]
pub struct StatusError {
    part: PartKey,
    field: String,
    #[source]
    problem: StatusProblem,
}

/// What is wrong with a part.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StatusProblem {
    /// The part is needed and is not there.
    #[error("it is missing")]
    MissingPart,
    /// The device's address is spelt in another way than addresses are.
    #[error("its address is not spelt like 0000:07:00.0")]
    Spelling,
    /// The device's number is spelt in another way than numbers are.
    #[error("its number is not spelt like 7")]
    Number,
    /// The bytes are no such message.
    #[error("it is no Protobuf message of its kind")]
    Message(#[from] prost::DecodeError),
    /// An identifier that is none.
    #[error(transparent)]
    Id(#[from] IdError),
    /// A driver version that is none.
    #[error(transparent)]
    DriverVersion(#[from] DriverVersionError),
    /// A profile name that is none.
    #[error(transparent)]
    Profile(#[from] ProfileNameError),
    /// A label that is none.
    #[error(transparent)]
    Label(#[from] LabelError),
    /// A resource's name or an id that is none.
    #[error(transparent)]
    Resource(#[from] ResourceError),
    /// A field that is needed is not there.
    #[error("it is missing")]
    Missing,
    /// A text that is not what stands there.
    #[error("{text:?} is not {expected}")]
    Text {
        /// The text.
        text: String,
        /// What belongs there.
        expected: &'static str,
    },
    /// Longer than anything that may stand there.
    #[error("{length} bytes are too long for what stands there")]
    TooLong {
        /// Its bytes.
        length: usize,
    },
    /// A number larger than what stands there can be.
    #[error("{number} is more than {largest}")]
    TooLarge {
        /// The number.
        number: u32,
        /// The largest.
        largest: u32,
    },
    /// A number of which there is at least one.
    #[error("it is 0")]
    Zero,
    /// A choice that this version does not know, where there is nothing like "other".
    #[error("{0} is no choice that this version knows")]
    Choice(i32),
    /// More than any device has.
    #[error("{count} are more than {limit}")]
    TooMany {
        /// How many.
        count: usize,
        /// The limit.
        limit: usize,
    },
    /// The part with the profiles is not there.
    #[error("{0:?} is no part of this status")]
    NoSuchPart(String),
    /// A SKU is finer than a type, so it cannot be known where the type is not.
    #[error("a SKU without a type")]
    SkuWithoutType,
}

/// The same, before it is known of which part.
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

    /// The field of the part, such as `mig.gpu_instances[2].placement`; empty where the part as a whole is wrong.
    pub fn place(&self) -> &str {
        &self.field
    }

    /// What is wrong with it.
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

    /// The same error seen from the message that holds it.
    pub(super) fn within(mut self, parent: &str) -> Self {
        self.field = format!("{parent}.{}", self.field);
        self
    }
}
