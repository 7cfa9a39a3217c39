//! Usage by pod over the whole fleet: filter, order and pagination. Pure.
//!
//! Usage is decoded from the nodes' parts on request, by a [`Search`] that reads as few nodes as possible, in small
//! steps. A page ends with a [`ContinueToken`] that contains the last row, so that unchanged rows are neither repeated nor
//! skipped. A [`summary::Summary`] covers all rows.

mod search;
pub mod summary;
mod token;

use octavo_documents::usage::UsageRow;
use octavo_fleet::fleet::MAX_WORD_BYTES;
use thiserror::Error;

pub use self::search::Search;
pub use self::token::{ContinueToken, TokenError};
use super::query::{DEFAULT_LIMIT, MAX_LIMIT};

/// Filters, order and page size. A row must satisfy all filters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// Node name.
    pub node: Option<String>,
    /// Namespace.
    pub namespace: Option<String>,
    /// Pod name.
    pub pod: Option<String>,
    /// Whether the container exceeds its share.
    pub over: Option<bool>,
    /// Order.
    pub sort: Sort,
    /// Number of rows per page, 1 to [`MAX_LIMIT`].
    pub limit: usize,
    /// Position where the page begins; `None` for the first page.
    pub after: Option<ContinueToken>,
}

/// Order of rows. Ties are ordered by node, then by device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sort {
    /// Name of the node.
    #[default]
    Node,
    /// Used memory, in descending order.
    Memory,
}

/// Error of parsing a query.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UsageQueryError {
    /// Unknown parameter.
    #[error("there is no parameter {0:?}; there are {PARAMETERS}")]
    Unknown(String),
    /// Repeated parameter.
    #[error("the parameter {0} can be given once")]
    Repeated(String),
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
    /// Invalid continuation token.
    #[error("the parameter continue cannot be used; begin again without it")]
    Continue(#[source] TokenError),
}

/// Page of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Rows in order. A page may have fewer rows than requested, or none, even if there is a next page.
    pub items: Vec<UsageRow>,
    /// Position of the next page; `None` on the last page.
    pub next: Option<ContinueToken>,
}

const PARAMETERS: &str = "node, namespace, pod, over, sort, limit, continue";
/// Maximum length of a value repeated in an error, in characters.
const MAX_ECHOED_CHARS: usize = 64;

impl Query {
    /// Parses the parameters in `pairs`. A parameter without a value counts as absent.
    pub fn parse(
        pairs: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, UsageQueryError> {
        let mut query = Self::default();
        let mut seen: Vec<String> = Vec::new();
        for (name, value) in pairs {
            query.take(&name, value.trim())?;
            if seen.contains(&name) {
                return Err(UsageQueryError::Repeated(name));
            }
            seen.push(name);
        }
        if let Some(token) = &query.after {
            token.check(&query).map_err(UsageQueryError::Continue)?;
        }
        Ok(query)
    }

    fn take(&mut self, name: &str, value: &str) -> Result<(), UsageQueryError> {
        let is_there = !value.is_empty();
        match name {
            "node" => self.node = parse_name("node", value)?,
            "namespace" => self.namespace = parse_name("namespace", value)?,
            "pod" => self.pod = parse_name("pod", value)?,
            "over" if is_there => {
                let parsed = value.parse().ok();
                let over = parsed.ok_or_else(|| invalid_value("over", value, "true, false"))?;
                self.over = Some(over);
            }
            "sort" if is_there => {
                let mut all = Sort::ALL.into_iter();
                let sort = all.find(|sort| sort.as_str() == value);
                let words = Sort::ALL.map(Sort::as_str).join(", ");
                self.sort = sort.ok_or_else(|| invalid_value("sort", value, &words))?;
            }
            "limit" if is_there => {
                let number = value.parse().ok();
                let limit = number.filter(|limit| (1..=MAX_LIMIT).contains(limit));
                let allowed = format!("1 to {MAX_LIMIT}");
                self.limit = limit.ok_or_else(|| invalid_value("limit", value, &allowed))?;
            }
            "continue" if is_there => {
                self.after = Some(value.parse().map_err(UsageQueryError::Continue)?);
            }
            "over" | "sort" | "limit" | "continue" => {}
            _ => return Err(UsageQueryError::Unknown(truncated(name))),
        }
        Ok(())
    }

    fn matches(&self, row: &UsageRow) -> bool {
        let is = |wanted: &Option<String>, has: &Option<String>| wanted.is_none() || wanted == has;
        is(&self.namespace, &row.tenant.namespace)
            && is(&self.pod, &row.tenant.pod)
            && self.over.is_none_or(|over| over == row.tenant.over)
    }
}

impl Default for Query {
    fn default() -> Self {
        Self {
            node: None,
            namespace: None,
            pod: None,
            over: None,
            sort: Sort::default(),
            limit: DEFAULT_LIMIT,
            after: None,
        }
    }
}

impl Sort {
    /// All orders.
    pub const ALL: [Self; 2] = [Self::Node, Self::Memory];

    /// Value in the parameter.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Memory => "memory",
        }
    }
}

impl UsageQueryError {
    /// Name of the invalid parameter.
    pub fn parameter(&self) -> &str {
        match self {
            Self::Unknown(name) | Self::Repeated(name) => name,
            Self::Value { parameter, .. } => parameter,
            Self::Continue(_) => "continue",
        }
    }
}

fn parse_name(parameter: &'static str, value: &str) -> Result<Option<String>, UsageQueryError> {
    if value.len() > MAX_WORD_BYTES {
        let allowed = format!("a name of at most {MAX_WORD_BYTES} bytes");
        return Err(invalid_value(parameter, value, &allowed));
    }
    Ok((!value.is_empty()).then(|| value.to_owned()))
}

fn invalid_value(parameter: &'static str, value: &str, allowed: &str) -> UsageQueryError {
    UsageQueryError::Value {
        parameter,
        value: truncated(value),
        allowed: allowed.to_owned(),
    }
}

fn truncated(text: &str) -> String {
    text.chars().take(MAX_ECHOED_CHARS).collect()
}

#[cfg(test)]
mod tests;
