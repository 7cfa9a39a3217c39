//! Errors of parsing a query.

use octavo_model::id::IdError;
use thiserror::Error;

use super::selector::SelectorError;
use super::token::TokenError;

/// Query parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parameter {
    /// Substring of the name.
    Search,
    /// Types.
    Type,
    /// States of nodes.
    State,
    /// Sharing modes.
    Sharing,
    /// Layout names.
    Layout,
    /// Layout states.
    LayoutState,
    /// Label selector.
    Selector,
    /// Order.
    Sort,
    /// Number of nodes per page.
    Limit,
    /// Position where the page begins.
    Continue,
}

/// Error of parsing a query.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum QueryError {
    /// Unknown parameter.
    #[error(
        "there is no parameter {name:?}; did you mean {nearest}? There are {}",
        known()
    )]
    Unknown {
        /// Name, truncated.
        name: String,
        /// Most similar known parameter.
        nearest: &'static str,
    },
    /// Repeated parameter that allows one value.
    #[error("the parameter {0} can be given once")]
    Repeated(&'static str),
    /// Invalid value.
    #[error("the parameter {parameter} cannot be {value:?}; it can be {allowed}")]
    Value {
        /// Name of the parameter.
        parameter: &'static str,
        /// The value, truncated.
        value: String,
        /// Valid values.
        allowed: String,
    },
    /// Invalid type name.
    #[error(
        "the parameter type cannot be {value:?}; it can be `unknown` or a type like nvidia-h200-141gb"
    )]
    Type {
        /// The value, truncated.
        value: String,
        /// Reason.
        source: IdError,
    },
    /// Invalid label selector.
    #[error("the parameter selector cannot be read")]
    Selector(#[source] SelectorError),
    /// Invalid continuation token.
    #[error("the parameter continue cannot be used; begin again without it")]
    Continue(#[source] TokenError),
}

impl Parameter {
    /// All parameters.
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

    /// Name of the parameter.
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
    /// Name of the invalid parameter.
    pub fn parameter(&self) -> &str {
        match self {
            Self::Unknown { name, .. } => name,
            Self::Repeated(parameter) | Self::Value { parameter, .. } => parameter,
            Self::Type { .. } => Parameter::Type.as_str(),
            Self::Selector(_) => Parameter::Selector.as_str(),
            Self::Continue(_) => Parameter::Continue.as_str(),
        }
    }

    /// Reports an unknown parameter. The name is truncated because its length is not limited.
    pub(super) fn unknown(name: &str) -> Self {
        let name: String = name.chars().take(MAX_ECHOED_CHARS).collect();
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
            value: value.chars().take(MAX_ECHOED_CHARS).collect(),
            allowed: allowed.into(),
        }
    }
}

/// Maximum number of characters of a value that an error repeats.
pub(super) const MAX_ECHOED_CHARS: usize = 64;

fn known() -> String {
    Parameter::ALL.map(Parameter::as_str).join(", ")
}

/// Levenshtein distance.
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
    fn distance_counts_edits() {
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
    fn unknown_parameter_suggests_the_nearest_name() {
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
