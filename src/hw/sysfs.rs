//! Reads below a given sysfs root: the only place that opens its files.
//!
//! Every file is optional and every read is bounded: a file that is missing, unreadable or empty is `None`, never a
//! zero, because kernels, drivers and container runtimes each leave some of them out.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::PathBuf;

/// Where Linux mounts it.
pub(crate) const ROOT: &str = "/sys";

/// No attribute that we read is longer; sysfs itself hands out a page at most.
const LONGEST_TEXT: u64 = 4096;

/// A mounted sysfs.
#[derive(Debug, Clone)]
pub(crate) struct Sysfs {
    root: PathBuf,
}

impl Sysfs {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// A text attribute without the blanks around it.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        let bytes = self.bytes(path, LONGEST_TEXT)?;
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// The same, and why it cannot be read where it is there and cannot. One that is not there, or holds nothing, is `None`.
    pub(crate) fn attribute(&self, path: &str) -> io::Result<Option<String>> {
        let file = match File::open(self.root.join(path)) {
            Ok(file) => file,
            Err(error) if is_absence(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        file.take(LONGEST_TEXT).read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim();
        Ok((!text.is_empty()).then(|| text.to_owned()))
    }

    /// A hexadecimal attribute, such as a PCI id.
    pub(crate) fn hex(&self, path: &str) -> Option<u32> {
        let text = self.text(path)?;
        u32::from_str_radix(text.trim_start_matches("0x"), 16).ok()
    }

    /// At most `limit` bytes of a file.
    pub(crate) fn bytes(&self, path: &str, limit: u64) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = File::open(self.root.join(path)).ok()?;
        file.take(limit).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// The last part of what a symbolic link points to.
    pub(crate) fn link(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.root.join(path)).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }

    /// The names in a directory, sorted.
    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root.join(path)).into_iter().flatten();
        let mut names: Vec<String> = entries
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}
