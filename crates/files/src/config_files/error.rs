//! Errors while loading a file of an administrator.

use std::io;
use std::path::{Path, PathBuf};

use octavo_toolkit::files;
use thiserror::Error;

use crate::hardware_profiles::ProfileFileError;
use crate::layouts::LayoutError;

/// Error while loading a file.
#[derive(Debug, Error)]
pub enum ConfigFileError {
    /// The file cannot be read.
    #[error("cannot read the {what} {}", .path.display())]
    Read {
        /// Content of the file, such as `price book` or `layouts in`.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// The content of the file is invalid.
    #[error("cannot use the {what} {}: {problems}", .path.display())]
    Invalid {
        /// Content of the file, such as `price book` or `layouts in`.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The first problems, each with its position.
        problems: String,
    },
    /// The hardware profiles in the file are invalid.
    #[error("cannot use the profiles in {}", .path.display())]
    InvalidProfiles {
        /// The file.
        path: PathBuf,
        /// The first error in it.
        source: ProfileFileError,
    },
}

/// Reads a regular file of at most `limit` bytes.
pub(super) fn read_text(
    what: &'static str,
    path: &Path,
    limit: u64,
) -> Result<String, ConfigFileError> {
    files::text(path, limit).map_err(|error| ConfigFileError::Read {
        what,
        path: path.to_owned(),
        source: error.into(),
    })
}

/// Formats the first `limit` errors, each with its line. `more` follows the number of the others.
pub(super) fn first_problems(errors: &[LayoutError], limit: usize, more: &str) -> String {
    let shown = errors.iter().take(limit);
    let mut shown: Vec<String> =
        shown.map(|error| format!("line {}: {error}", error.place())).collect();
    let hidden = errors.len().saturating_sub(limit);
    if hidden > 0 {
        shown.push(format!("and {hidden} more{more}"));
    }
    shown.join("; ")
}
