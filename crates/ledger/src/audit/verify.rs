//! Verification of an exported chain, line by line.

use jiff::Timestamp;
use octavo_fleet::digest::sha256;
use serde::Deserialize;
use thiserror::Error;

use super::chain::{AFTER_HASH, BEFORE_HASH, ZERO_HASH};

/// Verifies the lines of an export, which can be larger than the memory.
#[derive(Debug, Clone, Default)]
pub struct ChainVerifier {
    summary: Option<ChainSummary>,
    /// Hash that was noted earlier, until an entry has it.
    missing: Option<String>,
}

/// A verified chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainSummary {
    /// Number of entries.
    pub entries: u64,
    /// Number and time of the first entry.
    pub first: (i64, Timestamp),
    /// Number and time of the last entry.
    pub last: (i64, Timestamp),
    /// Hash of the last entry.
    pub hash: String,
}

/// Reason why a line breaks the chain.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ChainError {
    /// The line is not an entry.
    #[error("not an audit entry with its hash; export it again without filters")]
    NotAnEntry,
    /// The text of the entry is not the one that was hashed.
    #[error("the entry or its hash was changed: the SHA-256 of entry {0} is {1}")]
    Changed(i64, String),
    /// The number of the entry is not the next one.
    #[error(
        "entry {expected} is expected, but this is entry {found}: an entry was removed, inserted or moved"
    )]
    Misplaced {
        /// The next number.
        expected: i64,
        /// The number of the entry.
        found: i64,
    },
    /// The entry follows another entry than the one before it.
    #[error(
        "entry {0} names {1} as the previous hash, but the line before has another hash: one of the two was replaced"
    )]
    Unlinked(i64, String),
    /// No entry has the noted hash.
    #[error(
        "no entry has the hash {0}: the export does not reach that entry, entries were removed, or the chain was rewritten"
    )]
    HashMissing(String),
    /// There are no entries.
    #[error("no entries")]
    Empty,
}

/// Fields of every entry.
#[derive(Deserialize)]
struct Header {
    seq: i64,
    time: Timestamp,
    previous: String,
}

impl ChainVerifier {
    /// Creates a verifier. If `noted` is given, an entry must have this hash.
    pub fn new(noted: Option<String>) -> Self {
        Self { summary: None, missing: noted }
    }

    /// Verifies the next line, without line feed.
    ///
    /// # Errors
    /// The reason why the line breaks the chain.
    pub fn verify_line(&mut self, line: &str) -> Result<(), ChainError> {
        let parts = line.strip_suffix(AFTER_HASH).and_then(|line| line.rsplit_once(BEFORE_HASH));
        let (fields, hash) = parts.ok_or(ChainError::NotAnEntry)?;
        let text = format!("{fields}}}");
        let header: Header = serde_json::from_str(&text).map_err(|_| ChainError::NotAnEntry)?;
        let Header { seq, time, previous } = header;
        let calculated = sha256(&[&previous, &text]);
        if calculated != hash {
            return Err(ChainError::Changed(seq, calculated));
        }
        let last = self.summary.as_ref();
        let expected = last.map(|last| (last.last.0.saturating_add(1), last.hash.as_str()));
        let expected = expected.or_else(|| (seq <= 1).then_some((1, ZERO_HASH)));
        match expected {
            Some((expected, _)) if seq != expected => {
                return Err(ChainError::Misplaced { expected, found: seq });
            }
            Some((_, hash)) if previous != hash => {
                return Err(ChainError::Unlinked(seq, previous));
            }
            Some(_) | None => {}
        }
        self.missing.take_if(|missing| missing == hash);
        self.summary = Some(ChainSummary {
            entries: last.map_or(1, |last| last.entries.saturating_add(1)),
            first: last.map_or((seq, time), |last| last.first),
            last: (seq, time),
            hash: hash.to_owned(),
        });
        Ok(())
    }

    /// Ends the verification.
    ///
    /// # Errors
    /// Fails if there are no entries, or none with the noted hash.
    pub fn finish(self) -> Result<ChainSummary, ChainError> {
        if let Some(missing) = self.missing {
            return Err(ChainError::HashMissing(missing));
        }
        self.summary.ok_or(ChainError::Empty)
    }
}
