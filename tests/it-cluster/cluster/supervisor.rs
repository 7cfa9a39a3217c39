//! The shell process that runs a cluster and stops it when its standard input is closed for any reason.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::time_limits::{Lines, MAX_RUN_TIME, ends, watch};

/// `hack/cluster/supervise.sh` with its cluster.
pub(super) struct Supervisor {
    child: Child,
    commands: Option<ChildStdin>,
    answers: Lines,
    errors: File,
}

impl Supervisor {
    /// Starts a cluster and waits until it is ready.
    #[track_caller]
    pub(super) fn start(command: &mut Command) -> Self {
        let errors = tempfile::tempfile().unwrap();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors.try_clone().unwrap())
            // Ctrl-C stops the tests, which stop the cluster.
            .process_group(0)
            .spawn()
            .unwrap();
        let commands = child.stdin.take();
        let answers = Lines::of(child.stdout.take().unwrap());
        let mut supervisor = Self { child, commands, answers, errors };
        supervisor.expect("ready");
        supervisor
    }

    /// Sends a command and waits until it is done.
    #[track_caller]
    pub(super) fn order(&mut self, line: &str) {
        writeln!(self.commands.as_mut().unwrap(), "{line}").unwrap();
        self.expect("done");
    }

    /// Its process id.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    #[track_caller]
    fn expect(&mut self, expected: &str) {
        // Nodes take longer to start than any other program.
        let line = self.answers.next(MAX_RUN_TIME).ok();
        if line.as_deref() != Some(expected) {
            let mut errors = String::new();
            self.errors.rewind().unwrap();
            self.errors.read_to_string(&mut errors).unwrap();
            panic!("the cluster printed {line:?} instead of {expected:?}:\n{errors}");
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        drop(self.commands.take());
        let _killed = ends(&mut self.child);
    }
}

/// A script of `hack/cluster`.
pub(super) fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("hack/cluster").join(name)
}

/// A directory with these programs, which are built if necessary.
pub(super) fn programs(names: &[&str]) -> PathBuf {
    // Builds have no time limit.
    watch();
    let output =
        Command::new(script("build.sh")).args(names).stderr(Stdio::inherit()).output().unwrap();
    assert!(
        output.status.success(),
        "the programs of a cluster cannot be built; `make setup` installs what that needs"
    );
    let directory = String::from_utf8(output.stdout).unwrap();
    PathBuf::from(directory.trim_end())
}

/// A directory for a cluster. It belongs to this user even if the cluster runs as root, and the supervisor removes it.
pub(super) fn directory() -> PathBuf {
    let directory = tempfile::Builder::new().prefix("octavo-cluster-").tempdir();
    directory.unwrap().keep()
}

/// The command of a supervisor with its directory and programs, as root if `privileged`.
pub(super) fn command(directory: &Path, programs: &Path, privileged: bool) -> Command {
    let mut command = if privileged && !rustix::process::geteuid().is_root() {
        let mut command = Command::new("sudo");
        command.args(["-n", "--preserve-env=PATH", "env"]);
        command
    } else {
        Command::new("env")
    };
    command
        .arg(setting("CLUSTER_DIR", directory.as_os_str()))
        .arg(setting("CLUSTER_BIN", programs.as_os_str()));
    command
}

/// `name=value` for `env`, which passes through `sudo`.
pub(super) fn setting(name: &str, value: impl AsRef<OsStr>) -> std::ffi::OsString {
    let mut text = std::ffi::OsString::from(name);
    text.push("=");
    text.push(value);
    text
}
