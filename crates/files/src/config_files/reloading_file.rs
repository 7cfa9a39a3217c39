//! A file that is reloaded when it is replaced.
//!
//! Layouts, prices and hardware profiles use it. If the file is invalid when it is opened, opening fails or the content
//! stays empty until the file is fixed. If it becomes invalid later, the last valid content stays in use. A notice
//! reports both cases.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use octavo_toolkit::error::chain;
use octavo_toolkit::files;
use thiserror::Error;
use tracing::{info, warn};

use crate::hardware_profiles::ProfileFileError;
use crate::layouts::LayoutError;

/// The content of a file, parsed by `read` and reloaded on change.
#[derive(Debug)]
pub(super) struct ReloadingFile<T> {
    path: PathBuf,
    /// Plural noun for messages, such as `layouts`.
    what: &'static str,
    read: fn(&Path) -> Result<T, ConfigFileError>,
    state: Mutex<FileState<T>>,
}

#[derive(Debug)]
struct FileState<T> {
    content: T,
    /// Stamp of the file at the last attempt to read it, successful or not.
    stamp: Option<FileStamp>,
    error: Option<String>,
    /// Whether the file was ever read successfully.
    is_read: bool,
}

impl<T: Clone> ReloadingFile<T> {
    pub(super) fn open(
        path: &Path,
        what: &'static str,
        read: fn(&Path) -> Result<T, ConfigFileError>,
    ) -> Result<Self, ConfigFileError> {
        // Taken before reading, so that a write during the read is detected as a change.
        let stamp = FileStamp::from_path(path);
        let state = FileState { content: read(path)?, stamp, error: None, is_read: true };
        Ok(Self { path: path.to_owned(), what, read, state: Mutex::new(state) })
    }

    /// Opens the file. If it is invalid, the content is the default until the file is fixed.
    pub(super) fn open_or_empty(
        path: &Path,
        what: &'static str,
        read: fn(&Path) -> Result<T, ConfigFileError>,
    ) -> Self
    where
        T: Default,
    {
        let stamp = FileStamp::from_path(path);
        let mut state = FileState { content: T::default(), stamp, error: None, is_read: false };
        state.update(what, read(path));
        Self { path: path.to_owned(), what, read, state: Mutex::new(state) }
    }

    /// Returns the content of the file, or the last valid content together with the reason why it may be outdated.
    pub(super) fn current(&self) -> (T, Option<String>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = FileStamp::from_path(&self.path);
        if stamp != state.stamp {
            state.stamp = stamp;
            let content = (self.read)(&self.path);
            if content.is_ok() {
                info!("reloaded the {} in {}", self.what, self.path.display());
            }
            state.update(self.what, content);
        }
        (state.content.clone(), state.error.clone())
    }
}

impl<T> FileState<T> {
    fn update(&mut self, what: &str, content: Result<T, ConfigFileError>) {
        match content {
            Ok(content) => {
                self.content = content;
                self.error = None;
                self.is_read = true;
            }
            Err(error) => {
                let error = chain(&error);
                self.error = Some(if self.is_read {
                    warn!("the previous {what} stay in use: {error}");
                    format!("{error}. The previous {what} stay in use")
                } else {
                    warn!("no {what} are available until the file is corrected: {error}");
                    format!("{error}. No {what} are available until the file is corrected")
                });
            }
        }
    }
}

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

/// Reads and parses a file of at most 1 MiB, which is also the limit of the parsers.
pub(super) fn read_parsed<T>(
    what: &'static str,
    path: &Path,
    parse: impl FnOnce(&str) -> Result<T, Vec<LayoutError>>,
) -> Result<T, ConfigFileError> {
    let text = read_text(what, path, 1 << 20)?;
    parse(&text).map_err(|errors| ConfigFileError::Invalid {
        what,
        path: path.to_owned(),
        problems: first_problems(&errors, 5, ""),
    })
}

/// Formats the first `limit` errors, each with its line. `more` follows the number of the others.
pub(super) fn first_problems(errors: &[LayoutError], limit: usize, more: &str) -> String {
    let shown = errors.iter().take(limit);
    let mut shown: Vec<String> =
        shown.map(|error| format!("line {}: {error}", error.position())).collect();
    let hidden = errors.len().saturating_sub(limit);
    if hidden > 0 {
        shown.push(format!("and {hidden} more{more}"));
    }
    shown.join("; ")
}

/// Identity of a file at one point in time. A replacement under the same name has another inode, length or modification
/// time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStamp {
    length: u64,
    modified: (i64, i64),
    inode: u64,
}

impl FileStamp {
    /// Returns the stamp of the file at `path`, or `None` if it does not exist.
    pub fn from_path(path: &Path) -> Option<Self> {
        let data = std::fs::metadata(path).ok()?;
        Some(Self {
            length: data.len(),
            modified: (data.mtime(), data.mtime_nsec()),
            inode: data.ino(),
        })
    }
}
