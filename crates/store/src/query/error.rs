//! Errors of parsing query parameters.

use octavo_model::id::ParseError;
use thiserror::Error;

use super::selector::SelectorError;
use super::token::TokenError;

/// Names of all parameters.
pub(super) const PARAMETERS: [&str; 11] = [
    "search",
    "type",
    "state",
    "problem",
    "sharing",
    "layout",
    "layoutState",
    "selector",
    "sort",
    "limit",
    "continue",
];

/// Error of parsing query parameters.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum QueryError {
    /// Unknown parameter.
    #[error("unknown parameter {name:?}; valid parameters: {}", if .known.is_empty() { "none" } else { .known })]
    Unknown {
        /// Name, truncated.
        name: String,
        /// Known parameters.
        known: &'static str,
    },
    /// Unknown parameter of the list of nodes.
    #[error("unknown parameter {name:?}; did you mean {nearest}? Valid parameters: {}", PARAMETERS.join(", "))]
    Misspelled {
        /// Name, truncated.
        name: String,
        /// Most similar known parameter.
        nearest: &'static str,
    },
    /// Repeated parameter that allows one value.
    #[error("the parameter {0} can be given only once")]
    Repeated(String),
    /// Too many values of a parameter.
    #[error("the parameter {parameter} has more than {most} values")]
    TooMany {
        /// Name of the parameter.
        parameter: &'static str,
        /// Maximum number of values.
        most: usize,
    },
    /// Answer that would be too large.
    #[error(
        "the answer would have more than {most} values; set a longer step or another groupBy, or filter by node, type or \
         selector"
    )]
    TooManyValues {
        /// Maximum number of values.
        most: usize,
    },
    /// Answer with too many groups.
    #[error(
        "the devices have more than {most} types; set another groupBy, or filter by node, type or selector"
    )]
    TooManyTypes {
        /// Maximum number of types.
        most: usize,
    },
    /// Invalid value.
    #[error("the parameter {parameter} cannot be {value:?}; valid values: {allowed}")]
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
        "the parameter type cannot be {value:?}; use `unknown` or a type such as nvidia-h200-141gb"
    )]
    Type {
        /// The value, truncated.
        value: String,
        /// Reason.
        source: ParseError,
    },
    /// Invalid label selector.
    #[error("the parameter selector is invalid")]
    Selector(#[source] SelectorError),
    /// Invalid continuation token.
    #[error("the parameter continue is invalid; restart from the first page without it")]
    Continue(#[source] TokenError),
}

impl QueryError {
    /// Name of the invalid parameter.
    pub fn parameter(&self) -> &str {
        match self {
            Self::Unknown { name, .. } | Self::Misspelled { name, .. } | Self::Repeated(name) => {
                name
            }
            Self::TooMany { parameter, .. } | Self::Value { parameter, .. } => parameter,
            Self::TooManyValues { .. } | Self::TooManyTypes { .. } => "groupBy",
            Self::Type { .. } => "type",
            Self::Selector(_) => "selector",
            Self::Continue(_) => "continue",
        }
    }

    /// Reports an unknown parameter. The name is truncated because its length is not limited.
    pub(crate) fn unknown(name: &str, known: &'static str) -> Self {
        Self::Unknown { name: truncated(name), known }
    }

    /// Reports an unknown parameter of the list of nodes, with the most similar one.
    pub(super) fn misspelled(name: &str) -> Self {
        let name = truncated(name);
        let nearest = PARAMETERS.into_iter().min_by_key(|known| strsim::levenshtein(&name, known));
        Self::Misspelled { nearest: nearest.unwrap_or_default(), name }
    }

    /// Reports an invalid value.
    pub(crate) fn value(parameter: &'static str, value: &str, allowed: impl Into<String>) -> Self {
        Self::Value { parameter, value: truncated(value), allowed: allowed.into() }
    }
}

/// The first 64 characters.
pub(super) fn truncated(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_parameter_suggests_the_nearest_name() {
        for (name, nearest) in
            [("types", "type"), ("limt", "limit"), ("q", "type"), ("labelSelector", "selector")]
        {
            let error = QueryError::misspelled(name);
            assert!(error.to_string().contains(&format!("did you mean {nearest}?")), "{error}");
        }
    }
}
