//! Layouts by name: from a file that is reloaded when it is replaced, or generated for the devices of a node.
//!
//! If the file is invalid at startup, opening it either fails or yields no layouts until the file is fixed. If it
//! becomes invalid later, the last valid layouts stay in use. Every consumer reports both cases.

pub mod catalog;
mod file_stamp;
mod lookup;
pub mod prices;
pub mod profiles;
mod reloading_file;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use octavo_planner::layout::Layouts;
use thiserror::Error;

pub use self::file_stamp::FileStamp;
pub use self::lookup::{AvailableLayouts, LayoutLookupError};
use self::reloading_file::ReloadingFile;
use crate::layouts::{self, LayoutError};

/// Size limit. A file with a thousand layouts is smaller.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// The layouts of one file, or none.
#[derive(Debug, Default)]
pub struct LayoutFile {
    file: Option<ReloadingFile<Option<ParsedFile>, LayoutFileError>>,
}

/// Parsed layouts and the hash of the file's content.
type ParsedFile = (Arc<Layouts>, String);

/// The current layouts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LayoutFileSnapshot {
    /// Layouts of the file, if one is configured.
    pub layouts: Option<Arc<Layouts>>,
    /// Hash of the file's content: the first digits of its SHA-256, as printed by `sha256sum`.
    pub hash: Option<String>,
    /// Why the layouts may differ from the current content of the file.
    pub notice: Option<String>,
}

/// Error while loading a file of layouts.
#[derive(Debug, Error)]
pub enum LayoutFileError {
    /// The file cannot be read.
    #[error("cannot read the layouts in {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// A text that does not come from a file is invalid.
    #[error("cannot use these layouts: {}", format_errors(.0))]
    Text(Vec<LayoutError>),
    /// The content of the file is invalid.
    #[error("cannot use the layouts in {}: {}", .path.display(), format_errors(.errors))]
    Invalid {
        /// The file.
        path: PathBuf,
        /// All errors; never empty.
        errors: Vec<LayoutError>,
    },
}

impl LayoutFile {
    /// Opens the layouts in `path`.
    pub fn open(path: &Path) -> Result<Self, LayoutFileError> {
        Ok(Self {
            file: Some(ReloadingFile::open(path, "layouts", load)?),
        })
    }

    /// Opens the layouts in `path`. If the file is invalid, there are no layouts until it is fixed.
    pub fn open_or_empty(path: &Path) -> Self {
        Self {
            file: Some(ReloadingFile::open_or_empty(path, "layouts", load)),
        }
    }

    /// Returns the layouts of the file, or the last valid ones if the file is now invalid.
    pub fn current(&self) -> LayoutFileSnapshot {
        let Some(kept) = &self.file else {
            return LayoutFileSnapshot::default();
        };
        let (read, notice) = kept.current();
        let (layouts, hash) = read.unzip();
        LayoutFileSnapshot {
            layouts,
            hash,
            notice,
        }
    }
}

impl LayoutFileSnapshot {
    /// Parses layouts that were read elsewhere.
    pub fn parse(text: &str) -> Result<Self, LayoutFileError> {
        let parsed = layouts::parse(text).map_err(LayoutFileError::Text)?;
        Ok(Self {
            layouts: Some(Arc::new(parsed.layouts)),
            hash: Some(hash(text)),
            notice: None,
        })
    }
}

fn load(path: &Path) -> Result<Option<ParsedFile>, LayoutFileError> {
    let text = reloading_file::read_text(path, MAX_FILE_BYTES).map_err(|source| {
        LayoutFileError::Read {
            path: path.to_owned(),
            source,
        }
    })?;
    match layouts::parse(&text) {
        Ok(parsed) => Ok(Some((Arc::new(parsed.layouts), hash(&text)))),
        Err(errors) => Err(LayoutFileError::Invalid {
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
fn format_errors(errors: &[LayoutError]) -> String {
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
