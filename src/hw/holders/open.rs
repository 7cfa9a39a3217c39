//! Who has a GPU or a partition open: a look through the open files of all processes.
//!
//! The processes that NVML names have a context. Others use a device without one: who was let into an instance and computes
//! nothing yet, who only watches. These stand in the way as well.
//!
//! A look takes a while and processes go on meanwhile, so whoever opens something after its process was looked at is not
//! found. Whoever destroys something looks again right before, and the driver has the last word.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, ReadDir};
use std::path::Path;

use procfs::process::Process;

use super::HoldersError;
use super::nodes::{Capability, Node, Nodes, gone, number};
use crate::domain::holder::{Holder, Who};
use crate::domain::inventory::{Device, Vendor};

/// The most that is looked at.
#[derive(Debug, Clone, Copy)]
struct Limits {
    processes: usize,
    /// Open files of all processes together.
    files: usize,
}

/// Above what any machine has that works; to look at so much takes seconds.
const LIMITS: Limits = Limits {
    processes: 1 << 17,
    files: 1 << 22,
};

/// `PF_KTHREAD`: a thread of the kernel. Source: Linux, `include/linux/sched.h`.
const KERNEL_THREAD: u32 = 0x0020_0000;

/// Who has one of `devices`, or a GPU or compute instance of it, open: one for each process and node, the node of a GPU
/// having no instance and the node of a GPU instance no compute instance. None is said to have a context.
///
/// `root` is where the process file system is, which must be one of the machine's own process namespace, as a container's
/// shows only those of the container. This process is left out: `self` in there leads to it also where it has another number
/// here, and to nothing where it is not among those shown.
///
/// Nobody is returned only where that is certain. A process that ends meanwhile is certain; a table, a process or an open
/// file that cannot be read is an error, as is an open node that stands for nothing known. A node of a GPU that is none of
/// `devices` is somebody else's, unless one of `devices` does not tell its minor number.
pub fn open(root: &Path, devices: &[&Device]) -> Result<Vec<Holder>, HoldersError> {
    within(root, devices, LIMITS)
}

fn within(root: &Path, devices: &[&Device], limits: Limits) -> Result<Vec<Holder>, HoldersError> {
    let Some(nodes) = Nodes::read(root)? else {
        return Ok(Vec::new());
    };
    all_in_sight(root)?;
    let own = fs::read_link(root.join("self")).ok();
    let own = own.as_deref().and_then(|link| id(link.as_os_str()));
    let mut look = Look {
        nodes: &nodes,
        limits,
        files: 0,
    };
    let mut holders = BTreeSet::new();
    let mut processes = 0;
    let unreadable = |error| HoldersError::unreadable(root, error);
    for entry in fs::read_dir(root).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name();
        let Some(pid) = id(&name).filter(|pid| Some(*pid) != own) else {
            continue;
        };
        processes += 1;
        if processes > limits.processes {
            let limit = limits.processes;
            return Err(HoldersError::TooManyProcesses { limit });
        }
        for node in look.process(&root.join(&name), pid)? {
            holders.extend(of_node(&nodes, node, pid, devices)?);
        }
    }
    Ok(holders.into_iter().collect())
}

/// Whether the processes at `root` are all that there are. Process 2 of the machine's own namespace is a thread of the kernel,
/// and of no other namespace; and who does not see that one, because others' processes are hidden from him, sees others
/// neither. Source: Linux, `rest_init` (kthreadd); proc(5), `hidepid`.
pub(super) fn all_in_sight(root: &Path) -> Result<(), HoldersError> {
    let second = Process::new_with_root(root.join("2")).and_then(|process| process.stat());
    match second {
        Ok(stat) if stat.flags & KERNEL_THREAD != 0 => Ok(()),
        Ok(_) | Err(_) => Err(HoldersError::NotAllInSight {
            root: root.to_owned(),
        }),
    }
}

/// The state of a look through all processes.
struct Look<'a> {
    nodes: &'a Nodes,
    limits: Limits,
    /// How many open files were looked at.
    files: usize,
}

impl Look<'_> {
    /// The driver's nodes that the process has open.
    fn process(&mut self, folder: &Path, pid: u32) -> Result<BTreeSet<Node>, HoldersError> {
        let mut found = BTreeSet::new();
        if self.files_in(&folder.join("fd"), pid, &mut found)? > 0 {
            return Ok(found);
        }
        // The first thread may have ended and left the files to the others.
        let tasks = folder.join("task");
        let Some(entries) = entries(&tasks)? else {
            return Ok(found);
        };
        for entry in entries {
            match entry {
                Ok(task) => {
                    self.files_in(&task.path().join("fd"), pid, &mut found)?;
                }
                Err(error) if gone(&error) => break,
                Err(error) => return Err(HoldersError::unreadable(&tasks, error)),
            }
        }
        Ok(found)
    }

    /// Adds the driver's nodes among the open files that the folder lists, and says how many files these are.
    ///
    /// By hand, because `procfs` leaves out links that may not be read: without the right to trace a process its folder can
    /// be listed and its files not be told, and that must not look like none.
    fn files_in(
        &mut self,
        folder: &Path,
        pid: u32,
        found: &mut BTreeSet<Node>,
    ) -> Result<usize, HoldersError> {
        let mut files = 0;
        let Some(entries) = entries(folder)? else {
            return Ok(files);
        };
        for entry in entries {
            let link = match entry {
                Ok(entry) => entry.path(),
                Err(error) if gone(&error) => break,
                Err(error) => return Err(HoldersError::unreadable(folder, error)),
            };
            files += 1;
            self.files += 1;
            if self.files > self.limits.files {
                let limit = self.limits.files;
                return Err(HoldersError::TooManyFiles { pid, limit });
            }
            let behind = match fs::read_link(&link) {
                Ok(target) => self.nodes.behind(&link, &target),
                Err(error) if gone(&error) => continue,
                Err(error) => Err(error),
            };
            found.extend(behind.map_err(|error| HoldersError::unreadable(&link, error))?);
        }
        Ok(files)
    }
}

/// What is in the folder of a process; `None` where the process is gone.
fn entries(folder: &Path) -> Result<Option<ReadDir>, HoldersError> {
    match fs::read_dir(folder) {
        Ok(entries) => Ok(Some(entries)),
        Err(error) if gone(&error) => Ok(None),
        Err(error) => Err(HoldersError::unreadable(folder, error)),
    }
}

/// The process id that is the whole of a name.
fn id(name: &OsStr) -> Option<u32> {
    name.to_str().and_then(number)
}

/// Whom `pid` makes a holder of by having `node` open.
fn of_node(
    nodes: &Nodes,
    node: Node,
    pid: u32,
    devices: &[&Device],
) -> Result<Vec<Holder>, HoldersError> {
    let (gpu, gpu_instance, compute_instance) = match node {
        Node::Gpu(minor) => (minor, None, None),
        Node::Capability(minor) => match nodes.capability(minor) {
            Some(Capability::Instance {
                gpu,
                gpu_instance,
                compute_instance,
            }) => (gpu, Some(gpu_instance), compute_instance),
            Some(Capability::Other) => return Ok(Vec::new()),
            Some(Capability::Unclear) | None => {
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
            who: Who {
                pid: Some(pid),
                ..Who::default()
            },
        })
        .collect();
    let untold = |device: &&Device| device.vendor == Vendor::Nvidia && device.minor.is_none();
    if holders.is_empty() && devices.iter().any(untold) {
        return Err(HoldersError::UnknownDevice { pid, minor: gpu });
    }
    Ok(holders)
}

#[cfg(test)]
mod tests;
