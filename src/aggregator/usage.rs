//! Who uses what over the fleet: filter, order, page. Pure.
//!
//! Who it is is not kept ready: it is read from the nodes' parts when somebody asks, by a [`Search`], which reads no more nodes than
//! it must, and a few at a time. A page ends with a [`Token`] that says who was last, so that who stayed is neither repeated nor
//! lost. A [`summary::Summary`] is of all of them.

mod search;
pub mod summary;
mod token;

use thiserror::Error;

pub use self::search::Search;
pub use self::token::{Token, TokenError};
use super::query::{DEFAULT_LIMIT, MAX_LIMIT};
use crate::domain::fleet::LONGEST_WORD;
use crate::wire::usage::UsageRow;

/// Which containers, in which order, how many. All filters must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// The name of a node.
    pub node: Option<String>,
    /// A namespace.
    pub namespace: Option<String>,
    /// The name of a pod.
    pub pod: Option<String>,
    /// Whether they use more than their share.
    pub over: Option<bool>,
    /// The order.
    pub sort: Sort,
    /// Rows on a page, 1 to [`MAX_LIMIT`].
    pub limit: usize,
    /// Where the page begins; at the start if absent.
    pub after: Option<Token>,
}

/// What rows are ordered by; equal ones by node, then by device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sort {
    /// The node's name.
    #[default]
    Node,
    /// Who uses most memory first.
    Memory,
}

/// Why a query cannot be answered.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UsageQueryError {
    /// There is no such parameter.
    #[error("there is no parameter {0:?}; there are {PARAMETERS}")]
    Unknown(String),
    /// A parameter that can be given once.
    #[error("the parameter {0} can be given once")]
    Repeated(String),
    /// A value that is none of those there are.
    #[error("the parameter {parameter} cannot be {value:?}; it can be {allowed}")]
    Value {
        /// Of which parameter.
        parameter: &'static str,
        /// As it was given, or its beginning.
        value: String,
        /// What it can be.
        allowed: String,
    },
    /// A continuation token that cannot be used.
    #[error("the parameter continue cannot be used; begin again without it")]
    Continue(#[source] TokenError),
}

/// One page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Its rows, in order. There may be fewer than were asked for, even none, while there is a next page.
    pub items: Vec<UsageRow>,
    /// Where the next page begins; `None` on the last.
    pub next: Option<Token>,
}

const PARAMETERS: &str = "node, namespace, pod, over, sort, limit, continue";
/// Characters of what was given that an error repeats.
const LONGEST_REPEATED: usize = 64;

impl Query {
    /// Of the parameters in `pairs`. One without a value counts as absent.
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
            token.fits(&query).map_err(UsageQueryError::Continue)?;
        }
        Ok(query)
    }

    fn take(&mut self, name: &str, value: &str) -> Result<(), UsageQueryError> {
        let is_there = !value.is_empty();
        match name {
            "node" => self.node = word("node", value)?,
            "namespace" => self.namespace = word("namespace", value)?,
            "pod" => self.pod = word("pod", value)?,
            "over" if is_there => {
                let parsed = value.parse().ok();
                let over = parsed.ok_or_else(|| refused("over", value, "true, false"))?;
                self.over = Some(over);
            }
            "sort" if is_there => {
                let mut all = Sort::ALL.into_iter();
                let sort = all.find(|sort| sort.as_str() == value);
                let words = Sort::ALL.map(Sort::as_str).join(", ");
                self.sort = sort.ok_or_else(|| refused("sort", value, &words))?;
            }
            "limit" if is_there => {
                let number = value.parse().ok();
                let limit = number.filter(|limit| (1..=MAX_LIMIT).contains(limit));
                let allowed = format!("1 to {MAX_LIMIT}");
                self.limit = limit.ok_or_else(|| refused("limit", value, &allowed))?;
            }
            "continue" if is_there => {
                self.after = Some(value.parse().map_err(UsageQueryError::Continue)?);
            }
            "over" | "sort" | "limit" | "continue" => {}
            _ => return Err(UsageQueryError::Unknown(beginning(name))),
        }
        Ok(())
    }

    fn lets_through(&self, row: &UsageRow) -> bool {
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
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Node, Self::Memory];

    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Memory => "memory",
        }
    }
}

impl UsageQueryError {
    /// The parameter that is wrong.
    pub fn parameter(&self) -> &str {
        match self {
            Self::Unknown(name) | Self::Repeated(name) => name,
            Self::Value { parameter, .. } => parameter,
            Self::Continue(_) => "continue",
        }
    }
}

fn word(parameter: &'static str, value: &str) -> Result<Option<String>, UsageQueryError> {
    if value.len() > LONGEST_WORD {
        let allowed = format!("a name of at most {LONGEST_WORD} bytes");
        return Err(refused(parameter, value, &allowed));
    }
    Ok((!value.is_empty()).then(|| value.to_owned()))
}

fn refused(parameter: &'static str, value: &str, allowed: &str) -> UsageQueryError {
    UsageQueryError::Value {
        parameter,
        value: beginning(value),
        allowed: allowed.to_owned(),
    }
}

fn beginning(text: &str) -> String {
    text.chars().take(LONGEST_REPEATED).collect()
}

#[cfg(test)]
mod tests;
