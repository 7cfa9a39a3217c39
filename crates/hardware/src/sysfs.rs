//! File access below a sysfs root.
//!
//! Every file is optional and every read is bounded. A missing, unreadable or empty file is `None` and never zero,
//! because kernels, drivers and container runtimes each omit some files.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

use octavo_model::quantity::Mebibytes;
use octavo_toolkit::files::{self, ReadError};

/// Size limit of an attribute in bytes; sysfs itself returns at most one page.
const MAX_ATTRIBUTE_BYTES: u64 = 4096;

/// Maximum number of directory entries: the number of addresses in a PCI segment.
const MAX_ENTRIES: usize = 1 << 16;

/// Upper bound of a device's memory: 16 TiB, more than a hundred times that of any device.
pub(crate) const MAX_DEVICE_MEMORY: Mebibytes = Mebibytes::new(16 << 20);

/// Maximum length of a product name in bytes.
const MAX_NAME_BYTES: usize = 128;

/// Parses a number as the kernel writes it: digits only.
pub(crate) fn parse_number(text: &str) -> Option<u32> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// Returns whether the text is a printable name. Invalid UTF-8 has become a replacement character by now.
pub(crate) fn is_printable_name(text: &str) -> bool {
    let odd = |c: char| c.is_control() || c == char::REPLACEMENT_CHARACTER;
    text.len() <= MAX_NAME_BYTES && !text.contains(odd)
}

/// A mounted sysfs.
#[derive(Debug, Clone)]
pub(crate) struct Sysfs {
    root: PathBuf,
}

/// A file or directory found by [`Sysfs::walk`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Relative to the sysfs root.
    pub(crate) path: String,
    pub(crate) is_dir: bool,
}

impl Sysfs {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// Returns a trimmed text attribute.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        self.attribute(path).ok().flatten()
    }

    /// Returns a trimmed text attribute, or the read error. `None` if the file is missing or empty.
    pub(crate) fn attribute(&self, path: &str) -> Result<Option<String>, ReadError> {
        let bytes = match files::read_prefix(&self.root.join(path), MAX_ATTRIBUTE_BYTES) {
            Ok(bytes) => bytes,
            Err(ReadError::Missing(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim();
        Ok((!text.is_empty()).then(|| text.to_owned()))
    }

    /// Returns a hexadecimal attribute, such as a PCI ID.
    pub(crate) fn hex(&self, path: &str) -> Option<u32> {
        let text = self.text(path)?;
        u32::from_str_radix(text.trim_start_matches("0x"), 16).ok()
    }

    /// Returns at most `limit` bytes of a file. A configuration space is read from the device, which may not respond;
    /// callers record this like a driver call. A FIFO or other special file is not opened.
    pub(crate) fn bytes(&self, path: &str, limit: u64) -> Option<Vec<u8>> {
        let path = self.root.join(path);
        if !fs::metadata(&path).ok()?.is_file() {
            return None;
        }
        // Not opened with `O_NONBLOCK`, which would fail where the device does not respond.
        files::prefix_of(File::open(path).ok()?, limit).ok()
    }

    /// Returns a text attribute untrimmed, or the read error.
    pub(crate) fn read_text(&self, path: &str) -> Result<String, ReadError> {
        files::text(&self.root.join(path), MAX_ATTRIBUTE_BYTES)
    }

    /// Returns whether the path exists, readable or not.
    pub(crate) fn exists(&self, path: &str) -> bool {
        match fs::metadata(self.root.join(path)) {
            Ok(_) => true,
            Err(error) => !files::is_missing(&error),
        }
    }

    /// Returns whether the path is a directory or a link to one.
    pub(crate) fn is_dir(&self, path: &str) -> bool {
        fs::metadata(self.root.join(path)).is_ok_and(|found| found.is_dir())
    }

    /// Returns the paths below a directory, limited in depth and number, shallowest first. Links are omitted, because
    /// in sysfs they lead to other devices.
    pub(crate) fn walk(&self, path: &str, depth: usize, most: usize) -> Vec<Entry> {
        let mut found: Vec<Entry> = Vec::new();
        let mut directories = VecDeque::from([(path.to_owned(), 1)]);
        while let Some((dir, level)) = directories.pop_front() {
            let left = most.saturating_sub(found.len());
            if left == 0 {
                break;
            }
            let entries = fs::read_dir(self.root.join(&dir));
            let mut here: Vec<Entry> = entries
                .into_iter()
                .flatten()
                .take(left)
                .flatten()
                .filter_map(|entry| {
                    let kind = entry.file_type().ok()?;
                    let name = entry.file_name().into_string().ok()?;
                    (kind.is_dir() || kind.is_file())
                        .then(|| Entry { path: format!("{dir}/{name}"), is_dir: kind.is_dir() })
                })
                .collect();
            here.sort_by(|one, other| one.path.cmp(&other.path));
            if level < depth {
                let next = here.iter().filter(|entry| entry.is_dir);
                directories.extend(next.map(|entry| (entry.path.clone(), level.saturating_add(1))));
            }
            found.append(&mut here);
        }
        found
    }

    /// Returns the last component of a symbolic link's target.
    pub(crate) fn link(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.root.join(path)).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }

    /// Returns the sorted names in a directory, truncated at [`MAX_ENTRIES`] entries. Empty if there is no such
    /// directory.
    pub(crate) fn names(&self, path: &str) -> io::Result<Vec<String>> {
        files::names(&self.root.join(path), MAX_ENTRIES)
    }
}
