//! Continuation tokens.

use std::fmt;
use std::str::FromStr;

use octavo_documents::usage::UsageRow;
use octavo_fleet::fleet::rank_memory;
use octavo_model::digest::Digest;
use thiserror::Error;

use super::{Query, Sort};

/// Position after the last row of a page. The text format is `filter~sort~memory~node~sort_key`, with the key in
/// hexadecimal. It is opaque to clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContinueToken {
    /// Digest of the filters that the token belongs to.
    filter: Digest,
    sort: Sort,
    last: Position,
}

/// Error of a continuation token.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TokenError {
    /// Malformed token.
    #[error("it is not one that an answer gave as `continue`")]
    Malformed,
    /// Token of a query with other filters or another order.
    #[error("it was given for other values of node, namespace, pod, over or sort")]
    OtherQuery,
}

/// Sort key of a row: rank, node and key. The rank increases with decreasing memory if rows are ordered by memory.
pub(super) type Position = (u64, String, String);

/// Maximum length of a key: five words and their separators.
const MAX_KEY_BYTES: usize = 2048;

/// Sort key of `row`.
pub(super) fn position(sort: Sort, row: &UsageRow) -> Position {
    let rank = match sort {
        Sort::Node => 0,
        Sort::Memory => u64::MAX.saturating_sub(rank_memory(row.tenant.memory_mib)),
    };
    (rank, row.node.clone(), row.sort_key())
}

impl ContinueToken {
    pub(super) fn new(query: &Query, last: Position) -> Self {
        Self {
            filter: fingerprint(query),
            sort: query.sort,
            last,
        }
    }

    /// Position of the last row.
    pub(super) fn last(&self) -> &Position {
        &self.last
    }

    pub(super) fn check(&self, query: &Query) -> Result<(), TokenError> {
        if self.sort == query.sort && self.filter == fingerprint(query) {
            Ok(())
        } else {
            Err(TokenError::OtherQuery)
        }
    }
}

fn fingerprint(query: &Query) -> Digest {
    let Query {
        node,
        namespace,
        pod,
        over,
        ..
    } = query;
    Digest::from_bytes(format!("{node:?} {namespace:?} {pod:?} {over:?}").as_bytes())
}

impl fmt::Display for ContinueToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rank, node, key) = &self.last;
        let (filter, sort) = (self.filter.get(), self.sort.as_str());
        write!(f, "{filter:016x}~{sort}~{rank}~{node}~")?;
        key.bytes().try_for_each(|byte| write!(f, "{byte:02x}"))
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
    let sort = Sort::ALL.into_iter().find(|known| known.as_str() == sort)?;
    let rank = fields.next()?.parse().ok()?;
    let node = fields.next()?.to_owned();
    let key = fields.next()?;
    if key.len() > MAX_KEY_BYTES.saturating_mul(2) || !key.is_ascii() || fields.next().is_some() {
        return None;
    }
    let bytes: Option<Vec<u8>> = key
        .as_bytes()
        .chunks(2)
        .map(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok())
        .collect();
    Some(ContinueToken {
        filter: Digest::from_number(filter),
        sort,
        last: (rank, node, String::from_utf8(bytes?).ok()?),
    })
}
