//! Hidden arguments with which a program starts itself again: to execute another program that ends with its parent,
//! and to test whether a library can be loaded.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// This program's executable, even after its file was replaced.
const OWN_PROGRAM: &str = "/proc/self/exe";
// No option or command of these programs begins like these.
const EXEC: &str = "@exec";
const LOAD: &str = "@load";

/// Task of a child process that another process of this program started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildInvocation {
    /// PID of the parent.
    pub parent: i32,
    /// The task.
    pub task: ChildTask,
}

/// Task of a child process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChildTask {
    /// Execute this program.
    Exec {
        /// The program.
        program: OsString,
        /// Its arguments.
        arguments: Vec<OsString>,
    },
    /// Load this library.
    Load(PathBuf),
}

/// Returns the task of this process; `None` if it was not started as a child.
pub fn child() -> Option<ChildInvocation> {
    parse(env::args_os().skip(1))
}

/// Returns the command that starts this program again to execute `program`; append its arguments. `parent` is this
/// process.
pub fn exec_command(parent: i32, program: &Path) -> Command {
    let mut command = own(EXEC, parent);
    command.arg(program);
    command
}

/// Returns the command that starts this program again to load `library`. `parent` is this process.
pub fn load_command(parent: i32, library: &Path) -> Command {
    let mut command = own(LOAD, parent);
    command.arg(library).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn own(task: &str, parent: i32) -> Command {
    let mut command = Command::new(OWN_PROGRAM);
    command.arg(task).arg(parent.to_string());
    command
}

fn parse(mut arguments: impl Iterator<Item = OsString>) -> Option<ChildInvocation> {
    let task = arguments.next()?;
    let task = task.to_str().filter(|task| [EXEC, LOAD].contains(task))?;
    let parent = arguments.next()?.to_str()?.parse().ok()?;
    let object = arguments.next()?;
    let task = if task == EXEC {
        ChildTask::Exec { program: object, arguments: arguments.collect() }
    } else {
        ChildTask::Load(object.into())
    };
    Some(ChildInvocation { parent, task })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn child_arguments_round_trip_and_options_are_ignored() {
        let of = |command: &Command| parse(command.get_args().map(OsString::from));
        let mut command = exec_command(7, Path::new("/bin/nvidia-smi"));
        command.args(["-i", "0"]);
        let task = ChildTask::Exec {
            program: "/bin/nvidia-smi".into(),
            arguments: vec!["-i".into(), "0".into()],
        };
        assert_eq!(of(&command), Some(ChildInvocation { parent: 7, task }));
        let task = ChildTask::Load("/lib/x.so".into());
        let command = load_command(8, Path::new("/lib/x.so"));
        assert_eq!(of(&command), Some(ChildInvocation { parent: 8, task }));
        for words in [&["--oneshot"][..], &["apply", EXEC, "7"], &[EXEC, "x", "y"]] {
            assert_eq!(parse(words.iter().map(OsString::from)), None);
        }
    }
}
