//! Continuation tokens.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use octavo_model::digest::Digest;
use octavo_model::id::{NodeName, TypeName};
use thiserror::Error;

use super::Query;

/// Position after the last node of a page. The text format is `filter~sort~rank~name`, in characters that need no
/// escaping in a URL. It is opaque to clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContinueToken {
    /// Digest of the filters that the token belongs to.
    filter: Digest,
    /// Order that the token belongs to, as in the parameter.
    sort: String,
    last: LastNode,
}

/// Last node of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LastNode {
    /// Sort key.
    pub(super) rank: Rank<'static>,
    pub(super) name: NodeName,
}

/// Sort key of a node. In one order, all ranks are numbers, or all are texts or nameless.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
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
    #[error("it is not one that an answer gave as `continue`")]
    Malformed,
    /// Token of a query with other filters.
    #[error(
        "it was given for other values of search, type, state, sharing, layout, layoutState or selector"
    )]
    OtherFilter,
    /// Token of a query with another order.
    #[error("it was given for sort={given}, and this is sort={asked}")]
    OtherSort {
        /// Order that the token belongs to.
        given: String,
        /// Requested order.
        asked: String,
    },
}

impl ContinueToken {
    pub(super) fn new(query: &Query, rank: Rank<'static>, name: NodeName) -> Self {
        Self {
            filter: filter_digest(query),
            sort: query.sort.to_string(),
            last: LastNode { rank, name },
        }
    }

    pub(super) fn last(&self) -> &LastNode {
        &self.last
    }

    /// Checks that the token belongs to this query.
    pub(super) fn check(&self, query: &Query) -> Result<(), TokenError> {
        let asked = query.sort.to_string();
        if self.sort != asked {
            return Err(TokenError::OtherSort {
                given: self.sort.clone(),
                asked,
            });
        }
        if self.filter != filter_digest(query) {
            return Err(TokenError::OtherFilter);
        }
        Ok(())
    }
}

/// Digest of the filters, independent of the order of their values.
fn filter_digest(query: &Query) -> Digest {
    let mut types: Vec<&str> = query
        .types
        .iter()
        .map(|one| one.as_ref().map_or("", TypeName::as_str))
        .collect();
    types.sort_unstable();
    let mut states = query.states.clone();
    states.sort_unstable();
    let mut sharing = query.sharing.clone();
    sharing.sort_unstable();
    let mut layouts: Vec<&str> = query.layouts.iter().map(String::as_str).collect();
    layouts.sort_unstable();
    let mut stands = query.layout_states.clone();
    stands.sort_unstable();
    let search = query.search.as_deref();
    let filters = format!(
        "{search:?} {types:?} {states:?} {sharing:?} {layouts:?} {stands:?} {}",
        query.selector
    );
    Digest::from_bytes(filters.as_bytes())
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
        let Self { filter, sort, last } = self;
        write!(f, "{:016x}~{sort}~", filter.get())?;
        match &last.rank {
            Rank::Number(number) => write!(f, "n{number}")?,
            Rank::Text(text) => write!(f, "t{text}")?,
            Rank::Untyped => write!(f, "u")?,
        }
        write!(f, "~{}", last.name)
    }
}

impl FromStr for ContinueToken {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        read(text).ok_or(TokenError::Malformed)
    }
}

fn read(text: &str) -> Option<ContinueToken> {
    let mut fields = text.split('~');
    let filter = u64::from_str_radix(fields.next()?, 16).ok()?;
    let sort = fields.next()?;
    let sort_key = sort.strip_prefix('-').unwrap_or(sort);
    let known = super::SortKey::ALL
        .iter()
        .any(|key| key.as_str() == sort_key);
    let rank = fields.next()?;
    let rank = match rank.split_at_checked(1)? {
        ("n", number) => Rank::Number(number.parse().ok()?),
        ("t", text) => Rank::Text(Cow::Owned(text.to_owned())),
        ("u", "") => Rank::Untyped,
        _ => return None,
    };
    let name = fields.next()?.parse().ok()?;
    (known && fields.next().is_none()).then(|| ContinueToken {
        filter: Digest::from_number(filter),
        sort: sort.to_owned(),
        last: LastNode { rank, name },
    })
}
