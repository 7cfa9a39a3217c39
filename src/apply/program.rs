//! Runs a program of the driver's vendor: it ends with this process, and with its process group when it takes too long.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{
    Pid, Signal, getpid, getppid, kill_process_group, set_parent_process_death_signal,
};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::config::child::exec_command;

/// A reset takes seconds; NVIDIA's program waits for persistence daemons, and may wait for ever.
pub(super) const LONGEST: Duration = Duration::from_mins(1);
/// A process that was killed ends within this time, unless the kernel holds it in a system call.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest output of which the last line is looked for.
const MAX_OUTPUT_BYTES: u64 = 64 << 10;

/// Runs `program` with an empty environment, for a minute at most. The error is the last line of its output.
///
/// The program and its process group are killed when it takes longer, and when the future is dropped. The kernel kills the program when
/// this process dies.
pub async fn run<A: AsRef<OsStr>>(
    program: &Path,
    arguments: impl IntoIterator<Item = A>,
    stdin: Stdio,
) -> Result<(), String> {
    let mut command = Command::from(exec_command(own_id(), program));
    command.args(arguments);
    finish(program, command, stdin).await
}

/// The same for a program that outlives this process, such as one that reboots the node.
pub(super) async fn run_detached(program: &Path) -> Result<(), String> {
    finish(program, Command::new(program), Stdio::null()).await
}

async fn finish(program: &Path, mut command: Command, stdin: Stdio) -> Result<(), String> {
    let program = program.display();
    command
        .env_clear()
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let failed = |error: io::Error| format!("{program}: {error}");
    let mut group = ProcessGroup(command.spawn().map_err(failed)?);
    let child = &mut group.0;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let ended = timeout(LONGEST, async {
        tokio::join!(output(stdout), output(stderr), child.wait())
    });
    let Ok((stdout, stderr, status)) = ended.await else {
        group.kill();
        // It is stuck in a system call of the kernel. It still holds the lock on its standard input, so that no other reset begins.
        let _still_there = timeout(KILL_TIMEOUT, group.0.wait()).await;
        return Err(format!("{program} does not end"));
    };
    if status.map_err(failed)?.success() {
        return Ok(());
    }
    let said = [stdout, stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let last = said.lines().rev().find(|line| !line.trim().is_empty());
    let last = last.map_or_else(
        || format!("{program} failed without output"),
        |line| line.trim().to_owned(),
    );
    Err(last)
}

/// The first bytes of the output. All of it is read, so that the program never waits for a reader.
async fn output(pipe: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        let mut first = pipe.take(MAX_OUTPUT_BYTES);
        let _whole = first.read_to_end(&mut bytes).await;
        let _end = tokio::io::copy(&mut first.into_inner(), &mut tokio::io::sink()).await;
    }
    bytes
}

/// A child that leads a process group of its own; the group is killed when this is dropped before the child was waited for.
#[derive(Debug)]
struct ProcessGroup(Child);

impl ProcessGroup {
    fn kill(&self) {
        // The id is there until the child was waited for, and until then no other process can have its number.
        let group = self.0.id().and_then(|id| i32::try_from(id).ok());
        if let Some(group) = group.and_then(Pid::from_raw) {
            let _gone_already = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The ID of this process.
pub fn own_id() -> i32 {
    getpid().as_raw_nonzero().get()
}

/// Has the kernel kill this process when the thread that started it ends, which is part of process `parent`.
pub fn end_with_parent(parent: i32) -> io::Result<()> {
    // Both `fork` and setting the signal in the parent would lose it; `execve` keeps it. Source: prctl(2), PR_SET_PDEATHSIG.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid().map(|parent| parent.as_raw_nonzero().get()) == Some(parent) {
        return Ok(());
    }
    Err(io::Error::other(
        "the process that started this one has ended",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_program_that_fails_is_told_by_its_last_line() {
        let error = run_detached(Path::new("/bin/false")).await.unwrap_err();
        assert_eq!(error, "/bin/false failed without output");
        let error = run_detached(Path::new("/nonexistent")).await.unwrap_err();
        assert!(error.starts_with("/nonexistent: No such file"), "{error}");
        assert_eq!(run_detached(Path::new("/bin/true")).await, Ok(()));
    }

    fn is_running(pid: &str) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
        let status = status.unwrap_or_default();
        let state = status.lines().find_map(|line| line.strip_prefix("State:"));
        // One that ended and was not waited for is a zombie.
        state.is_some_and(|state| !state.trim().starts_with(['Z', 'X']))
    }

    #[tokio::test]
    async fn a_process_group_is_killed_with_all_that_is_in_it() {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", "sleep 1000 & echo $!; wait"])
            .stdout(Stdio::piped())
            .process_group(0);
        let mut group = ProcessGroup(command.spawn().unwrap());
        let mut line = Vec::new();
        let stdout = group.0.stdout.as_mut().unwrap();
        while !line.ends_with(b"\n") {
            line.push(stdout.read_u8().await.unwrap());
        }
        let started = String::from_utf8(line).unwrap();
        assert!(is_running(started.trim()));
        drop(group);
        while is_running(started.trim()) {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_program_that_takes_too_long_is_given_up_on() {
        let mut command = Command::new("/bin/sleep");
        command.arg("1000");
        let done = finish(Path::new("/bin/sleep"), command, Stdio::null()).await;
        assert_eq!(done, Err("/bin/sleep does not end".to_owned()));
    }
}
