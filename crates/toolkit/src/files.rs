//! Bounded reads of files and directories. Nothing in this module writes.
//!
//! The files belong to kernels, drivers, hosts and administrators, so any kind of file may exist at a given path. The
//! functions that take a path reject a FIFO or a device with a typed error before any byte is read, so that they never
//! block waiting for a writer. The functions that take a reader are for input that may be a pipe. Input over the size
//! limit is rejected, not truncated, except by the functions that read a prefix.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use thiserror::Error;

/// Error while reading a file.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The file does not exist.
    #[error("{0}")]
    Missing(io::Error),
    /// The file exists but cannot be read, most often because of missing permissions.
    #[error("{0}")]
    Failed(io::Error),
    /// The path is a directory, a FIFO, a socket or a device.
    #[error("it is not a regular file")]
    NotARegularFile,
    /// The file is larger than the limit in bytes.
    #[error("it is longer than {}", format_size(*.0))]
    TooLong(u64),
    /// The content is not valid UTF-8.
    #[error("it is not text")]
    NotText,
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        if is_missing(&error) { Self::Missing(error) } else { Self::Failed(error) }
    }
}

impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> Self {
        let kind = match error {
            ReadError::Missing(error) | ReadError::Failed(error) => return error,
            ReadError::NotARegularFile => io::ErrorKind::InvalidInput,
            ReadError::TooLong(_) => io::ErrorKind::FileTooLarge,
            ReadError::NotText => io::ErrorKind::InvalidData,
        };
        Self::new(kind, error)
    }
}

/// Reports whether the error means that the file does not exist.
pub fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Opens a regular file for reading. Opening a FIFO fails instead of waiting for a writer.
pub fn open(path: &Path) -> Result<File, ReadError> {
    let flags = i32::try_from((OFlags::NONBLOCK | OFlags::NOCTTY).bits()).unwrap_or(0);
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(ReadError::NotARegularFile) }
}

/// Reads the first `limit` bytes of a file.
pub fn read_prefix(path: &Path, limit: u64) -> Result<Vec<u8>, ReadError> {
    Ok(prefix_of(open(path)?, limit)?)
}

/// Reads the first `limit` bytes of a reader.
pub fn prefix_of(reader: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a whole file of at most `limit` bytes.
pub fn read_bytes(path: &Path, limit: u64) -> Result<Vec<u8>, ReadError> {
    read_bounded(open(path)?, limit)
}

/// Reads a reader to its end, if that is at most `limit` bytes away.
pub fn read_bounded(reader: impl Read, limit: u64) -> Result<Vec<u8>, ReadError> {
    let bytes = prefix_of(reader, limit.saturating_add(1))?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > limit {
        return Err(ReadError::TooLong(limit));
    }
    Ok(bytes)
}

/// Reads a whole UTF-8 file of at most `limit` bytes.
pub fn text(path: &Path, limit: u64) -> Result<String, ReadError> {
    text_of(open(path)?, limit)
}

/// Reads UTF-8 text of at most `limit` bytes to its end.
pub fn text_of(reader: impl Read, limit: u64) -> Result<String, ReadError> {
    String::from_utf8(read_bounded(reader, limit)?).map_err(|_| ReadError::NotText)
}

/// Returns the sorted names of the first `limit` entries of a directory, or an empty list if the directory does not
/// exist. Skips names that are not UTF-8. Fails if the directory cannot be read to its end.
pub fn names(directory: &Path, limit: usize) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries.take(limit) {
        names.extend(entry?.file_name().into_string().ok());
    }
    names.sort();
    Ok(names)
}

fn format_size(limit: u64) -> String {
    const MEBIBYTE: u64 = 1 << 20;
    if limit >= MEBIBYTE && limit.is_multiple_of(MEBIBYTE) {
        return format!("{} MiB", limit / MEBIBYTE);
    }
    format!("{limit} bytes")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::io::Write;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::net::UnixListener;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn permission_error_is_not_reported_as_missing() {
        let of = |number| ReadError::from(io::Error::from_raw_os_error(number));
        assert!(matches!(of(2), ReadError::Missing(_)));
        assert!(matches!(of(20), ReadError::Missing(_)));
        for (number, message) in
            [(13, "Permission denied (os error 13)"), (1, "Operation not permitted (os error 1)")]
        {
            assert!(matches!(of(number), ReadError::Failed(_)));
            assert_eq!(of(number).to_string(), message);
        }
    }

    #[test]
    fn fifo_directory_and_device_are_rejected_without_blocking() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert!(matches!(text(&pipe, 9), Err(ReadError::NotARegularFile)));
        assert!(matches!(text(directory.path(), 9), Err(ReadError::NotARegularFile)));
        let endless = Path::new("/dev/zero");
        assert!(matches!(read_prefix(endless, 9), Err(ReadError::NotARegularFile)));
        let socket = directory.path().join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        assert!(matches!(text(&socket, 9), Err(ReadError::Failed(_))));
    }

    #[test]
    fn pipe_is_read_to_its_end_or_to_the_limit() {
        let piped = |text: &str| {
            let (reader, mut writer) = io::pipe().unwrap();
            writer.write_all(text.as_bytes()).unwrap();
            reader
        };
        assert_eq!(text_of(piped("123456789"), 9).unwrap(), "123456789");
        let error = text_of(piped("123456789"), 8).unwrap_err();
        assert!(matches!(error, ReadError::TooLong(8)), "{error}");
        let endless = text_of(io::repeat(b'1'), 8).unwrap_err();
        assert!(matches!(endless, ReadError::TooLong(8)), "{endless}");
        assert_eq!(prefix_of(io::repeat(b'1'), 3).unwrap(), b"111");
    }

    #[test]
    fn oversized_or_non_utf8_text_is_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "123456789").unwrap();
        assert_eq!(text(&file, 9).unwrap(), "123456789");
        assert!(matches!(text(&file, 8), Err(ReadError::TooLong(8))));
        assert!(matches!(read_bytes(&file, 8), Err(ReadError::TooLong(8))));
        assert_eq!(read_prefix(&file, 3).unwrap(), b"123");
        fs::write(&file, [0xff, 0xfe]).unwrap();
        assert!(matches!(text(&file, 9), Err(ReadError::NotText)));
    }

    #[test]
    fn list_dir_is_bounded_and_fails_for_non_directories() {
        let directory = tempfile::tempdir().unwrap();
        let of = |limit| names(directory.path(), limit).unwrap();
        for name in ["10", "2", "a"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        assert_eq!(of(9), ["10", "2", "a"]);
        assert_eq!(of(2).len(), 2);
        fs::write(directory.path().join(OsStr::from_bytes(b"\xff")), "").unwrap();
        assert_eq!(of(9), ["10", "2", "a"]);
        assert_eq!(names(&directory.path().join("none"), 9).unwrap(), [""; 0]);
        let error = names(&directory.path().join("a"), 9).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
    }
}
