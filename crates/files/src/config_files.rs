//! Layouts by name: from a file that is reloaded when it is replaced, or generated for the devices of a node.
//!
//! If the file is invalid at startup, opening it either fails or yields no layouts until the file is fixed. If it
//! becomes invalid later, the last valid layouts stay in use. Every consumer reports both cases.

pub mod budgets;
mod lookup;
pub mod prices;
pub mod profiles;
mod reloading_file;

use std::path::Path;
use std::sync::Arc;

use octavo_fleet::digest::sha256_prefix;
use octavo_planner::layout::Layouts;
use thiserror::Error;

pub use self::lookup::{AvailableLayouts, LayoutLookupError};
pub use self::reloading_file::{ConfigFileError, FileStamp};
use self::reloading_file::{ReloadingFile, first_problems, read_text};
use crate::layouts::{self, LayoutError};

/// Size limit. A file with a thousand layouts is smaller.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Bytes of the SHA-256 of a file that its hash contains.
const HASH_BYTES: usize = 6;

/// The layouts of one file, or none.
#[derive(Debug, Default)]
pub struct LayoutFile {
    file: Option<ReloadingFile<Option<ParsedFile>>>,
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
    /// Reason why the layouts may differ from the current content of the file.
    pub notice: Option<String>,
}

/// Layouts that do not come from a file and are invalid.
#[derive(Debug, Error)]
#[error("cannot use these layouts: {0}")]
pub struct InvalidLayouts(String);

impl LayoutFile {
    /// Opens the layouts in `path`.
    pub fn open(path: &Path) -> Result<Self, ConfigFileError> {
        Ok(Self { file: Some(ReloadingFile::open(path, "layouts", load)?) })
    }

    /// Opens the layouts in `path`. If the file is invalid, there are no layouts until it is fixed.
    pub fn open_or_empty(path: &Path) -> Self {
        Self { file: Some(ReloadingFile::open_or_empty(path, "layouts", load)) }
    }

    /// Returns the layouts of the file, or the last valid ones if the file is now invalid.
    pub fn current(&self) -> LayoutFileSnapshot {
        let Some(file) = &self.file else {
            return LayoutFileSnapshot::default();
        };
        let (parsed, notice) = file.current();
        let (layouts, hash) = parsed.unzip();
        LayoutFileSnapshot { layouts, hash, notice }
    }
}

impl LayoutFileSnapshot {
    /// Parses layouts that were read elsewhere.
    pub fn parse(text: &str) -> Result<Self, InvalidLayouts> {
        let parsed =
            layouts::parse(text).map_err(|errors| InvalidLayouts(format_errors(&errors)))?;
        Ok(Self {
            layouts: Some(Arc::new(parsed.layouts)),
            hash: Some(sha256_prefix(text, HASH_BYTES)),
            notice: None,
        })
    }
}

fn load(path: &Path) -> Result<Option<ParsedFile>, ConfigFileError> {
    let what = "layouts in";
    let text = read_text(what, path, MAX_FILE_BYTES)?;
    match layouts::parse(&text) {
        Ok(parsed) => Ok(Some((Arc::new(parsed.layouts), sha256_prefix(&text, HASH_BYTES)))),
        Err(errors) => {
            let problems = format_errors(&errors);
            Err(ConfigFileError::Invalid { what, path: path.to_owned(), problems })
        }
    }
}

fn format_errors(errors: &[LayoutError]) -> String {
    first_problems(errors, 3, "; `octavo layouts check` shows all")
}
