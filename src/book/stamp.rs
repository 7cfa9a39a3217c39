//! Whether a file was replaced: what differs between two looks at it.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A file as it was at one moment. Another one under the same name has another inode, length or time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    length: u64,
    modified: (i64, i64),
    inode: u64,
}

impl Stamp {
    /// Of the file that is at `path` now; `None` when there is none.
    pub fn of(path: &Path) -> Option<Self> {
        let data = std::fs::metadata(path).ok()?;
        Some(Self {
            length: data.len(),
            modified: (data.mtime(), data.mtime_nsec()),
            inode: data.ino(),
        })
    }
}
