//! Decoding of single fields, with errors that contain the field name.

use std::str::FromStr;

use octavo_model::text::truncate;
use octavo_model::text::{MAX_TEXT_BYTES, MAX_WORD_BYTES};

use super::error::{FieldError, StatusProblem};

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
