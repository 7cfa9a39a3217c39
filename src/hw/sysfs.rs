//! Reads below a given sysfs root: the only place that opens its files.
//!
//! Every file is optional and every read is bounded: a file that is missing, unreadable or empty is `None`, never a
//! zero, because kernels, drivers and container runtimes each leave some of them out.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::PathBuf;

use crate::domain::quantity::Mebibytes;
use crate::files::{self, ReadError};

/// Where Linux mounts it.
pub(crate) const ROOT: &str = "/sys";

/// No attribute that we read is longer; sysfs itself hands out a page at most.
const LONGEST_TEXT: u64 = 4096;

/// No machine has more functions on its bus than a PCI segment has addresses.
const MOST_NAMES: usize = 1 << 16;

/// No device has more memory: sixteen tebibytes, more than a hundred times what any has.
pub(crate) const MOST_MEMORY: Mebibytes = Mebibytes::new(16 << 20);

/// A mounted sysfs.
#[derive(Debug, Clone)]
pub(crate) struct Sysfs {
    root: PathBuf,
}

/// Something that lies below a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Below {
    /// From the root on.
    pub(crate) path: String,
    pub(crate) is_folder: bool,
}

impl Sysfs {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// A text attribute without the blanks around it.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        self.attribute(path).ok().flatten()
    }

    /// The same, and why it cannot be read where it is there and cannot. One that is not there, or holds nothing, is `None`.
    pub(crate) fn attribute(&self, path: &str) -> Result<Option<String>, ReadError> {
        let bytes = match files::beginning(&self.root.join(path), LONGEST_TEXT) {
            Ok(bytes) => bytes,
            Err(ReadError::Missing(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim();
        Ok((!text.is_empty()).then(|| text.to_owned()))
    }

    /// A hexadecimal attribute, such as a PCI id.
    pub(crate) fn hex(&self, path: &str) -> Option<u32> {
        let text = self.text(path)?;
        u32::from_str_radix(text.trim_start_matches("0x"), 16).ok()
    }

    /// At most `limit` bytes of a file. A configuration space is asked of the device itself, which may not answer: whoever reads it is
    /// on record with the call, and waits. For what is no file, such as a FIFO, nobody waits.
    pub(crate) fn bytes(&self, path: &str, limit: u64) -> Option<Vec<u8>> {
        let path = self.root.join(path);
        if !fs::metadata(&path).ok()?.is_file() {
            return None;
        }
        let mut bytes = Vec::new();
        let file = File::open(path).ok()?;
        file.take(limit).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// A text attribute as it is, or why there is none.
    pub(crate) fn told(&self, path: &str) -> Result<String, ReadError> {
        files::text(&self.root.join(path), LONGEST_TEXT)
    }

    /// Whether something is there, readable or not.
    pub(crate) fn is_there(&self, path: &str) -> bool {
        match fs::metadata(self.root.join(path)) {
            Ok(_) => true,
            Err(error) => !files::is_missing(&error),
        }
    }

    /// Whether it is a folder, or a link to one.
    pub(crate) fn is_folder(&self, path: &str) -> bool {
        fs::metadata(self.root.join(path)).is_ok_and(|found| found.is_dir())
    }

    /// The paths of what lies below a folder, at most so deep and at most so many, nearest first. Links are left out: in sysfs they lead to
    /// other devices.
    pub(crate) fn below(&self, path: &str, depth: usize, most: usize) -> Vec<Below> {
        let mut found: Vec<Below> = Vec::new();
        let mut folders = VecDeque::from([(path.to_owned(), 1)]);
        while let Some((folder, level)) = folders.pop_front() {
            let left = most.saturating_sub(found.len());
            if left == 0 {
                break;
            }
            let entries = fs::read_dir(self.root.join(&folder));
            let mut here: Vec<Below> = entries
                .into_iter()
                .flatten()
                .take(left)
                .flatten()
                .filter_map(|entry| {
                    let kind = entry.file_type().ok()?;
                    let name = entry.file_name().into_string().ok()?;
                    (kind.is_dir() || kind.is_file()).then(|| Below {
                        path: format!("{folder}/{name}"),
                        is_folder: kind.is_dir(),
                    })
                })
                .collect();
            here.sort_by(|one, other| one.path.cmp(&other.path));
            if level < depth {
                let next = here.iter().filter(|entry| entry.is_folder);
                folders.extend(next.map(|entry| (entry.path.clone(), level.saturating_add(1))));
            }
            found.append(&mut here);
        }
        found
    }

    /// The last part of what a symbolic link points to.
    pub(crate) fn link(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.root.join(path)).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }

    /// The names in a directory, sorted: of its first entries, of which there are more than any driver makes. None where there is no directory.
    pub(crate) fn names(&self, path: &str) -> io::Result<Vec<String>> {
        files::names(&self.root.join(path), MOST_NAMES)
    }
}
