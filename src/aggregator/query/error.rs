//! What can be wrong with a query.

use thiserror::Error;

use super::selector::SelectorError;
use super::token::TokenError;
use crate::domain::id::IdError;

/// A parameter that queries have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parameter {
    /// A part of the name.
    Search,
    /// Types.
    Type,
    /// How nodes are.
    State,
    /// How devices are given out.
    Sharing,
    /// The layout.
    Layout,
    /// How nodes stand with regard to it.
    LayoutState,
    /// Labels.
    Selector,
    /// The order.
    Sort,
    /// Nodes on a page.
    Limit,
    /// Where the page begins.
    Continue,
}

/// Why a query cannot be answered.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum QueryError {
    /// There is no such parameter.
    #[error(
        "there is no parameter {name:?}; did you mean {nearest}? There are {}",
        known()
    )]
    Unknown {
        /// As it was given.
        name: String,
        /// The one that it is most like.
        nearest: &'static str,
    },
    /// A parameter that can be given once.
    #[error("the parameter {0} can be given once")]
    Repeated(&'static str),
    /// A value that is none of those there are.
    #[error("the parameter {parameter} cannot be {value:?}; it can be {allowed}")]
    Value {
        /// Of which parameter.
        parameter: &'static str,
        /// As it was given.
        value: String,
        /// What it can be.
        allowed: String,
    },
    /// A type that cannot be the name of one.
    #[error(
        "the parameter type cannot be {value:?}; it can be `unknown` or a type like nvidia-h200-141gb"
    )]
    Type {
        /// As it was given.
        value: String,
        /// Why not.
        source: IdError,
    },
    /// A label selector that cannot be read.
    #[error("the parameter selector cannot be read")]
    Selector(#[source] SelectorError),
    /// A continuation token that cannot be used.
    #[error("the parameter continue cannot be used; begin again without it")]
    Continue(#[source] TokenError),
}

impl Parameter {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Search,
        Self::Type,
        Self::State,
        Self::Sharing,
        Self::Layout,
        Self::LayoutState,
        Self::Selector,
        Self::Sort,
        Self::Limit,
        Self::Continue,
    ];

    /// The name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Search => "search",
            Self::Type => "type",
            Self::State => "state",
            Self::Sharing => "sharing",
            Self::Layout => "layout",
            Self::LayoutState => "layoutState",
            Self::Selector => "selector",
            Self::Sort => "sort",
            Self::Limit => "limit",
            Self::Continue => "continue",
        }
    }
}

impl QueryError {
    /// The parameter that is wrong, as it was given.
    pub fn parameter(&self) -> &str {
        match self {
            Self::Unknown { name, .. } => name,
            Self::Repeated(parameter) | Self::Value { parameter, .. } => parameter,
            Self::Type { .. } => Parameter::Type.as_str(),
            Self::Selector(_) => Parameter::Selector.as_str(),
            Self::Continue(_) => Parameter::Continue.as_str(),
        }
    }

    /// That there is no parameter `name`. Only its beginning is repeated: it may be as long as its sender liked.
    pub(super) fn unknown(name: &str) -> Self {
        let name: String = name.chars().take(LONGEST_REPEATED).collect();
        let nearest = Parameter::ALL
            .iter()
            .map(|known| known.as_str())
            .min_by_key(|known| distance(&name, known));
        Self::Unknown {
            nearest: nearest.unwrap_or_default(),
            name,
        }
    }

    pub(super) fn value(parameter: Parameter, value: &str, allowed: impl Into<String>) -> Self {
        Self::Value {
            parameter: parameter.as_str(),
            value: value.chars().take(LONGEST_REPEATED).collect(),
            allowed: allowed.into(),
        }
    }
}

/// Characters of a value that an error repeats.
pub(super) const LONGEST_REPEATED: usize = 64;

fn known() -> String {
    Parameter::ALL.map(Parameter::as_str).join(", ")
}

/// How many characters must be put in, taken out or replaced to make `to` of `from` (Levenshtein).
fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (line, here) in from.chars().enumerate() {
        let mut left = line.saturating_add(1);
        let mut diagonal = line;
        for (place, there) in row
            .iter_mut()
            .zip(std::iter::once(None).chain(to.chars().map(Some)))
        {
            let above = *place;
            *place = match there {
                None => left,
                Some(there) => {
                    let replaced = diagonal.saturating_add(usize::from(here != there));
                    replaced
                        .min(above.saturating_add(1))
                        .min(left.saturating_add(1))
                }
            };
            left = *place;
            diagonal = above;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_is_the_number_of_edits() {
        for (from, to, edits) in [
            ("", "", 0),
            ("", "sort", 4),
            ("sort", "", 4),
            ("sort", "sort", 0),
            ("srot", "sort", 2),
            ("kitten", "sitting", 3),
            ("states", "state", 1),
        ] {
            assert_eq!(distance(from, to), edits, "{from} {to}");
        }
    }

    #[test]
    fn an_unknown_parameter_is_answered_with_the_nearest() {
        for (name, nearest) in [
            ("types", "type"),
            ("limt", "limit"),
            ("q", "type"),
            ("labelSelector", "selector"),
        ] {
            let error = QueryError::unknown(name);
            assert!(
                error
                    .to_string()
                    .contains(&format!("did you mean {nearest}?")),
                "{error}"
            );
        }
    }
}
