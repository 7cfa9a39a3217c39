//! Who uses a GPU, as `/proc` tells it: [`open()`] finds those who have one or a partition open, [`describe`] says what stands
//! behind a process id.
//!
//! What [`describe`] says is for people to read: a process that ended since, or one that this program may not look at, keeps
//! its number and has nothing more said of it. Nothing is decided by it. By what [`open()`] finds it is decided what may be
//! destroyed, so there whatever cannot be told is an error, and never nobody.

mod error;
pub(super) mod nodes;
mod open;
mod origin;
mod programs;

use std::path::Path;

use procfs::process::Process;
use procfs::{FromReadSI, KernelStats, current_system_info, ticks_per_second};

pub use self::error::HoldersError;
pub use self::open::open;
pub use self::origin::{is_elsewhere, origins, pods};
pub use self::programs::programs;
use crate::domain::holder::{Holder, Pod, Who};

/// Longest command line that is kept, in characters; what a person looks for is at its beginning.
const LONGEST_COMMAND: usize = 400;

/// Adds what the `/proc` at `root` tells: the command, when it began, the pod. The ids must be of its process namespace.
pub fn describe(root: &Path, holders: &mut [Holder]) {
    let boot = boot_time(root);
    for holder in holders {
        let Some(pid) = holder.who.pid else { continue };
        if let Ok(process) = Process::new_with_root(root.join(pid.to_string())) {
            add(&process, boot, &mut holder.who);
        }
    }
}

fn add(process: &Process, boot: Option<u64>, who: &mut Who) {
    let stat = process.stat().ok();
    who.command = command(process).or_else(|| stat.as_ref().map(|stat| stat.comm.clone()));
    who.since = stat
        .zip(boot)
        .and_then(|(stat, boot)| boot.checked_add(stat.starttime.checked_div(ticks_per_second())?));
    who.pod = process.cgroups().ok().and_then(|groups| {
        let mut paths = groups.into_iter().map(|group| group.pathname);
        paths.find_map(|path| Pod::of_control_group(&path))
    });
}

/// The command line as it is typed, on one line; `None` for one that was wiped or never was, such as a kernel thread's.
fn command(process: &Process) -> Option<String> {
    let words = process.cmdline().ok()?;
    let line: String = words.join(" ").chars().take(LONGEST_COMMAND).collect();
    let line: Vec<&str> = line
        .split(|c: char| c.is_control() || c.is_whitespace())
        .filter(|word| !word.is_empty())
        .collect();
    (!line.is_empty()).then(|| line.join(" "))
}

/// When the machine booted, in seconds since 1970. Source: `btime` of `/proc/stat`.
fn boot_time(root: &Path) -> Option<u64> {
    KernelStats::from_file(root.join("stat"), current_system_info())
        .ok()
        .map(|stats| stats.btime)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::domain::id::PciAddress;

    fn holder(pid: u32) -> Holder {
        Holder {
            device: PciAddress::new(0, 7, 0, 0).unwrap(),
            gpu_instance: None,
            compute_instance: None,
            who: Who {
                pid: Some(pid),
                ..Who::default()
            },
        }
    }

    /// A process that lives until its standard input ends. What it was given came back, so it is what was started: a
    /// process that is on its way from one program to the next has no command line.
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
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut back)
            .unwrap();
        child
    }

    fn told(child: &mut Child) -> Who {
        let mut holders = [holder(child.id())];
        describe(Path::new("/proc"), &mut holders);
        drop(child.stdin.take());
        child.wait().unwrap();
        let [holder] = holders;
        holder.who
    }

    #[test]
    fn a_process_is_told_by_its_command_and_when_it_began() {
        let began = u64::try_from(jiff::Timestamp::now().as_second()).unwrap();
        let who = told(&mut waiting(&[]));
        assert_eq!(who.command.as_deref(), Some("cat -"));
        // The kernel counts from a boot that it knows to the second, and the wall's clock may have been set since.
        assert!(who.since.unwrap().abs_diff(began) < 600, "{who:?} {began}");
    }

    #[test]
    fn one_that_is_gone_keeps_its_number_and_nothing_is_made_up() {
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
    fn a_command_is_one_line_of_bounded_length() {
        let long = "x".repeat(10_000);
        let who = told(&mut waiting(&["\u{1b}[31m\n", &long]));
        let command = who.command.unwrap();
        assert!(command.starts_with("cat - [31m xxx"), "{command}");
        assert!(command.chars().count() <= LONGEST_COMMAND);
    }
}
