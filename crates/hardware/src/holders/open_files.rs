//! Scan of all processes' open files for GPUs and partitions.
//!
//! NVML lists processes that have a context. Other processes use a device without one: those that have access to an
//! instance but do not compute yet, and monitoring tools. They block changes as well.
//!
//! A scan takes a while, so it misses a process that opens a node after having been scanned. Callers scan again
//! immediately before they destroy an instance, and the driver makes the final check.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, ReadDir};
use std::io;
use std::path::{Path, PathBuf};

use octavo_model::holder::{Holder, HolderDetails};
use octavo_model::inventory::{Device, Vendor};
use procfs::process::Process;

use super::HoldersError;
use super::nodes::{Capability, Node, Nodes, is_gone};
use crate::sysfs::parse_number;

/// Scan limits.
#[derive(Debug, Clone, Copy)]
struct Limits {
    processes: usize,
    /// Open files of all processes together.
    files: usize,
}

/// Above the counts of any working machine; a scan of this size takes seconds.
const LIMITS: Limits = Limits { processes: 1 << 17, files: 1 << 22 };

/// `PF_KTHREAD`: a kernel thread. Source: Linux, `include/linux/sched.h`.
const PF_KTHREAD: u32 = 0x0020_0000;

/// Returns the processes that have one of `devices`, or one of its GPU or compute instances, open: one holder per
/// process and node. The node of a GPU has no instance, and the node of a GPU instance has no compute instance. No
/// holder is marked as having a context.
///
/// `root` is the process file system. It must belong to the machine's initial process namespace, as a container's
/// procfs shows only the container's processes. This process is excluded: `self` names it even if it has another number
/// here, and does not resolve if it is not listed.
///
/// An empty list is certain. A process that ends during the scan is skipped. A table, process or open file that cannot
/// be read is an error, and so is an open node of unknown meaning. A GPU node that belongs to none of `devices` is
/// ignored, unless one of `devices` does not report its minor number.
pub fn open(root: &Path, devices: &[&Device]) -> Result<Vec<Holder>, HoldersError> {
    scan_with_limits(root, devices, LIMITS)
}

fn scan_with_limits(
    root: &Path,
    devices: &[&Device],
    limits: Limits,
) -> Result<Vec<Holder>, HoldersError> {
    let Some(nodes) = Nodes::read(root)? else {
        return Ok(Vec::new());
    };
    ensure_all_processes_visible(root)?;
    let own = fs::read_link(root.join("self")).ok();
    let own = own.as_deref().and_then(|link| process_id(link.as_os_str()));
    let mut scan = Scan { nodes: &nodes, limits, files: 0 };
    let mut holders = BTreeSet::new();
    let mut processes = 0;
    for process in self::processes(root)? {
        let (pid, dir) = process?;
        if Some(pid) == own {
            continue;
        }
        processes += 1;
        if processes > limits.processes {
            let limit = limits.processes;
            return Err(HoldersError::TooManyProcesses { limit });
        }
        for node in scan.process(&dir, pid)? {
            holders.extend(holders_of_node(&nodes, node, pid, devices)?);
        }
    }
    Ok(holders.into_iter().collect())
}

/// Checks that `root` shows all processes. In the machine's initial namespace, and in no other, process 2 is a kernel
/// thread. If it is hidden, other users' processes are hidden as well. Source: Linux, `rest_init` (kthreadd); proc(5),
/// `hidepid`.
pub(super) fn ensure_all_processes_visible(root: &Path) -> Result<(), HoldersError> {
    let second = Process::new_with_root(root.join("2")).and_then(|process| process.stat());
    match second {
        Ok(stat) if stat.flags & PF_KTHREAD != 0 => Ok(()),
        Ok(_) | Err(_) => Err(HoldersError::HiddenProcesses { root: root.to_owned() }),
    }
}

/// State of a scan.
struct Scan<'a> {
    nodes: &'a Nodes,
    limits: Limits,
    /// The number of open files seen.
    files: usize,
}

