//! Pod of a process, determined from its control group.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fs, io};

use octavo_model::holder::Pod;
use octavo_model::process_origin::ProcessOrigin;
use octavo_toolkit::files;
use procfs::ProcError;
use procfs::process::Process;
use rustix::io::Errno;
use tracing::debug;

use super::HoldersError;
use super::nodes::is_gone;
use super::open_files::{ensure_all_processes_visible, processes};

/// Size limit in bytes: a process is in a few control groups, each a path of at most 4096 bytes.
const MAX_CGROUP_BYTES: u64 = 1 << 20;

/// Returns the origin of each of these processes from the procfs at `root`.
///
/// # Errors
///
/// Fails if this is not the machine's own procfs, in which the process IDs from the driver mean other processes.
pub fn origins(
    root: &Path,
    pids: impl IntoIterator<Item = u32>,
) -> Result<BTreeMap<u32, ProcessOrigin>, HoldersError> {
    ensure_all_processes_visible(root)?;
    let all = pids.into_iter();
    Ok(all.map(|pid| (pid, origin(root, pid))).collect())
}

fn origin(root: &Path, pid: u32) -> ProcessOrigin {
    let process = Process::new_with_root(root.join(pid.to_string()));
    let groups = match process.and_then(|process| process.cgroups()) {
        Ok(groups) => groups,
        // Either the directory does not exist, or its process has just ended.
        Err(ProcError::NotFound(_)) => return ProcessOrigin::Gone,
        Err(ProcError::Io(error, _))
            if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) =>
        {
            return ProcessOrigin::Gone;
        }
        Err(error) => {
            debug!(pid, %error, "cannot read the cgroup of the process");
            return ProcessOrigin::Unknown;
        }
    };
    // In cgroup v1, each controller has a line, and not all of them name the pod.
    let mut pods = groups.into_iter().filter_map(|group| Pod::from_cgroup_path(&group.pathname));
    match pods.next() {
        Some(Pod { uid: Some(uid), container, .. }) => ProcessOrigin::Pod { uid, container },
        Some(_) | None => ProcessOrigin::NoPod,
    }
}

/// Returns the UIDs of the pods that have a process, from the procfs at `root`. An idle pod has at least its sandbox
/// process.
///
/// # Errors
///
/// Fails if some processes cannot be inspected, because there may be more pods.
pub fn pods(root: &Path) -> Result<BTreeSet<String>, HoldersError> {
    ensure_all_processes_visible(root)?;
    let mut uids = BTreeSet::new();
    for process in processes(root)? {
        let path = process?.1.join("cgroup");
        let groups = match files::text(&path, MAX_CGROUP_BYTES).map_err(io::Error::from) {
            Ok(groups) => groups,
            Err(error) if is_gone(&error) => continue,
            Err(error) => return Err(HoldersError::unreadable(&path, error)),
        };
        // A line is <number>:<controllers>:<path>. Source: cgroups(7), "/proc/pid/cgroup".
        let paths = groups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
        uids.extend(paths.filter_map(|path| Pod::from_cgroup_path(path)?.uid));
    }
    Ok(uids)
}

/// Returns whether the procfs at `root` belongs to a different process namespace than this program. The driver reports
/// process IDs in the caller's namespace and omits processes without one there.
///
/// If the namespace of process 1 cannot be read, compares this process's own number in both file systems. Returns
/// `false` if neither is known.
///
/// Source: `pid_namespaces(7)`, "/proc and PID namespaces"; `namespaces(7)`, "The /proc/pid/ns/ directory".
pub fn is_other_pid_namespace(root: &Path) -> bool {
    let here = Path::new("/proc");
    let both = |name: &str, of_root: &str| {
        let own = fs::read_link(here.join(name)).ok()?;
        Some(fs::read_link(root.join(of_root)).ok()? != own)
    };
    both("self/ns/pid", "1/ns/pid").or_else(|| both("self", "self")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const UID: &str = "3f1c9a52-7d0b-4a6e-9c7f-0d3b8e5a1c24";

    #[test]
    fn running_pods_require_all_processes_to_be_visible() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        assert!(pods(root).is_err(), "kernel threads are not visible");
        let put = |pid: &str, name: &str, text: &str| {
            fs::create_dir_all(root.join(pid)).unwrap();
            fs::write(root.join(pid).join(name), text).unwrap();
        };
        let thread = format!("2 (kthreadd) S 0 0 0 0 -1 2129984{}\n", " 0".repeat(43));
        put("2", "stat", &thread);
        put("2", "cgroup", "0::/\n");
        put("7", "cgroup", "0::/system.slice/kubelet.service\n");
        // The process ended during the scan.
        fs::create_dir(root.join("8")).unwrap();
        assert_eq!(pods(root).unwrap(), BTreeSet::new());
        let path = format!("/kubepods/besteffort/pod{UID}/{}", "ab".repeat(32));
        put("9", "cgroup", &format!("3:cpu:{path}\n0::/\n"));
        assert_eq!(pods(root).unwrap(), BTreeSet::from([UID.to_owned()]));
        fs::create_dir_all(root.join("10/cgroup")).unwrap();
        assert!(pods(root).is_err(), "the control group of a process is unreadable");
    }

    #[test]
    fn foreign_pid_namespace_is_detected() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        assert!(!is_other_pid_namespace(root), "the namespace is unknown");
        assert!(!is_other_pid_namespace(Path::new("/proc")), "the own namespace");
        symlink("4294967295", root.join("self")).unwrap();
        assert!(is_other_pid_namespace(root));
        fs::remove_file(root.join("self")).unwrap();
        symlink(std::process::id().to_string(), root.join("self")).unwrap();
        assert!(!is_other_pid_namespace(root));
        // The namespace itself has precedence.
        fs::create_dir_all(root.join("1/ns")).unwrap();
        symlink("pid:[1]", root.join("1/ns/pid")).unwrap();
        assert!(is_other_pid_namespace(root));
        fs::remove_file(root.join("1/ns/pid")).unwrap();
        let own = fs::read_link("/proc/self/ns/pid").unwrap();
        symlink(own, root.join("1/ns/pid")).unwrap();
        assert!(!is_other_pid_namespace(root));
    }
}
