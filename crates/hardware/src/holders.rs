//! GPU usage from procfs: [`open_files::open`] finds the processes that have a GPU or partition open, and [`describe`] adds
//! details of a process.
//!
//! The details are informational: a process that has ended, or that this program cannot inspect, keeps its process ID
//! without them. The result of [`open_files::open`] decides what may be destroyed, so unknown usage is an error and never an
//! empty list.

pub(super) mod nodes;
mod open_files;
mod process_origin;

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use octavo_model::holder::{Holder, HolderDetails, Pod};
use octavo_toolkit::files;
use procfs::process::Process;
use procfs::{FromReadSI, KernelStats, current_system_info, ticks_per_second};
use thiserror::Error as ThisError;

pub use self::open_files::open;
use self::open_files::process_id;
pub use self::process_origin::{is_other_pid_namespace, origins, pods};

/// Maximum length of a stored command line in characters; its beginning is enough to recognize it.
const MAX_COMMAND_CHARS: usize = 400;

/// Adds the command, start time and pod from the procfs at `root`. The process IDs must belong to its process
/// namespace.
pub fn describe(root: &Path, holders: &mut [Holder]) {
    let boot = boot_time(root);
    for holder in holders {
        let Some(pid) = holder.details.pid else {
            continue;
        };
        if let Ok(process) = Process::new_with_root(root.join(pid.to_string())) {
            add_details(&process, boot, &mut holder.details);
        }
    }
}

fn add_details(process: &Process, boot: Option<u64>, who: &mut HolderDetails) {
    let stat = process.stat().ok();
    who.command = command(process).or_else(|| stat.as_ref().map(|stat| stat.comm.clone()));
    who.since = stat
        .zip(boot)
        .and_then(|(stat, boot)| boot.checked_add(stat.starttime.checked_div(ticks_per_second())?))
        .and_then(|seconds| Timestamp::from_second(i64::try_from(seconds).ok()?).ok())
        .map(|time| time.to_string());
    who.pod = process.cgroups().ok().and_then(|groups| {
        let mut paths = groups.into_iter().map(|group| group.pathname);
        paths.find_map(|path| Pod::from_cgroup_path(&path))
    });
}

/// Returns the command line on one line; `None` if it is empty, such as that of a kernel thread.
fn command(process: &Process) -> Option<String> {
    let words = process.cmdline().ok()?;
    let line: String = words.join(" ").chars().take(MAX_COMMAND_CHARS).collect();
    let line: Vec<&str> = line
        .split(|c: char| c.is_control() || c.is_whitespace())
        .filter(|word| !word.is_empty())
        .collect();
    (!line.is_empty()).then(|| line.join(" "))
}

/// Returns the boot time in seconds since 1970. Source: `btime` of `/proc/stat`.
fn boot_time(root: &Path) -> Option<u64> {
    KernelStats::from_file(root.join("stat"), current_system_info()).ok().map(|stats| stats.btime)
}

/// An error that makes the holders of a GPU or partition unknown. The devices in question then count as in use.
#[derive(Debug, ThisError)]
pub enum HoldersError {
    /// A file or directory cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// A driver table exceeds the size limit.
    #[error("{} is longer than {limit} bytes", path.display())]
    TableTooLong {
        /// The table.
        path: PathBuf,
        /// The size limit in bytes.
        limit: u64,
    },
    /// Some processes of the machine are not visible.
    #[error(
        "{} does not show all processes of the machine: it belongs to the PID namespace of a container, or hides \
         processes of other users",
        root.display()
    )]
    HiddenProcesses {
        /// The root of the process file system.
        root: PathBuf,
    },
    /// The number of processes exceeds the limit.
    #[error("there are more than {limit} processes")]
    TooManyProcesses {
        /// The limit.
        limit: usize,
    },
    /// The number of open files exceeds the limit.
    #[error("there are more than {limit} open files; the limit was reached at process {pid}")]
    TooManyFiles {
        /// The process at which the limit was reached.
        pid: u32,
        /// The limit, for all processes together.
        limit: usize,
    },
    /// An open capability is missing from the driver's tables or ambiguous in them.
    #[error("process {pid} has nvidia-cap{minor} open, which the driver's tables do not identify")]
    UnknownCapability {
        /// The process.
        pid: u32,
        /// The capability's minor number.
        minor: u32,
    },
    /// An open GPU node belongs to none of the known devices, and at least one of these does not report its minor
    /// number.
    #[error("process {pid} has a device file of GPU {minor} open, which matches no known device")]
    UnknownDevice {
        /// The process.
        pid: u32,
        /// The GPU's minor number.
        minor: u32,
    },
}

impl HoldersError {
    fn unreadable(path: &Path, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Unreadable { path: path.to_owned(), source: error.into() }
    }
}

