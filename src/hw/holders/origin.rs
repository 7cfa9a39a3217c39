//! Which pod a process is of, by its control group.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use procfs::ProcError;
use procfs::process::Process;
use rustix::io::Errno;
use tracing::debug;

use super::HoldersError;
use super::open::all_in_sight;
use crate::domain::holder::Pod;
use crate::domain::sharing::join::Origin;

/// Whose each of these processes is, as the `/proc` at `root` tells.
///
/// # Errors
///
/// It is not the machine's own process file system: the numbers that the driver names mean other processes there.
pub fn origins(
    root: &Path,
    pids: impl IntoIterator<Item = u32>,
) -> Result<BTreeMap<u32, Origin>, HoldersError> {
    all_in_sight(root)?;
    let all = pids.into_iter();
    Ok(all.map(|pid| (pid, origin(root, pid))).collect())
}

fn origin(root: &Path, pid: u32) -> Origin {
    let process = Process::new_with_root(root.join(pid.to_string()));
    let groups = match process.and_then(|process| process.cgroups()) {
        Ok(groups) => groups,
        // No folder, or no process where there still is one.
        Err(ProcError::NotFound(_)) => return Origin::Gone,
        Err(ProcError::Io(error, _))
            if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) =>
        {
            return Origin::Gone;
        }
        Err(error) => {
            debug!("process {pid}: {error}");
            return Origin::Unknown;
        }
    };
    // With the first version there is a line for each controller, and not all of them name the pod.
    let mut pods = groups
        .into_iter()
        .filter_map(|group| Pod::of_control_group(&group.pathname));
    match pods.next() {
        Some(Pod {
            uid: Some(uid),
            container,
            ..
        }) => Origin::Pod { uid, container },
        Some(_) | None => Origin::NoPod,
    }
}

/// Whether the `/proc` at `root` is of another process namespace than this program is in. The driver names processes by their
/// numbers in the namespace of whoever asks, and leaves out those that have none there.
///
/// Who may not look at the namespace of process 1 is still told by `self` which number it has there itself. Where neither is
/// told nothing speaks for it.
///
/// Source: `pid_namespaces(7)`, "/proc and PID namespaces"; `namespaces(7)`, "The /proc/pid/ns/ directory".
pub fn is_elsewhere(root: &Path) -> bool {
    let here = Path::new("/proc");
    let both = |name: &str, of_root: &str| {
        let own = fs::read_link(here.join(name)).ok()?;
        Some(fs::read_link(root.join(of_root)).ok()? != own)
    };
    both("self/ns/pid", "1/ns/pid")
        .or_else(|| both("self", "self"))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_process_file_system_of_another_namespace_is_told_by_its_first_process_or_by_the_own_number()
     {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        assert!(!is_elsewhere(root), "nothing is told");
        assert!(!is_elsewhere(Path::new("/proc")), "its own");
        symlink("4294967295", root.join("self")).unwrap();
        assert!(is_elsewhere(root));
        fs::remove_file(root.join("self")).unwrap();
        symlink(std::process::id().to_string(), root.join("self")).unwrap();
        assert!(!is_elsewhere(root));
        // The namespace itself says it better.
        fs::create_dir_all(root.join("1/ns")).unwrap();
        symlink("pid:[1]", root.join("1/ns/pid")).unwrap();
        assert!(is_elsewhere(root));
        fs::remove_file(root.join("1/ns/pid")).unwrap();
        let own = fs::read_link("/proc/self/ns/pid").unwrap();
        symlink(own, root.join("1/ns/pid")).unwrap();
        assert!(!is_elsewhere(root));
    }
}
