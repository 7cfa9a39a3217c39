//! A file that is read again when it was replaced.
//!
//! Layouts, prices and hardware profiles are each one of these. A file that is broken when it is opened is an error, or is waited for. One
//! that breaks later leaves in use what was read before. A notice reports it in both cases.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tracing::{info, warn};

use super::stamp::Stamp;
use crate::domain::error::chain;
use crate::files;

/// What a file says, as `read` reads it.
#[derive(Debug)]
pub(super) struct Kept<T, E> {
    path: PathBuf,
    /// What is in it, in a word for people: `layouts`.
    what: &'static str,
    read: fn(&Path) -> Result<T, E>,
    page: Mutex<Page<T>>,
}

#[derive(Debug)]
struct Page<T> {
    content: T,
    /// Of the file that was read last, be it in vain.
    stamp: Option<Stamp>,
    wrong: Option<String>,
    /// Whether the file was ever read successfully.
    is_read: bool,
}

impl<T: Clone, E: Error> Kept<T, E> {
    pub(super) fn open(
        path: &Path,
        what: &'static str,
        read: fn(&Path) -> Result<T, E>,
    ) -> Result<Self, E> {
        // Before the file is read: what is written meanwhile is then another file.
        let stamp = Stamp::of(path);
        let page = Page {
            content: read(path)?,
            stamp,
            wrong: None,
            is_read: true,
        };
        Ok(Self {
            path: path.to_owned(),
            what,
            read,
            page: Mutex::new(page),
        })
    }

    /// The same; the content is empty until the file can be used.
    pub(super) fn open_or_empty(
        path: &Path,
        what: &'static str,
        read: fn(&Path) -> Result<T, E>,
    ) -> Self
    where
        T: Default,
    {
        let mut page = Page {
            content: T::default(),
            stamp: Stamp::of(path),
            wrong: None,
            is_read: false,
        };
        match read(path) {
            Ok(content) => {
                page.content = content;
                page.is_read = true;
            }
            Err(error) => page.is_broken(what, &error),
        }
        Self {
            path: path.to_owned(),
            what,
            read,
            page: Mutex::new(page),
        }
    }

    /// What the file says now, or said when it could last be used; and why that may not be what it says now.
    pub(super) fn current(&self) -> (T, Option<String>) {
        let mut page = self.page.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = Stamp::of(&self.path);
        if stamp != page.stamp {
            page.stamp = stamp;
            self.turn(&mut page);
        }
        (page.content.clone(), page.wrong.clone())
    }

    fn turn(&self, page: &mut Page<T>) {
        let what = self.what;
        match (self.read)(&self.path) {
            Ok(content) => {
                info!("the {what} in {} were replaced", self.path.display());
                page.content = content;
                page.wrong = None;
                page.is_read = true;
            }
            Err(error) => page.is_broken(what, &error),
        }
    }
}

impl<T> Page<T> {
    fn is_broken(&mut self, what: &str, error: &dyn Error) {
        let error = chain(error);
        self.wrong = Some(if self.is_read {
            warn!("the {what} before stay in use: {error}");
            format!("{error}. The {what} before are used")
        } else {
            warn!("there are no {what} until the file is repaired: {error}");
            format!("{error}. There are no {what} until the file is repaired")
        });
    }
}

/// The text of a regular file of at most `longest` bytes.
pub(super) fn text(path: &Path, longest: u64) -> io::Result<String> {
    Ok(files::text(path, longest)?)
}
