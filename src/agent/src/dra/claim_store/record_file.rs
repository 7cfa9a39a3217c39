//! Files of the record of claims in the state directory.

use std::io;
use std::path::Path;

use octavo_dra::claims::PreparedClaims;
use octavo_engine::durable::{self, DurableError};
use octavo_toolkit::error::chain;
use octavo_toolkit::files::{self, ReadError};
use tracing::error;

/// The record in the state directory.
pub(super) const FILE_NAME: &str = "claims.json";
/// A copy of the record, for a disk that damages or loses one file.
pub(super) const COPY_FILE_NAME: &str = "claims.copy";
/// A draft of the record or its copy.
pub(super) const DRAFT_FILE_NAME: &str = "claims.draft";
/// A record that could not be read, for an administrator.
pub(super) const UNREADABLE_FILE_NAME: &str = "claims.unreadable";
/// The file names pods' claims, so it is private.
const MODE: u32 = 0o600;
/// Maximum size of the record; a claim has less than a kilobyte.
const MAX_RECORD_BYTES: u64 = 1 << 20;

/// Writes the copy and then the file, which takes precedence over the copy.
pub(super) fn save(dir: &Path, record: &PreparedClaims) -> Result<(), DurableError> {
    // Serialization cannot fail: the type contains only numbers, strings, lists and maps with text keys.
    let mut text = serde_json::to_string_pretty(record).unwrap_or_default();
    text.push('\n');
    let draft = dir.join(DRAFT_FILE_NAME);
    let mut names = [COPY_FILE_NAME, FILE_NAME].into_iter();
    names.try_for_each(|name| durable::replace(&dir.join(name), &draft, text.as_bytes(), MODE))
}

/// Returns whether the record was read and is no record.
fn is_invalid(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, InvalidData, InvalidInput};
    matches!(error.kind(), InvalidData | FileTooLarge | InvalidInput)
}

/// Reads a record; `None` if there is none. An invalid one is moved aside.
pub(super) fn read(dir: &Path, name: &str) -> Result<Option<PreparedClaims>, DurableError> {
    let path = dir.join(name);
    let text = match files::text(&path, MAX_RECORD_BYTES) {
        Ok(text) => Ok(text),
        Err(ReadError::Missing(_)) => return Ok(None),
        Err(error) => Err(io::Error::from(error)),
    };
    let record = text.and_then(|text| {
        let record = serde_json::from_str(&text);
        record.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    });
    match record {
        Ok(record) => Ok(Some(record)),
        // The next round tries again.
        Err(source) if !is_invalid(&source) => Err(DurableError { action: "read", path, source }),
        Err(reason) => {
            let aside = dir.join(UNREADABLE_FILE_NAME);
            error!(path = %aside.display(), error = %chain(&reason), "cannot read the record of claims; moved aside");
            let moved = std::fs::rename(&path, &aside);
            moved.map_err(|source| DurableError { action: "move aside", path, source })?;
            Ok(None)
        }
    }
}
