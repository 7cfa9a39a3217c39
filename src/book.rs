//! Layouts that can be asked for by name: a file's, read again when it was replaced, and those made for a node's devices.
//!
//! A file that is broken when the program starts is an error of whoever starts it. One that breaks later leaves the layouts
//! before in use, and everything made of them says so.

pub mod catalogue;
mod choice;
mod stamp;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::digest::{SHA256, digest};
use thiserror::Error;
use tracing::{info, warn};

pub use self::choice::{ChoiceError, Names};
pub use self::stamp::Stamp;
use crate::domain::error::chain;
use crate::domain::layout::Layouts;
use crate::wire::layouts::{self, LayoutError};

/// A file of a thousand layouts is less.
const LONGEST: u64 = 4 << 20;

/// The layouts of one file, or of none.
#[derive(Debug, Default)]
pub struct Book {
    file: Option<Kept>,
}

#[derive(Debug)]
struct Kept {
    path: PathBuf,
    page: Mutex<Page>,
}

/// What the file says, and whether that is still so.
#[derive(Debug)]
struct Page {
    layouts: Arc<Layouts>,
    hash: String,
    /// Of the file that was read last, be it in vain.
    stamp: Option<Stamp>,
    wrong: Option<String>,
}

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
        let stamp = Stamp::of(path);
        let (layouts, hash) = read(path)?;
        let page = Page {
            layouts: Arc::new(layouts),
            hash,
            stamp,
            wrong: None,
        };
        Ok(Self {
            file: Some(Kept {
                path: path.to_owned(),
                page: Mutex::new(page),
            }),
        })
    }

    /// The layouts as they are in the file now, or were when it could last be used.
    pub fn current(&self) -> Current {
        let Some(kept) = &self.file else {
            return Current::default();
        };
        let mut page = kept.page.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = Stamp::of(&kept.path);
        if stamp != page.stamp {
            page.stamp = stamp;
            page.turn(&kept.path);
        }
        Current {
            layouts: Some(Arc::clone(&page.layouts)),
            hash: Some(page.hash.clone()),
            notice: page.wrong.clone(),
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

impl Page {
    fn turn(&mut self, path: &Path) {
        match read(path) {
            Ok((layouts, hash)) => {
                self.hash = hash;
                info!("the layouts in {} were replaced", path.display());
                self.layouts = Arc::new(layouts);
                self.wrong = None;
            }
            Err(error) => {
                let error = chain(&error);
                warn!("the layouts before stay in use: {error}");
                self.wrong = Some(format!("{error}. The layouts before are used"));
            }
        }
    }
}

/// The layouts of a file, and what its content is known by.
fn read(path: &Path) -> Result<(Layouts, String), BookError> {
    let failed = |source| BookError::Read {
        path: path.to_owned(),
        source,
    };
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    let length = file
        .take(LONGEST + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;
    if u64::try_from(length).is_ok_and(|length| length > LONGEST) {
        let message = format!("it is longer than {} MiB", LONGEST >> 20);
        return Err(failed(io::Error::new(io::ErrorKind::FileTooLarge, message)));
    }
    match layouts::parse(&text) {
        Ok(parsed) => Ok((parsed.layouts, hash(&text))),
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
