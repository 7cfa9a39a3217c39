//! Decoding of single fields, with errors that contain the field name.

use std::str::FromStr;

use octavo_model::id::ParseError;
use octavo_model::label::LabelError;
use octavo_model::profile::ProfileNameError;
use octavo_model::resource::ResourceError;
use octavo_model::text::{MAX_TEXT_BYTES, MAX_WORD_BYTES, truncate};
use thiserror::Error;

use crate::protocol::PartKey;

/// Maximum length of a parsed identifier, version or name. An error repeats the rejected text.
const MAX_PARSED_BYTES: usize = 320;

/// A decoded value, or the invalid field.
pub(super) type FieldResult<T> = Result<T, FieldError>;

/// Checks that a list has at most `limit` items.
pub(super) fn bounded<M>(field: &str, limit: usize, items: Vec<M>) -> FieldResult<Vec<M>> {
    if items.len() > limit {
        let count = items.len();
        return Err(FieldError::new(field, StatusProblem::TooMany { count, limit }));
    }
    Ok(items)
}

/// Converts a list of at most `limit` items. An error contains the index of the item.
pub(super) fn each<M, T>(
    field: &str,
    limit: usize,
    items: Vec<M>,
    convert: impl Fn(M) -> FieldResult<T>,
) -> FieldResult<Vec<T>> {
    let numbered = bounded(field, limit, items)?.into_iter().enumerate();
    numbered
        .map(|(number, item)| {
            convert(item).map_err(|error| error.within(&format!("{field}[{number}]")))
        })
        .collect()
}

/// Converts an optional message. An error contains the field of the message.
pub(super) fn nested<M, T>(
    field: &str,
    message: Option<M>,
    convert: impl FnOnce(M) -> FieldResult<T>,
) -> FieldResult<Option<T>> {
    message.map(convert).transpose().map_err(|error| error.within(field))
}

/// Converts a required message. An error contains the field of the message.
pub(super) fn required_message<M, T>(
    field: &str,
    message: Option<M>,
    convert: impl FnOnce(M) -> FieldResult<T>,
) -> FieldResult<T> {
    required(field, nested(field, message, convert)?)
}

/// Checks that a text to be parsed or repeated in an error is short.
pub(super) fn check_length<'a>(field: &str, text: &'a str) -> FieldResult<&'a str> {
    bounded_text(field, MAX_PARSED_BYTES, text)
}

/// Checks that a text has at most `limit` bytes.
pub(super) fn bounded_text<T: AsRef<str>>(field: &str, limit: usize, text: T) -> FieldResult<T> {
    let length = text.as_ref().len();
    if length > limit {
        return Err(FieldError::new(field, StatusProblem::TooLong { length }));
    }
    Ok(text)
}

pub(super) fn optional_text(
    field: &str,
    limit: usize,
    text: Option<String>,
) -> FieldResult<Option<String>> {
    text.map(|text| bounded_text(field, limit, text)).transpose()
}

/// Truncates a name or version from a driver or a kernel. A long text must not prevent its node from reporting.
pub(super) fn truncate_word(text: String) -> String {
    truncate_to(MAX_WORD_BYTES, text)
}

/// Truncates an explanation from a driver or a kernel.
pub(super) fn truncate_text(text: String) -> String {
    truncate_to(MAX_TEXT_BYTES, text)
}

fn truncate_to(limit: usize, text: String) -> String {
    if text.len() > limit { truncate(&text, limit) } else { text }
}

pub(super) fn parse_field<T>(field: &str, text: &str) -> FieldResult<T>
where
    T: FromStr<Err: Into<StatusProblem>>,
{
    check_length(field, text)?.parse().map_err(|error| FieldError::new(field, error))
}

pub(super) fn parse_optional_field<T>(field: &str, text: Option<&str>) -> FieldResult<Option<T>>
where
    T: FromStr<Err: Into<StatusProblem>>,
{
    text.map(|text| parse_field(field, text)).transpose()
}

pub(super) fn required<T>(field: &str, value: Option<T>) -> FieldResult<T> {
    value.ok_or_else(|| FieldError::new(field, StatusProblem::Missing))
}

pub(super) fn at_most(field: &str, number: u32, largest: u32) -> FieldResult<u32> {
    if number > largest {
        return Err(FieldError::new(field, StatusProblem::TooLarge { number, largest }));
    }
    Ok(number)
}

/// Checks an optional percentage.
pub(super) fn percent(field: &str, number: Option<u32>) -> FieldResult<Option<u8>> {
    let number = number.map(|number| at_most(field, number, 100)).transpose()?;
    // Values up to 100 fit in a `u8`.
    Ok(number.map(|number| u8::try_from(number).unwrap_or(u8::MAX)))
}

pub(super) fn unknown_enum_value<T>(field: &str, number: i32) -> FieldResult<T> {
    Err(FieldError::new(field, StatusProblem::UnknownEnumValue(number)))
}

/// An invalid part, with the location of the error such as `mig.gpu_instances[2].placement`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("invalid part {part} of a status{}{field}", if .field.is_empty() { "" } else { ", at " })]
pub struct StatusError {
    /// The key of the part.
    pub part: PartKey,
    /// The field of the part, such as `mig.gpu_instances[2].placement`; empty if the part as a whole is invalid.
    pub field: String,
    /// Reason why it is invalid.
    #[source]
    pub problem: StatusProblem,
}

/// Reason why a part is invalid.
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
