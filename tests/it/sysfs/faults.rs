//! Faults that replace a file or directory of `/sys`, and its restoration.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use tempfile::TempDir;

use super::unprivileged::give;

/// The original, moved to a directory.
const ASIDE: &str = "aside";

/// A fault of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Missing,
    Directory,
    /// 64 MiB of zeros.
    Huge,
    NoUtf8,
    Zeros,
    /// A pipe without a writer.
    SilentPipe,
    /// A full pipe whose writer never closes it.
    FullPipe,
    /// A device that can be read without end.
    Endless,
    /// A link to itself.
    Loop,
    /// A file without read permission.
    Closed,
}

/// A path with a fault. Dropping it restores the original.
pub(crate) struct FaultGuard {
    path: PathBuf,
    was: Original,
    /// The write end of a pipe.
    _writer: Option<File>,
}

enum Original {
    Moved(TempDir),
    Open(Permissions),
}

impl Fault {
    pub(crate) const ALL: [Self; 10] = [
        Self::Missing,
        Self::Directory,
        Self::Huge,
        Self::NoUtf8,
        Self::Zeros,
        Self::SilentPipe,
        Self::FullPipe,
        Self::Endless,
        Self::Loop,
        Self::Closed,
    ];

    /// Replaces an existing path. The permissions of a link cannot be removed.
    pub(crate) fn inject(self, path: &Path) -> Option<FaultGuard> {
        if self == Self::Closed {
            let found = fs::symlink_metadata(path).unwrap();
            if found.is_symlink() {
                return None;
            }
            fs::set_permissions(path, Permissions::from_mode(0o000)).unwrap();
            return Some(FaultGuard {
                path: path.to_owned(),
                was: Original::Open(found.permissions()),
                _writer: None,
            });
        }
        let aside = tempfile::tempdir().unwrap();
        fs::rename(path, aside.path().join(ASIDE)).unwrap();
        let writer = self.put(path);
        if self != Self::Missing {
            give(path);
        }
        Some(FaultGuard { path: path.to_owned(), was: Original::Moved(aside), _writer: writer })
    }

    fn put(self, path: &Path) -> Option<File> {
        match self {
            Self::Missing | Self::Closed => {}
            Self::Directory => fs::create_dir(path).unwrap(),
            Self::Huge => File::create(path).unwrap().set_len(64 << 20).unwrap(),
            Self::NoUtf8 => fs::write(path, [b'9', 0xff, 0xfe, b'\n', 0xc3]).unwrap(),
            Self::Zeros => fs::write(path, [0; 64]).unwrap(),
            Self::SilentPipe => nix::unistd::mkfifo(path, Mode::S_IRWXU).unwrap(),
            Self::FullPipe => return Some(full_pipe(path)),
            Self::Endless => symlink("/dev/zero", path).unwrap(),
            Self::Loop => symlink(path, path).unwrap(),
        }
        None
    }
}

/// The write end, which keeps the pipe open.
fn full_pipe(path: &Path) -> File {
    nix::unistd::mkfifo(path, Mode::S_IRWXU).unwrap();
    // Opened for reading too, or `open` would wait for a reader.
    let mut options = File::options();
    options.read(true).write(true);
    options.custom_flags(OFlag::O_NONBLOCK.bits());
    let mut writer = options.open(path).unwrap();
    while writer.write(&[b'7'; 4096]).is_ok() {}
    writer
}

impl Drop for FaultGuard {
    fn drop(&mut self) {
        match &self.was {
            Original::Open(permissions) => {
                fs::set_permissions(&self.path, permissions.clone()).unwrap();
            }
            Original::Moved(aside) => {
                let _there_may_be_none =
                    fs::remove_file(&self.path).or_else(|_| fs::remove_dir(&self.path));
                fs::rename(aside.path().join(ASIDE), &self.path).unwrap();
            }
        }
    }
}

/// The directory and everything below it: files, links and directories.
pub(crate) fn paths(root: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut open = vec![PathBuf::new()];
    while let Some(below) = open.pop() {
        for entry in fs::read_dir(root.join(&below)).unwrap() {
            let entry = entry.unwrap();
            let path = below.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                open.push(path.clone());
            }
            found.insert(path);
        }
    }
    found
}
