//! A file that is reloaded when it is replaced.
//!
//! Layouts, prices and hardware profiles use it. If the file is invalid when it is opened, opening fails or the content
//! stays empty until the file is fixed. If it becomes invalid later, the last valid content stays in use. A notice
//! reports both cases.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use octavo_toolkit::error::chain;
use octavo_toolkit::files;
use tracing::{info, warn};

use super::file_stamp::FileStamp;

/// The content of a file, parsed by `read` and reloaded on change.
#[derive(Debug)]
pub(super) struct ReloadingFile<T, E> {
    path: PathBuf,
    /// Plural noun for messages, such as `layouts`.
    what: &'static str,
    read: fn(&Path) -> Result<T, E>,
    page: Mutex<FileState<T>>,
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

impl<T: Clone, E: Error> ReloadingFile<T, E> {
    pub(super) fn open(
        path: &Path,
        what: &'static str,
        read: fn(&Path) -> Result<T, E>,
    ) -> Result<Self, E> {
        // Taken before reading, so that a write during the read is detected as a change.
        let stamp = FileStamp::from_path(path);
        let page = FileState {
            content: read(path)?,
            stamp,
            error: None,
            is_read: true,
        };
        Ok(Self {
            path: path.to_owned(),
            what,
            read,
            page: Mutex::new(page),
        })
    }

    /// Opens the file. If it is invalid, the content is the default until the file is fixed.
    pub(super) fn open_or_empty(
        path: &Path,
        what: &'static str,
        read: fn(&Path) -> Result<T, E>,
    ) -> Self
    where
        T: Default,
    {
        let mut page = FileState {
            content: T::default(),
            stamp: FileStamp::from_path(path),
            error: None,
            is_read: false,
        };
        match read(path) {
            Ok(content) => {
                page.content = content;
                page.is_read = true;
            }
            Err(error) => page.mark_invalid(what, &error),
        }
        Self {
            path: path.to_owned(),
            what,
            read,
            page: Mutex::new(page),
        }
    }

    /// Returns the content of the file, or the last valid content together with the reason why it may be outdated.
    pub(super) fn current(&self) -> (T, Option<String>) {
        let mut page = self.page.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = FileStamp::from_path(&self.path);
        if stamp != page.stamp {
            page.stamp = stamp;
            self.reload(&mut page);
        }
        (page.content.clone(), page.error.clone())
    }

    fn reload(&self, page: &mut FileState<T>) {
        let what = self.what;
        match (self.read)(&self.path) {
            Ok(content) => {
                info!("the {what} in {} were replaced", self.path.display());
                page.content = content;
                page.error = None;
                page.is_read = true;
            }
            Err(error) => page.mark_invalid(what, &error),
        }
    }
}

impl<T> FileState<T> {
    fn mark_invalid(&mut self, what: &str, error: &dyn Error) {
        let error = chain(error);
        self.error = Some(if self.is_read {
            warn!("the {what} before stay in use: {error}");
            format!("{error}. The {what} before are used")
        } else {
            warn!("there are no {what} until the file is repaired: {error}");
            format!("{error}. There are no {what} until the file is repaired")
        });
    }
}

/// Reads a regular file of at most `longest` bytes as text.
pub(super) fn read_text(path: &Path, longest: u64) -> io::Result<String> {
    Ok(files::text(path, longest)?)
}
