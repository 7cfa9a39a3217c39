//! Chain: numbers and links entries.

use jiff::Timestamp;
use octavo_fleet::digest::sha256;
use serde::Serialize;

use super::{AuditEvent, AuditRecord};

/// Previous hash of the first entry.
pub const ZERO_HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Head of a chain: its last entry, to which the next one is linked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainHead {
    /// Number of the last entry; 0 if the chain is empty.
    pub seq: i64,
    /// Hash of the last entry.
    pub hash: String,
}

/// A linked entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// Number.
    pub seq: i64,
    /// The entry: one line of JSON.
    pub text: String,
    /// Its hash.
    pub hash: String,
}

/// An entry in the order of its fields in JSON.
#[derive(Serialize)]
struct EntryFields<'a> {
    seq: i64,
    time: Timestamp,
    previous: &'a str,
    #[serde(flatten)]
    event: &'a AuditEvent,
}

impl Default for ChainHead {
    fn default() -> Self {
        Self { seq: 0, hash: ZERO_HASH.to_owned() }
    }
}

impl ChainHead {
    /// Appends an event.
    ///
    /// # Errors
    /// Fails if the event cannot be serialized; then the chain does not change.
    pub fn append(&mut self, record: &AuditRecord) -> Result<AuditEntry, serde_json::Error> {
        let AuditRecord { time, event, .. } = record;
        let seq = self.seq.saturating_add(1);
        let text =
            serde_json::to_string(&EntryFields { seq, time: *time, previous: &self.hash, event })?;
        let hash = sha256(&[&self.hash, &text]);
        *self = Self { seq, hash: hash.clone() };
        Ok(AuditEntry { seq, text, hash })
    }
}

/// Separates the text of an entry from its hash in an export.
pub(super) const BEFORE_HASH: &str = ",\"hash\":\"";
/// End of a line of an export.
pub(super) const AFTER_HASH: &str = "\"}";

/// Line of an export, without line feed: the entry with its hash as the last field.
pub fn export_line(text: &str, hash: &str) -> String {
    let fields = text.strip_suffix('}').unwrap_or(text);
    format!("{fields}{BEFORE_HASH}{hash}{AFTER_HASH}")
}
