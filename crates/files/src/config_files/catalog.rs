//! The administrator's catalog overlay, read once at startup.

use std::io;
use std::path::{Path, PathBuf};

use octavo_model::accelerators::Catalog;
use octavo_toolkit::files;
use thiserror::Error;

use crate::layouts::catalog::parse;

/// Size limit. A file with a thousand products is smaller.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Error while loading a catalog overlay.
#[derive(Debug, Error)]
pub enum CatalogOverlayError {
    /// The file cannot be read.
    #[error("cannot read the catalogue {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// The content of the file is invalid.
    #[error("cannot use the catalogue {}: {}", .path.display(), .errors.join("; "))]
    Invalid {
        /// The file.
        path: PathBuf,
        /// All errors, each with line and column; never empty.
        errors: Vec<String>,
    },
}

/// Returns the built-in catalog merged with the overlay in `path`.
///
/// # Errors
/// Fails if the file cannot be read or any part of it is invalid. An invalid overlay is never applied partially.
pub fn read(path: &Path) -> Result<Catalog, CatalogOverlayError> {
    let text = text(path).map_err(|source| CatalogOverlayError::Read {
        path: path.to_owned(),
        source,
    })?;
    let wrong = |errors: Vec<String>| CatalogOverlayError::Invalid {
        path: path.to_owned(),
        errors,
    };
    let overlay = parse(&text).map_err(|errors| {
        let told = errors.iter();
        wrong(told.map(|one| format!("{}: {one}", one.place())).collect())
    })?;
    let name = path.display().to_string();
    Catalog::built_in()
        .with_overlay(overlay, &name)
        .map_err(|errors| {
            let told = errors.iter();
            wrong(told.map(|one| format!("{}: {one}", one.place())).collect())
        })
}

pub(super) fn text(path: &Path) -> io::Result<String> {
    Ok(files::text(path, MAX_FILE_BYTES)?)
}
