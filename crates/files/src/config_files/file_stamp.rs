//! Detection of replaced files: the attributes that differ between two versions of a file.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

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
