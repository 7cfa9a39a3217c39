//! Decoding of single fields, with errors that contain the field name.

use std::str::FromStr;

use super::error::{FieldError, StatusProblem};
use crate::domain::text::beginning;

/// Maximum length of a parsed identifier, version or name. An error repeats the rejected text.
const LONGEST: usize = 320;

/// A decoded value, or the invalid field.
pub(super) type Read<T> = Result<T, FieldError>;

/// Checks that a list has at most `limit` items.
pub(super) fn bounded<M>(field: &str, limit: usize, items: Vec<M>) -> Read<Vec<M>> {
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
    convert: impl Fn(M) -> Read<T>,
) -> Read<Vec<T>> {
    let numbered = bounded(field, limit, items)?.into_iter().enumerate();
    numbered
        .map(|(number, item)| {
            convert(item).map_err(|error| error.within(&format!("{field}[{number}]")))
        })
        .collect()
}

pub(super) fn short<'a>(field: &str, text: &'a str) -> Read<&'a str> {
    if text.len() > LONGEST {
        let length = text.len();
        return Err(FieldError::new(field, StatusProblem::TooLong { length }));
    }
    Ok(text)
}

/// Checks that a text has at most `most` bytes.
pub(super) fn text(field: &str, most: usize, text: String) -> Read<String> {
    if text.len() > most {
        let length = text.len();
        return Err(FieldError::new(field, StatusProblem::TooLong { length }));
    }
    Ok(text)
}

/// Truncates a text from a driver or a kernel. A long text must not prevent its node from reporting.
pub(super) fn cut(most: usize, text: String) -> String {
    if text.len() > most {
        beginning(&text, most)
    } else {
        text
    }
}

/// Truncates an optional text.
pub(super) fn cut_if_there(most: usize, text: Option<String>) -> Option<String> {
    text.map(|text| cut(most, text))
}

pub(super) fn text_if_there(
    field: &str,
    most: usize,
    value: Option<String>,
) -> Read<Option<String>> {
    value.map(|value| text(field, most, value)).transpose()
}

pub(super) fn parsed<T>(field: &str, text: &str) -> Read<T>
where
    T: FromStr<Err: Into<StatusProblem>>,
{
    short(field, text)?
        .parse()
        .map_err(|error| FieldError::new(field, error))
}

pub(super) fn parsed_if_there<T>(field: &str, text: Option<&str>) -> Read<Option<T>>
where
    T: FromStr<Err: Into<StatusProblem>>,
{
    text.map(|text| parsed(field, text)).transpose()
}

/// Parses two numbers separated by a point, such as `12.8`.
pub(super) fn two_numbers(field: &str, text: &str, expected: &'static str) -> Read<(u32, u32)> {
    let number = |part: &str| {
        let digits = part.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| part.parse::<u32>().ok()).flatten()
    };
    short(field, text)?
        .split_once('.')
        .and_then(|(major, minor)| Some((number(major)?, number(minor)?)))
        .ok_or_else(|| {
            let text = text.to_owned();
            FieldError::new(field, StatusProblem::Text { text, expected })
        })
}

pub(super) fn there<T>(field: &str, value: Option<T>) -> Read<T> {
    value.ok_or_else(|| FieldError::new(field, StatusProblem::Missing))
}

pub(super) fn within(field: &str, number: u32, largest: u32) -> Read<u32> {
    if number > largest {
        return Err(FieldError::new(
            field,
            StatusProblem::TooLarge { number, largest },
        ));
    }
    Ok(number)
}

pub(super) fn strange<T>(field: &str, number: i32) -> Read<T> {
    Err(FieldError::new(field, StatusProblem::Choice(number)))
}
