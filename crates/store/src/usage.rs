//! Usage by pod over the whole fleet: filter, order and pagination. Pure.
//!
//! Usage is decoded from the nodes' parts on request, by a [`Search`] that reads as few nodes as possible, in small
//! steps. A page ends with a [`ContinueToken`] that contains the last row, so that unchanged rows are neither repeated nor
//! skipped. A [`summary::Summary`] covers all rows.

mod search;
pub mod summary;
mod token;

use octavo_fleet::usage::UsageRow;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

pub use self::search::Search;
pub use self::token::ContinueToken;
use super::query::parse::{parse_limit, parse_name, parse_word, set_each};
use super::query::{DEFAULT_LIMIT, QueryError};

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
    /// Number of rows per page, 1 to [`MAX_LIMIT`](crate::query::MAX_LIMIT).
    pub limit: usize,
    /// Position where the page begins; `None` for the first page.
    pub after: Option<ContinueToken>,
}

/// Order of rows. Ties are ordered by node, then by device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Sort {
    /// Name of the node.
    #[default]
    Node,
    /// Used memory, in descending order.
    Memory,
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

impl Query {
    /// Parses the parameters in `pairs`. A parameter without a value counts as absent.
    pub fn parse(pairs: impl IntoIterator<Item = (String, String)>) -> Result<Self, QueryError> {
        let mut query = Self::default();
        set_each(pairs, &[], |name, value| query.set(name, value))?;
        if let Some(token) = &query.after {
            token.check(&query).map_err(QueryError::Continue)?;
        }
        Ok(query)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), QueryError> {
        let is_there = !value.is_empty();
        match name {
            "node" => self.node = optional_name("node", value)?,
            "namespace" => self.namespace = optional_name("namespace", value)?,
            "pod" => self.pod = optional_name("pod", value)?,
            "over" if is_there => {
                let over = value.parse();
                self.over =
                    Some(over.map_err(|_| QueryError::value("over", value, "true, false"))?);
            }
            "sort" if is_there => self.sort = parse_word("sort", value, Sort::ALL, Sort::as_str)?,
            "limit" if is_there => self.limit = parse_limit(value)?,
            "continue" if is_there => {
                self.after = Some(value.parse().map_err(QueryError::Continue)?);
            }
            "over" | "sort" | "limit" | "continue" => {}
            _ => return Err(QueryError::unknown(name, PARAMETERS)),
        }
        Ok(())
    }

    fn matches(&self, row: &UsageRow) -> bool {
        let is = |wanted: &Option<String>, has: &Option<String>| wanted.is_none() || wanted == has;
        is(&self.namespace, &row.tenant.namespace)
            && is(&self.pod, &row.tenant.pod)
            && self.over.is_none_or(|over| over == row.tenant.is_over_share)
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
        self.into()
    }
}

/// Parses a name; an empty one counts as absent.
fn optional_name(parameter: &'static str, value: &str) -> Result<Option<String>, QueryError> {
    Ok(Some(parse_name(parameter, value)?).filter(|name| !name.is_empty()).map(str::to_owned))
}

#[cfg(test)]
mod tests;
