//! Crash-safe file replacement: write a draft, sync it, rename it, and sync its directory.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use octavo_toolkit::files::ReadError;
use rustix::fs::OFlags;
use thiserror::Error;

/// `O_NOFOLLOW`, converted to the type of `OpenOptionsExt::custom_flags`.
const NOFOLLOW: i32 = OFlags::NOFOLLOW.bits().cast_signed();
/// `O_NONBLOCK`: without it, opening a FIFO waits for the other end, possibly forever.
const NONBLOCK: i32 = OFlags::NONBLOCK.bits().cast_signed();

/// A failed step. The file is unchanged or, if its directory could not be synced, possibly already replaced.
#[derive(Debug, Error)]
#[error("cannot {action} {}", .path.display())]
pub struct DurableError {
    /// The attempted action.
    pub action: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// The operating system's error.
    #[source]
    pub source: io::Error,
}

/// Replaces the whole file `path` through `draft` in the same directory. A reader, and a crash at any time, sees either
/// the old or the new content.
pub fn replace(path: &Path, draft: &Path, content: &[u8], mode: u32) -> Result<(), DurableError> {
    write_synced(draft, content, mode).map_err(failed("write", draft))?;
    fs::rename(draft, path).map_err(failed("replace", path))?;
    sync_dir(path)
}

/// Removes `path` durably. A missing file is not an error.
pub fn remove(path: &Path) -> Result<(), DurableError> {
    match fs::remove_file(path) {
        Ok(()) => sync_dir(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed("remove", path)(error)),
    }
}

/// Returns the parent directory of `path`.
pub fn parent_dir(path: &Path) -> &Path {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        Some(_) | None => Path::new("."),
    }
}

/// Opens a regular file for writing with `options`. A FIFO, device or directory is an error and never blocks.
pub fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = options.custom_flags(NONBLOCK).open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(ReadError::NotARegularFile.into())
}

fn sync_dir(path: &Path) -> Result<(), DurableError> {
    let dir = parent_dir(path);
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed("sync the directory", dir))
}

fn write_synced(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    // Do not follow a symbolic link planted at this path.
    let mut file = File::options()
        .create(true)
        .write(true)
        .truncate(true)
        .custom_flags(NOFOLLOW | NONBLOCK)
        .open(path)?;
    // The file may be read by another user's process, so its mode must not depend on our umask.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(content)?;
    file.sync_all()
}

/// Converts the error of an attempted action on `path`.
pub(crate) fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DurableError {
    let path = path.to_owned();
    move |source| DurableError { action, path, source }
}
