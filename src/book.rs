//! Layouts that can be asked for by name: a file's, read again when it was replaced, and those made for a node's devices.
//!
//! A file that is broken when the program starts is an error, or there are no layouts until it is repaired. One that breaks later leaves
//! the layouts before in use. Everything that uses them reports it.

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

/// A file of a thousand layouts is less.
const LONGEST: u64 = 4 << 20;

/// The layouts of one file, or of none.
#[derive(Debug, Default)]
pub struct Book {
    file: Option<Kept<Option<Read>, BookError>>,
}

/// Layouts, and what the file's content is known by.
type Read = (Arc<Layouts>, String);

/// The layouts as they are now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Current {
    /// Those of the file, if there is one.
    pub layouts: Option<Arc<Layouts>>,
    /// The file's content: the first digits of its SHA-256, as `sha256sum` prints it.
    pub hash: Option<String>,
    /// Why they may not be what the file says now.
    pub notice: Option<String>,
}

/// Why a file of layouts cannot be used.
#[derive(Debug, Error)]
pub enum BookError {
    /// It cannot be read.
    #[error("cannot read the layouts in {}", .path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What a text without a file says cannot be.
    #[error("cannot use these layouts: {}", listed(.0))]
    Text(Vec<LayoutError>),
    /// What it says cannot be.
    #[error("cannot use the layouts in {}: {}", .path.display(), listed(.errors))]
    Wrong {
        /// Which.
        path: PathBuf,
        /// All that is wrong; never empty.
        errors: Vec<LayoutError>,
    },
}

impl Book {
    /// The layouts in `path`.
    pub fn open(path: &Path) -> Result<Self, BookError> {
        Ok(Self {
            file: Some(Kept::open(path, "layouts", read)?),
        })
    }

    /// The same; there are no layouts until the file can be used.
    pub fn open_or_empty(path: &Path) -> Self {
        Self {
            file: Some(Kept::open_or_empty(path, "layouts", read)),
        }
    }

    /// The layouts as they are in the file now, or were when it could last be used.
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
    /// The layouts of a file that is somewhere else.
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

/// The first few, each with its place.
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