impl Scan<'_> {
    /// Returns the driver's nodes that the process has open.
    fn process(&mut self, dir: &Path, pid: u32) -> Result<BTreeSet<Node>, HoldersError> {
        let mut found = BTreeSet::new();
        if self.files_in(&dir.join("fd"), pid, &mut found)? > 0 {
            return Ok(found);
        }
        // The first thread may have ended and left the files to the other threads.
        let tasks = dir.join("task");
        let Some(entries) = entries(&tasks)? else {
            return Ok(found);
        };
        for entry in entries {
            match entry {
                Ok(task) => {
                    self.files_in(&task.path().join("fd"), pid, &mut found)?;
                }
                Err(error) if is_gone(&error) => break,
                Err(error) => return Err(HoldersError::unreadable(&tasks, error)),
            }
        }
        Ok(found)
    }

    /// Adds the driver's nodes among the open files in the directory and returns the number of files.
    ///
    /// This does not use `procfs`, which skips links that cannot be read. Without permission to trace a process, its
    /// directory can be listed but its links cannot be read, and that must not look like no open files.
    fn files_in(
        &mut self,
        dir: &Path,
        pid: u32,
        found: &mut BTreeSet<Node>,
    ) -> Result<usize, HoldersError> {
        let mut files = 0;
        let Some(entries) = entries(dir)? else {
            return Ok(files);
        };
        for entry in entries {
            let link = match entry {
                Ok(entry) => entry.path(),
                Err(error) if is_gone(&error) => break,
                Err(error) => return Err(HoldersError::unreadable(dir, error)),
            };
            files += 1;
            self.files += 1;
            if self.files > self.limits.files {
                let limit = self.limits.files;
                return Err(HoldersError::TooManyFiles { pid, limit });
            }
            let behind = match fs::read_link(&link) {
                Ok(target) => self.nodes.resolve_link(&link, &target),
                Err(error) if is_gone(&error) => continue,
                Err(error) => Err(error),
            };
            found.extend(behind.map_err(|error| HoldersError::unreadable(&link, error))?);
        }
        Ok(files)
    }
}

/// Lists a process directory; `None` if the process has ended.
fn entries(dir: &Path) -> Result<Option<ReadDir>, HoldersError> {
    match fs::read_dir(dir) {
        Ok(entries) => Ok(Some(entries)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(HoldersError::unreadable(dir, error)),
    }
}

/// Lists the processes in the procfs at `root`: the process ID and the directory of each.
pub(super) fn processes(
    root: &Path,
) -> Result<impl Iterator<Item = Result<(u32, PathBuf), HoldersError>>, HoldersError> {
    let unreadable = move |error: io::Error| HoldersError::unreadable(root, error);
    let entries = fs::read_dir(root).map_err(unreadable)?;
    Ok(entries.filter_map(move |entry| match entry {
        Ok(entry) => process_id(&entry.file_name()).map(|pid| Ok((pid, entry.path()))),
        Err(error) => Some(Err(unreadable(error))),
    }))
}

/// Parses a directory name that is a process ID.
pub(super) fn process_id(name: &OsStr) -> Option<u32> {
    name.to_str().and_then(parse_number)
}

/// Returns the holders that result from `pid` having `node` open.
fn holders_of_node(
    nodes: &Nodes,
    node: Node,
    pid: u32,
    devices: &[&Device],
) -> Result<Vec<Holder>, HoldersError> {
    let (gpu, gpu_instance, compute_instance) = match node {
        Node::Gpu(minor) => (minor, None, None),
        Node::Capability(minor) => match nodes.capability(minor) {
            Some(Capability::Instance { gpu, gpu_instance, compute_instance }) => {
                (gpu, Some(gpu_instance), compute_instance)
            }
            Some(Capability::Other) => return Ok(Vec::new()),
            Some(Capability::Ambiguous) | None => {
                return Err(HoldersError::UnknownCapability { pid, minor });
            }
        },
    };
    let here = devices.iter().filter(|device| device.minor == Some(gpu));
    let holders: Vec<Holder> = here
        .map(|device| Holder {
            device: device.pci,
            gpu_instance,
            compute_instance,
            details: HolderDetails { pid: Some(pid), ..HolderDetails::default() },
        })
        .collect();
    let lacks_minor = |device: &&Device| device.vendor == Vendor::Nvidia && device.minor.is_none();
    if holders.is_empty() && devices.iter().any(lacks_minor) {
        return Err(HoldersError::UnknownDevice { pid, minor: gpu });
    }
    Ok(holders)
}

#[cfg(test)]
mod tests;
