//! Parser of query parameters.

use octavo_fleet::summary::{NodeState, Sharing};
use octavo_model::id::TypeName;
use octavo_model::reason::Reason;
use octavo_model::text::MAX_WORD_BYTES;
use octavo_planner::reconcile::ApplyState;

use super::error::{PARAMETERS, QueryError, truncated};
use super::token::ContinueToken;
use super::{MAX_LIMIT, Query, Sort, SortKey};

/// Parameters that can be repeated and accept comma-separated values.
const LISTS: [&str; 6] = ["type", "state", "problem", "sharing", "layout", "layoutState"];
/// Value for devices of unknown type.
const UNKNOWN_TYPE: &str = "unknown";
/// Value for nodes whose layout does not affect any device.
pub const NO_STATE: &str = "none";

impl Query {
    /// Parses the parameters in `pairs`. A parameter without a value counts as absent, because forms send empty fields
    /// that way.
    pub fn parse(pairs: impl IntoIterator<Item = (String, String)>) -> Result<Self, QueryError> {
        let mut query = Self::default();
        let mut seen: Vec<String> = Vec::new();
        for (name, value) in pairs {
            if !PARAMETERS.contains(&name.as_str()) {
                return Err(QueryError::misspelled(&name));
            }
            let value = value.trim();
            if value.is_empty() {
                continue;
            }
            if !LISTS.contains(&name.as_str()) && seen.contains(&name) {
                return Err(QueryError::Repeated(name));
            }
            query.set(&name, value)?;
            seen.push(name);
        }
        if let Some(token) = &query.after {
            token.check(&query).map_err(QueryError::Continue)?;
        }
        Ok(query)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), QueryError> {
        match name {
            "search" => self.search = Some(value.to_ascii_lowercase()),
            "type" => add(&mut self.types, value, type_name)?,
            "state" => add(&mut self.states, value, |text| {
                parse_word("state", text, NodeState::ALL, NodeState::as_str)
            })?,
            "problem" => add(&mut self.problems, value, |text| {
                parse_name("problem", text).map(str::to_owned)
            })?,
            "sharing" => add(&mut self.sharing, value, |text| {
                parse_word("sharing", text, Sharing::ALL, Sharing::as_str)
            })?,
            "layout" => add(&mut self.layouts, value, layout)?,
            "layoutState" => add(&mut self.layout_states, value, layout_state)?,
            "selector" => self.selector = value.parse().map_err(QueryError::Selector)?,
            "sort" => self.sort = sort(value)?,
            "limit" => self.limit = parse_limit(value)?,
            "continue" => {
                self.after = Some(value.parse::<ContinueToken>().map_err(QueryError::Continue)?);
            }
            _ => return Err(QueryError::misspelled(name)),
        }
        Ok(())
    }
}

/// Adds the values of `list` without duplicates.
pub(crate) fn add<T: PartialEq>(
    to: &mut Vec<T>,
    list: &str,
    parse: impl Fn(&str) -> Result<T, QueryError>,
) -> Result<(), QueryError> {
    for one in list.split(',').map(str::trim).filter(|one| !one.is_empty()) {
        let one = parse(one)?;
        if !to.contains(&one) {
            to.push(one);
        }
    }
    Ok(())
}

/// Parses a type, or the word for devices of unknown type.
pub(crate) fn type_name(text: &str) -> Result<Option<TypeName>, QueryError> {
    if text == UNKNOWN_TYPE {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|source| QueryError::Type { value: truncated(text), source })
}

/// Passes the name and the trimmed value of each parameter to `set`. Only the parameters in `lists` can be repeated.
pub(crate) fn set_each(
    pairs: impl IntoIterator<Item = (String, String)>,
    lists: &[&str],
    mut set: impl FnMut(&str, &str) -> Result<(), QueryError>,
) -> Result<(), QueryError> {
    let mut seen: Vec<String> = Vec::new();
    for (name, value) in pairs {
        set(&name, value.trim())?;
        if seen.contains(&name) && !lists.contains(&name.as_str()) {
            return Err(QueryError::Repeated(name));
        }
        seen.push(name);
    }
    Ok(())
}

/// Checks that each parameter is in the list `known`, which is separated by commas, and is given once.
pub fn check_names(
    pairs: impl IntoIterator<Item = (String, String)>,
    known: &'static str,
) -> Result<(), QueryError> {
    set_each(pairs, &[], |name, _| {
        let is_known = known.split(", ").any(|one| one == name);
        if is_known { Ok(()) } else { Err(QueryError::unknown(name, known)) }
    })
}

/// Parses one of the words of `all`.
pub(crate) fn parse_word<T: Copy, const N: usize>(
    parameter: &'static str,
    text: &str,
    all: [T; N],
    word: fn(T) -> &'static str,
) -> Result<T, QueryError> {
    let found = all.into_iter().find(|one| word(*one) == text);
    found.ok_or_else(|| QueryError::value(parameter, text, all.map(word).join(", ")))
}

/// Layout names are user-defined, so an unknown one is not an error.
fn layout(text: &str) -> Result<String, QueryError> {
    parse_name("layout", text).map(str::to_owned)
}

/// Returns `text` if it is not longer than any name.
pub(crate) fn parse_name<'a>(
    parameter: &'static str,
    text: &'a str,
) -> Result<&'a str, QueryError> {
    if text.len() > MAX_WORD_BYTES {
        let allowed = format!("a name of at most {MAX_WORD_BYTES} bytes");
        return Err(QueryError::value(parameter, text, allowed));
    }
    Ok(text)
}

fn layout_state(text: &str) -> Result<Option<&'static str>, QueryError> {
    if text == NO_STATE {
        return Ok(None);
    }
    let words = ApplyState::REASONS.map(Reason::as_str);
    words.into_iter().find(|word| *word == text).map(Some).ok_or_else(|| {
        let allowed = format!("{NO_STATE}, {}", words.join(", "));
        QueryError::value("layoutState", text, allowed)
    })
}

fn sort(text: &str) -> Result<Sort, QueryError> {
    let (key, descending) = text.strip_prefix('-').map_or((text, false), |key| (key, true));
    let key = key.parse().map_err(|_unknown| {
        let keys: Vec<&str> = SortKey::ALL.iter().copied().map(SortKey::as_str).collect();
        let keys = keys.join(", ");
        let allowed = format!("{keys}, each with an optional - for descending order");
        QueryError::value("sort", text, allowed)
    })?;
    Ok(Sort { key, descending })
}

/// Parses a page size.
pub(crate) fn parse_limit(text: &str) -> Result<usize, QueryError> {
    let number = text.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
    number.ok_or_else(|| QueryError::value("limit", text, format!("1 to {MAX_LIMIT}")))
}
