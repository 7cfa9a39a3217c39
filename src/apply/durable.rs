//! Files that survive a crash whole: written beside, synced, renamed, and their folder synced.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use thiserror::Error;

use crate::files::ReadError;

/// `O_NOFOLLOW` as the system has it.
const NO_LINKS: i32 = OFlags::NOFOLLOW.bits().cast_signed();
/// `O_NONBLOCK`: opening a FIFO otherwise waits for its other end, possibly without end.
const NO_WAIT: i32 = OFlags::NONBLOCK.bits().cast_signed();

/// A step that failed. The file is as it was, or, where its folder could not be synced, perhaps the new one.
#[derive(Debug, Error)]
#[error("cannot {action} {}", .path.display())]
pub struct DurableError {
    /// What was tried.
    pub action: &'static str,
    /// On which file or folder.
    pub path: PathBuf,
    /// What the system said.
    #[source]
    pub source: io::Error,
}

/// Replaces `path` whole, by way of `draft` in the same folder: a reader, and a crash at any moment, finds the old content or
/// the new.
pub fn replace(path: &Path, draft: &Path, content: &[u8], mode: u32) -> Result<(), DurableError> {
    write_synced(draft, content, mode).map_err(failed("write", draft))?;
    fs::rename(draft, path).map_err(failed("replace", path))?;
    sync_folder(path)
}

/// Takes `path` away for good; that it is not there is as good.
pub fn remove(path: &Path) -> Result<(), DurableError> {
    match fs::remove_file(path) {
        Ok(()) => sync_folder(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed("remove", path)(error)),
    }
}

/// The folder that `path` is in.
pub fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    }
}

/// Opens a file for writing as `options` say, if it is a regular one. A FIFO, a device or a folder is an error, and is not waited for.
pub fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = options.custom_flags(NO_WAIT).open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(ReadError::NotAFile.into())
}

fn sync_folder(path: &Path) -> Result<(), DurableError> {
    let folder = folder(path);
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(failed("sync the folder", folder))
}

fn write_synced(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    // A link that somebody laid there leads nowhere.
    let mut file = File::options()
        .create(true)
        .write(true)
        .truncate(true)
        .custom_flags(NO_LINKS | NO_WAIT)
        .open(path)?;
    // Its reader may be another user's process, whatever our umask is.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(content)?;
    file.sync_all()
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DurableError {
    let path = path.to_owned();
    move |source| DurableError {
        action,
        path,
        source,
    }
}
