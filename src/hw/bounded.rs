//! Reads that end: of regular files only, at most so many bytes, and of folders at most so many names; never for writing.
//!
//! What is read belongs to kernels, drivers and hosts, and what stands in its place may be anything. A FIFO is opened without waiting for
//! a writer, and is then no file that we read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use thiserror::Error;

/// Why a file says nothing.
#[derive(Debug, Error)]
pub(crate) enum Unread {
    /// It is not there.
    #[error("there is none")]
    Missing,
    /// It is there and could not be read, most often for want of rights.
    #[error("{0}")]
    Failed(io::Error),
    /// A folder, a FIFO, a device.
    #[error("it is no regular file")]
    NotAFile,
    /// It goes on after as many bytes as such a file ever has.
    #[error("it is longer than {0} bytes")]
    TooLong(u64),
    /// Its bytes are no text.
    #[error("it is not text")]
    NotText,
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Self {
        if is_missing(&error) {
            Self::Missing
        } else {
            Self::Failed(error)
        }
    }
}

/// Whether the error is that nothing is there.
pub(crate) fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// The first `limit` bytes of a file.
pub(crate) fn beginning(path: &Path, limit: u64) -> Result<Vec<u8>, Unread> {
    let mut bytes = Vec::new();
    open(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// All of a text that has at most `limit` bytes, as it is.
pub(crate) fn text(path: &Path, limit: u64) -> Result<String, Unread> {
    let bytes = beginning(path, limit.saturating_add(1))?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > limit {
        return Err(Unread::TooLong(limit));
    }
    String::from_utf8(bytes).map_err(|_| Unread::NotText)
}

/// The names among a folder's first `most` entries, sorted; none where there is no folder. One that is no text is no name of ours. A folder
/// that is there and cannot be read to its end is an error: it is not an empty one.
pub(crate) fn names(folder: &Path, most: usize) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries.take(most) {
        names.extend(entry?.file_name().into_string().ok());
    }
    names.sort();
    Ok(names)
}

fn open(path: &Path) -> Result<File, Unread> {
    let flags = i32::try_from((OFlags::NONBLOCK | OFlags::NOCTTY).bits()).unwrap_or(0);
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(Unread::NotAFile)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn a_file_without_rights_is_there_and_one_that_is_not_there_is_missing() {
        let of = |number| Unread::from(io::Error::from_raw_os_error(number));
        assert!(matches!(of(2), Unread::Missing));
        assert!(matches!(of(20), Unread::Missing));
        for (number, said) in [
            (13, "Permission denied (os error 13)"),
            (1, "Operation not permitted (os error 1)"),
        ] {
            assert!(matches!(of(number), Unread::Failed(_)));
            assert_eq!(of(number).to_string(), said);
        }
    }

    #[test]
    fn what_is_no_file_is_not_read_and_nobody_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert!(matches!(text(&pipe, 9), Err(Unread::NotAFile)));
        assert!(matches!(text(folder.path(), 9), Err(Unread::NotAFile)));
        let endless = Path::new("/dev/zero");
        assert!(matches!(beginning(endless, 9), Err(Unread::NotAFile)));
    }

    #[test]
    fn a_text_is_whole_or_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "123456789").unwrap();
        assert_eq!(text(&file, 9).unwrap(), "123456789");
        assert!(matches!(text(&file, 8), Err(Unread::TooLong(8))));
        assert_eq!(beginning(&file, 3).unwrap(), b"123");
        fs::write(&file, [0xff, 0xfe]).unwrap();
        assert!(matches!(text(&file, 9), Err(Unread::NotText)));
    }

    #[test]
    fn names_are_those_of_so_many_entries_and_what_is_no_folder_is_not_an_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        let of = |most| names(folder.path(), most).unwrap();
        for name in ["10", "2", "a"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(of(9), ["10", "2", "a"]);
        assert_eq!(of(2).len(), 2);
        fs::write(folder.path().join(OsStr::from_bytes(b"\xff")), "").unwrap();
        assert_eq!(of(9), ["10", "2", "a"]);
        assert_eq!(names(&folder.path().join("none"), 9).unwrap(), [""; 0]);
        let error = names(&folder.path().join("a"), 9).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
    }
}
