//! GPU usage from procfs: [`open_files::open`] finds the processes that have a GPU or partition open, and [`describe`] adds
//! details of a process.
//!
//! The details are informational: a process that has ended, or that this program cannot inspect, keeps its process ID
//! without them. The result of [`open_files::open`] decides what may be destroyed, so unknown usage is an error and never an
//! empty list.

mod error;
pub(super) mod nodes;
mod open_files;
mod process_origin;
mod programs;

use std::path::Path;

use jiff::Timestamp;
use octavo_model::holder::{Holder, HolderDetails, Pod};
use procfs::process::Process;
use procfs::{FromReadSI, KernelStats, current_system_info, ticks_per_second};

pub use self::error::HoldersError;
pub use self::open_files::open;
pub use self::process_origin::{is_other_pid_namespace, origins, pods};
pub use self::programs::running_programs;

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
}
