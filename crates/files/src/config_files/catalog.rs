//! The administrator's catalog overlay, read once at startup.

use std::path::Path;

use octavo_model::accelerators::Catalog;

use super::reloading_file::{ConfigFileError, read_text};
use crate::layouts::catalog::parse;

/// Size limit. A file with a thousand products is smaller.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Returns the built-in catalog merged with the overlay in `path`.
///
/// # Errors
/// Fails if the file cannot be read or any part of it is invalid. An invalid overlay is never applied partially.
pub fn read(path: &Path) -> Result<Catalog, ConfigFileError> {
    let what = "catalog";
    let invalid = |errors: Vec<String>| ConfigFileError::Invalid {
        what,
        path: path.to_owned(),
        problems: errors.join("; "),
    };
    let overlay = parse(&read_text(what, path, MAX_FILE_BYTES)?).map_err(|errors| {
        invalid(errors.iter().map(|error| format!("{}: {error}", error.place())).collect())
    })?;
    let name = path.display().to_string();
    Catalog::built_in().with_overlay(overlay, &name).map_err(|errors| {
        invalid(errors.iter().map(|error| format!("{}: {error}", error.place())).collect())
    })
}
