//! The administrator's catalog overlay, read once at startup.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::domain::accelerators::Catalogue;
use crate::files;
use crate::wire::layouts::catalogue::parse;

/// Size limit. A file with a thousand products is smaller.
const LONGEST: u64 = 4 << 20;

/// Error while loading a catalog overlay.
#[derive(Debug, Error)]
pub enum CatalogueError {
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
    Wrong {
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
pub fn read(path: &Path) -> Result<Catalogue, CatalogueError> {
    let text = text(path).map_err(|source| CatalogueError::Read {
        path: path.to_owned(),
        source,
    })?;
    let wrong = |errors: Vec<String>| CatalogueError::Wrong {
        path: path.to_owned(),
        errors,
    };
    let overlay = parse(&text).map_err(|errors| {
        let told = errors.iter();
        wrong(told.map(|one| format!("{}: {one}", one.place())).collect())
    })?;
    let name = path.display().to_string();
    Catalogue::built_in()
        .with(overlay, &name)
        .map_err(|errors| {
            let told = errors.iter();
            wrong(told.map(|one| format!("{}: {one}", one.place())).collect())
        })
}

pub(super) fn text(path: &Path) -> io::Result<String> {
    Ok(files::text(path, LONGEST)?)
}
