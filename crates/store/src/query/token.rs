//! Continuation tokens.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use octavo_model::digest::Digest;
use octavo_model::id::{NodeName, TypeName};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Query, Sort};
use crate::page_token;

/// Position after the last node of a page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContinueToken {
    /// Digest of the filters that the token belongs to.
    filter: u64,
    /// Order that the token belongs to.
    sort: Sort,
    last: LastNode,
}

/// Last node of a page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LastNode {
    /// Sort key.
    pub(super) rank: Rank<'static>,
    pub(super) name: NodeName,
}

/// Sort key of a node. In one order, all ranks are numbers, or all are texts or nameless.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Rank<'a> {
    Number(u64),
    Text(Cow<'a, str>),
    /// Sorts after every name.
    Untyped,
}

/// Error of a continuation token.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TokenError {
    /// Malformed token.
    #[error("the value is not from the field `continue` of a response")]
    Malformed,
    /// Token of a query with other filters.
    #[error("the value belongs to a request with other values of {0}")]
    OtherFilter(&'static str),
    /// Token of a query with another order.
    #[error("the value belongs to a request with sort={given}, not sort={requested}")]
    OtherSort {
        /// Order that the token belongs to.
        given: Sort,
        /// Requested order.
        requested: Sort,
    },
}

impl ContinueToken {
    pub(super) fn new(query: &Query, rank: Rank<'static>, name: NodeName) -> Self {
        Self { filter: filter_digest(query), sort: query.sort, last: LastNode { rank, name } }
    }

    pub(super) fn last(&self) -> &LastNode {
        &self.last
    }

    /// Checks that the token belongs to this query.
    pub(super) fn check(&self, query: &Query) -> Result<(), TokenError> {
        if self.sort != query.sort {
            return Err(TokenError::OtherSort { given: self.sort, requested: query.sort });
        }
        if self.filter != filter_digest(query) {
            return Err(TokenError::OtherFilter(
                "search, type, state, problem, sharing, layout, layoutState or selector",
            ));
        }
        Ok(())
    }
}

/// Digest of the filters, independent of the order of their values.
fn filter_digest(query: &Query) -> u64 {
    // Every field is named, so that a new filter does not compile until it is part of the digest.
    let Query {
        search,
        types,
        states,
        problems,
        sharing,
        layouts,
        layout_states,
        selector,
        sort: _,
        limit: _,
        after: _,
    } = query;
    let mut types: Vec<&str> =
        types.iter().map(|one| one.as_ref().map_or("", TypeName::as_str)).collect();
    types.sort_unstable();
    let mut states = states.clone();
    states.sort_unstable();
    let mut problems = problems.clone();
    problems.sort_unstable();
    let mut sharing = sharing.clone();
    sharing.sort_unstable();
    let mut layouts: Vec<&str> = layouts.iter().map(String::as_str).collect();
    layouts.sort_unstable();
    let mut layout_states = layout_states.clone();
    layout_states.sort_unstable();
    let filters = format!(
        "{search:?} {types:?} {states:?} {problems:?} {sharing:?} {layouts:?} {layout_states:?} {selector}"
    );
    Digest::from_bytes(filters.as_bytes()).get()
}

impl Rank<'_> {
    pub(super) fn number(number: usize) -> Self {
        Self::Number(u64::try_from(number).unwrap_or(u64::MAX))
    }

    pub(super) fn owned(&self) -> Rank<'static> {
        match self {
            Self::Number(number) => Rank::Number(*number),
            Self::Text(text) => Rank::Text(Cow::Owned(text.clone().into_owned())),
            Self::Untyped => Rank::Untyped,
        }
    }
}

impl fmt::Display for ContinueToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&page_token::encode(self))
    }
}

impl FromStr for ContinueToken {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        page_token::decode(text).ok_or(TokenError::Malformed)
    }
}
