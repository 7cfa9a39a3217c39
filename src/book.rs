//! Layouts by name: from a file that is reloaded when it is replaced, or generated for the devices of a node.
//!
//! If the file is invalid at startup, opening it either fails or yields no layouts until the file is fixed. If it
//! becomes invalid later, the last valid layouts stay in use. Every consumer reports both cases.

pub mod catalogue;
mod choice;
mod kept;
pub mod prices;
pub mod profiles;
mod stamp;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use thiserror::Error;

pub use self::choice::{ChoiceError, Names};
use self::kept::Kept;
pub use self::stamp::Stamp;
use crate::domain::layout::Layouts;
use crate::wire::layouts::{self, LayoutError};

/// Size limit. A file with a thousand layouts is smaller.
const LONGEST: u64 = 4 << 20;

/// The layouts of one file, or none.
#[derive(Debug, Default)]
pub struct Book {
    file: Option<Kept<Option<Read>, BookError>>,
}

/// Parsed layouts and the hash of the file's content.
type Read = (Arc<Layouts>, String);

/// The current layouts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Current {
    /// Layouts of the file, if one is configured.
    pub layouts: Option<Arc<Layouts>>,
    /// Hash of the file's content: the first digits of its SHA-256, as printed by `sha256sum`.
    pub hash: Option<String>,
    /// Why the layouts may differ from the current content of the file.
    pub notice: Option<String>,
}

/// Error while loading a file of layouts.
#[derive(Debug, Error)]
pub enum BookError {
    /// The file cannot be read.
    #[error("cannot read the layouts in {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// A text that does not come from a file is invalid.
    #[error("cannot use these layouts: {}", listed(.0))]
    Text(Vec<LayoutError>),
    /// The content of the file is invalid.
    #[error("cannot use the layouts in {}: {}", .path.display(), listed(.errors))]
    Wrong {
        /// The file.
        path: PathBuf,
        /// All errors; never empty.
        errors: Vec<LayoutError>,
    },
}

impl Book {
    /// Opens the layouts in `path`.
    pub fn open(path: &Path) -> Result<Self, BookError> {
        Ok(Self {
            file: Some(Kept::open(path, "layouts", read)?),
        })
    }

    /// Opens the layouts in `path`. If the file is invalid, there are no layouts until it is fixed.
    pub fn open_or_empty(path: &Path) -> Self {
        Self {
            file: Some(Kept::open_or_empty(path, "layouts", read)),
        }
    }

    /// Returns the layouts of the file, or the last valid ones if the file is now invalid.
    pub fn current(&self) -> Current {
        let Some(kept) = &self.file else {
            return Current::default();
        };
        let (read, notice) = kept.current();
        let (layouts, hash) = read.unzip();
        Current {
            layouts,
            hash,
            notice,
        }
    }
}

impl Current {
    /// Parses layouts that were read elsewhere.
    pub fn of(text: &str) -> Result<Self, BookError> {
        let parsed = layouts::parse(text).map_err(BookError::Text)?;
        Ok(Self {
            layouts: Some(Arc::new(parsed.layouts)),
            hash: Some(hash(text)),
            notice: None,
        })
    }
}

fn read(path: &Path) -> Result<Option<Read>, BookError> {
    let text = kept::text(path, LONGEST).map_err(|source| BookError::Read {
        path: path.to_owned(),
        source,
    })?;
    match layouts::parse(&text) {
        Ok(parsed) => Ok(Some((Arc::new(parsed.layouts), hash(&text)))),
        Err(errors) => Err(BookError::Wrong {
            path: path.to_owned(),
            errors,
        }),
    }
}

fn hash(text: &str) -> String {
    const BYTES: usize = 6;
    let digest = digest(&SHA256, text.as_bytes());
    let bytes = digest.as_ref().iter().take(BYTES);
    bytes.fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// Formats the first few errors, each with its line.
fn listed(errors: &[LayoutError]) -> String {
    const SHOWN: usize = 3;
    let mut shown: Vec<String> = errors
        .iter()
        .take(SHOWN)
        .map(|error| format!("line {}: {error}", error.place()))
        .collect();
    match errors.len().saturating_sub(SHOWN) {
        0 => {}
        more => shown.push(format!("and {more} more; `octavo layouts check` shows all")),
    }
    shown.join("; ")
}
