//! Continuation tokens.

use std::fmt;
use std::str::FromStr;

use octavo_fleet::summary::rank_memory;
use octavo_fleet::usage::UsageRow;
use octavo_model::digest::Digest;
use octavo_model::quantity::Mebibytes;
use serde::{Deserialize, Serialize};

use super::{Query, Sort};
use crate::page_token;
use crate::query::TokenError;

/// Position after the last row of a page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContinueToken {
    /// Digest of the filters that the token belongs to.
    filter: u64,
    sort: Sort,
    #[serde(with = "position_text")]
    last: Position,
}

/// The key of a position as base64url: it contains names from an agent, whose control characters JSON would write as six
/// bytes each.
mod position_text {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    use super::Position;

    pub(super) fn serialize<S: Serializer>(
        last: &Position,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let (rank, node, key) = last;
        (rank, node, URL_SAFE_NO_PAD.encode(key)).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Position, D::Error> {
        let (rank, node, key) = <(u64, String, String)>::deserialize(from)?;
        let key = URL_SAFE_NO_PAD.decode(key).map_err(de::Error::custom)?;
        Ok((rank, node, String::from_utf8(key).map_err(de::Error::custom)?))
    }
}

/// Sort key of a row: rank, node and key. The rank increases with decreasing memory if rows are ordered by memory.
pub(super) type Position = (u64, String, String);

/// Sort key of `row`.
pub(super) fn position(sort: Sort, row: &UsageRow) -> Position {
    let rank = match sort {
        Sort::Node => 0,
        Sort::Memory => u64::MAX.saturating_sub(rank_memory(row.tenant.memory.map(Mebibytes::get))),
    };
    (rank, row.node.clone(), row.sort_key())
}

impl ContinueToken {
    pub(super) fn new(query: &Query, last: Position) -> Self {
        Self { filter: fingerprint(query), sort: query.sort, last }
    }

    /// Position of the last row.
    pub(super) fn last(&self) -> &Position {
        &self.last
    }

    pub(super) fn check(&self, query: &Query) -> Result<(), TokenError> {
        if self.sort == query.sort && self.filter == fingerprint(query) {
            Ok(())
        } else {
            Err(TokenError::OtherFilter("node, namespace, pod, over or sort"))
        }
    }
}

fn fingerprint(query: &Query) -> u64 {
    let Query { node, namespace, pod, over, .. } = query;
    Digest::from_bytes(format!("{node:?} {namespace:?} {pod:?} {over:?}").as_bytes()).get()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_of_control_character_names_is_short() {
        let last: Position = (u64::MAX, "n".repeat(253), "\u{1}".repeat(5 * 256));
        let token = ContinueToken::new(&Query::default(), last.clone());
        let text = token.to_string();
        assert!(text.len() < 3 * 1024, "{}", text.len());
        assert_eq!(text.parse::<ContinueToken>().unwrap().last(), &last);
    }
}