/// Length of a process name in bytes, to which the kernel truncates it. Source: `proc_pid_comm(5)`, `TASK_COMM_LEN`.
const COMM_BYTES: usize = 15;
/// Size limit in bytes, above a name and its line end.
const MAX_COMM_FILE_BYTES: u64 = 64;
/// Process limit, above the kernel's default number of process IDs.
const MAX_PROCESSES: usize = 1 << 16;

/// Returns those of `names` that a process in the procfs at `root` has. A program that is not found may run in a
/// namespace that is not visible.
pub fn running_programs(root: &Path, names: &[&str]) -> BTreeSet<String> {
    let entries = fs::read_dir(root).into_iter().flatten().take(MAX_PROCESSES).flatten();
    let mut found = BTreeSet::new();
    for entry in entries {
        if process_id(&entry.file_name()).is_none() {
            continue;
        }
        let Ok(text) = files::read_prefix(&entry.path().join("comm"), MAX_COMM_FILE_BYTES) else {
            continue;
        };
        let text = String::from_utf8_lossy(&text);
        let its = |name: &&&str| name.get(..COMM_BYTES).unwrap_or(name) == text.trim_end();
        found.extend(names.iter().find(its).map(|name| (*name).to_owned()));
    }
    found
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::process::{Child, Command, Stdio};

    use octavo_model::id::PciAddress;

    use super::*;

    fn holder(pid: u32) -> Holder {
        Holder {
            device: PciAddress::new(0, 7, 0, 0).unwrap(),
            gpu_instance: None,
            compute_instance: None,
            details: HolderDetails { pid: Some(pid), ..HolderDetails::default() },
        }
    }

    /// Starts a process that runs until its standard input ends. Waits for its output to be sure that `execve` has
    /// happened: in between, a process has no command line.
    fn waiting(arguments: &[&str]) -> Child {
        let mut child = Command::new("cat")
            .arg("-")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        child.stdin.as_mut().unwrap().write_all(b"here").unwrap();
        let mut back = [0; 4];
        child.stdout.as_mut().unwrap().read_exact(&mut back).unwrap();
        child
    }

    fn details_of(child: &mut Child) -> HolderDetails {
        let mut holders = [holder(child.id())];
        describe(Path::new("/proc"), &mut holders);
        drop(child.stdin.take());
        child.wait().unwrap();
        let [holder] = holders;
        holder.details
    }

    #[test]
    fn process_is_described_with_command_and_start_time() {
        let began = Timestamp::now().as_second();
        let who = details_of(&mut waiting(&[]));
        assert_eq!(who.command.as_deref(), Some("cat -"));
        // The kernel counts from a boot time with a resolution of one second, and the wall clock may have been set
        // since.
        let since: Timestamp = who.since.as_deref().unwrap().parse().unwrap();
        assert!(since.as_second().abs_diff(began) < 600, "{who:?} {began}");
    }

    #[test]
    fn ended_process_keeps_its_id_only() {
        let mut child = waiting(&[]);
        drop(child.stdin.take());
        child.wait().unwrap();
        let mut holders = [holder(child.id())];
        let before = holders.clone();
        describe(Path::new("/proc"), &mut holders);
        assert_eq!(holders, before);
        describe(Path::new("/nowhere/proc"), &mut holders);
        assert_eq!(holders, before);
    }

    #[test]
    fn command_is_one_line_of_limited_length() {
        let long = "x".repeat(10_000);
        let who = details_of(&mut waiting(&["\u{1b}[31m\n", &long]));
        let command = who.command.unwrap();
        assert!(command.starts_with("cat - [31m xxx"), "{command}");
        assert!(command.chars().count() <= MAX_COMMAND_CHARS);
    }

    #[test]
    fn program_is_found_by_truncated_name() {
        let root = tempfile::tempdir().unwrap();
        for (pid, name) in
            [("7", "nvidia-mig-mana\n"), ("8", "gpu-feature\n"), ("x", "short\n"), ("9", "short\n")]
        {
            fs::create_dir(root.path().join(pid)).unwrap();
            fs::write(root.path().join(pid).join("comm"), name).unwrap();
        }
        fs::create_dir_all(root.path().join("10/comm")).unwrap();
        let names = ["nvidia-mig-manager", "gpu-feature-discovery", "short"];
        let found = running_programs(root.path(), &names);
        let expected = ["nvidia-mig-manager", "short"].map(str::to_owned);
        assert_eq!(found, expected.into());
        let own = fs::read_to_string("/proc/self/comm").unwrap();
        let here = running_programs(Path::new("/proc"), &[own.trim_end()]);
        assert_eq!(here.len(), 1);
        assert!(running_programs(Path::new("/nowhere"), &names).is_empty());
    }
}
