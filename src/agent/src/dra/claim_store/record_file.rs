//! Files of the record of claims in the state directory.

use std::io;
use std::path::Path;

use octavo_dra::claims::PreparedClaims;
use octavo_engine::claims::{self, COPY_FILE_NAME, FILE_NAME};
use octavo_engine::durable::{self, DurableError};
use octavo_toolkit::error::chain;
use tracing::error;

/// A draft of the record or its copy.
pub(super) const DRAFT_FILE_NAME: &str = "claims.draft";
/// A record that could not be read, for an administrator.
pub(super) const UNREADABLE_FILE_NAME: &str = "claims.unreadable";
/// The file names pods' claims, so it is private.
const MODE: u32 = 0o600;

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
    match claims::read(&path) {
        // The next round tries again.
        Err(error) if !is_invalid(&error.source) => Err(error),
        Err(DurableError { source, .. }) => {
            let aside = dir.join(UNREADABLE_FILE_NAME);
            error!(path = %aside.display(), error = %chain(&source), "cannot read the record of claims; moved aside");
            let moved = std::fs::rename(&path, &aside);
            moved.map_err(|source| DurableError { action: "move aside", path, source })?;
            Ok(None)
        }
        read => read,
    }
}
