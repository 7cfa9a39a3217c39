//! An administrator's own catalogue, read once when a program starts.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::domain::accelerators::Catalogue;
use crate::files;
use crate::wire::layouts::catalogue::parse;

/// A file of a thousand products is less.
const LONGEST: u64 = 4 << 20;

/// Why a catalogue cannot be used.
#[derive(Debug, Error)]
pub enum CatalogueError {
    /// It cannot be read.
    #[error("cannot read the catalogue {}", .path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What it says cannot be.
    #[error("cannot use the catalogue {}: {}", .path.display(), .errors.join("; "))]
    Wrong {
        /// Which.
        path: PathBuf,
        /// All that is wrong, each with its line and column; never empty.
        errors: Vec<String>,
    },
}

/// The built-in catalogue with the file over it.
///
/// # Errors
/// The file cannot be read, or what it says cannot be: nothing of it is used then.
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
