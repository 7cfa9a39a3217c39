//! Reading without any permissions: tests that run as root drop them.

use std::fs;
use std::os::unix::fs::{PermissionsExt, lchown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::unistd::{Uid, setfsuid};

/// The conventional user without any files.
const NOBODY: u32 = 65_534;

/// True if there are permissions to drop.
fn is_root() -> bool {
    Uid::effective().is_root()
}

/// Gives a directory and its content to the user of the programs.
pub(crate) fn give(path: &Path) {
    if !is_root() {
        return;
    }
    lchown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    if fs::symlink_metadata(path).unwrap().is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            give(&entry.unwrap().path());
        }
    }
}

/// A program, to be run in a directory given to its user.
pub(crate) fn command(program: &str, directory: &Path) -> Command {
    let program = Path::new(program);
    let mut command = if is_root() {
        let mut command = Command::new(within_reach(program, directory));
        command.uid(NOBODY).gid(NOBODY);
        command
    } else {
        Command::new(program)
    };
    // Variables of a pod are not part of these machines.
    command.env_remove("KUBERNETES_SERVICE_HOST");
    command.current_dir(directory).stdin(Stdio::null());
    command
}

/// The program itself or, if only root can reach it, a copy in the directory.
fn within_reach(program: &Path, directory: &Path) -> PathBuf {
    let is_open = |directory: &Path| {
        let mode = fs::metadata(directory).unwrap().permissions().mode();
        mode & 0o001 != 0
    };
    if program.ancestors().all(is_open) {
        return program.to_owned();
    }
    let copy = directory.join(program.file_name().unwrap());
    if !copy.exists() && fs::hard_link(program, &copy).is_err() {
        fs::copy(program, &copy).unwrap();
    }
    copy
}

/// Accesses files as the user of the programs: on this thread and on threads that it starts.
pub(crate) fn acting<T>(act: impl FnOnce() -> T) -> T {
    if !is_root() {
        return act();
    }
    let before = setfsuid(Uid::from_raw(NOBODY));
    let done = act();
    setfsuid(before);
    done
}
