//! Decoding of single fields, with errors that contain the field name.

use std::str::FromStr;

use octavo_model::text::truncate;

use super::error::{FieldError, StatusProblem};

/// Maximum length of a parsed identifier, version or name. An error repeats the rejected text.
const MAX_PARSED_BYTES: usize = 320;

/// A decoded value, or the invalid field.
pub(super) type FieldResult<T> = Result<T, FieldError>;

/// Checks that a list has at most `limit` items.
pub(super) fn bounded<M>(field: &str, limit: usize, items: Vec<M>) -> FieldResult<Vec<M>> {
    if items.len() > limit {
        let count = items.len();
        return Err(FieldError::new(
            field,
            StatusProblem::TooMany { count, limit },
        ));
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

pub(super) fn check_length<'a>(field: &str, text: &'a str) -> FieldResult<&'a str> {
    if text.len() > MAX_PARSED_BYTES {
        let length = text.len();
        return Err(FieldError::new(field, StatusProblem::TooLong { length }));
    }
    Ok(text)
}

/// Checks that a text has at most `most` bytes.
pub(super) fn bounded_text(field: &str, most: usize, text: String) -> FieldResult<String> {
    if text.len() > most {
        let length = text.len();
        return Err(FieldError::new(field, StatusProblem::TooLong { length }));
    }
    Ok(text)
}

/// Truncates a text from a driver or a kernel. A long text must not prevent its node from reporting.
pub(super) fn truncate_to(most: usize, text: String) -> String {
    if text.len() > most {
        truncate(&text, most)
    } else {
        text
    }
}

/// Truncates an optional text.
pub(super) fn truncate_optional(most: usize, text: Option<String>) -> Option<String> {
    text.map(|text| truncate_to(most, text))
}

pub(super) fn optional_text(
    field: &str,
    most: usize,
    value: Option<String>,
) -> FieldResult<Option<String>> {
    value
        .map(|value| bounded_text(field, most, value))
        .transpose()
}

pub(super) fn parse_field<T>(field: &str, text: &str) -> FieldResult<T>
where
    T: FromStr<Err: Into<StatusProblem>>,
{
    check_length(field, text)?
        .parse()
        .map_err(|error| FieldError::new(field, error))
}

pub(super) fn parse_optional_field<T>(field: &str, text: Option<&str>) -> FieldResult<Option<T>>
where
    T: FromStr<Err: Into<StatusProblem>>,
{
    text.map(|text| parse_field(field, text)).transpose()
}

/// Parses two numbers separated by a point, such as `12.8`.
pub(super) fn two_numbers(
    field: &str,
    text: &str,
    expected: &'static str,
) -> FieldResult<(u32, u32)> {
    let number = |part: &str| {
        let digits = part.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| part.parse::<u32>().ok()).flatten()
    };
    check_length(field, text)?
        .split_once('.')
        .and_then(|(major, minor)| Some((number(major)?, number(minor)?)))
        .ok_or_else(|| {
            let text = text.to_owned();
            FieldError::new(field, StatusProblem::UnexpectedText { text, expected })
        })
}

pub(super) fn required<T>(field: &str, value: Option<T>) -> FieldResult<T> {
    value.ok_or_else(|| FieldError::new(field, StatusProblem::Missing))
}

pub(super) fn at_most(field: &str, number: u32, largest: u32) -> FieldResult<u32> {
    if number > largest {
        return Err(FieldError::new(
            field,
            StatusProblem::TooLarge { number, largest },
        ));
    }
    Ok(number)
}

pub(super) fn unknown_enum_value<T>(field: &str, number: i32) -> FieldResult<T> {
    Err(FieldError::new(
        field,
        StatusProblem::UnknownEnumValue(number),
    ))
}
