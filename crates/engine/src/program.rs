//! Runs an external program, such as `nvidia-smi`. It is killed when this process dies, and with its process group when
//! it times out.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use octavo_settings::child::exec_command;
use rustix::process::{
    Pid, Signal, getpid, getppid, kill_process_group, set_parent_process_death_signal,
};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// Time limit of a program. A reset takes seconds, but `nvidia-smi` waits for persistence daemons and may wait forever.
pub(super) const TIMEOUT: Duration = Duration::from_mins(1);
/// A killed process ends within this time, unless it is blocked in a system call.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// The last line is searched for in this many bytes of output.
const MAX_OUTPUT_BYTES: usize = 64 << 10;

/// Runs `program` with an empty environment for at most one minute. The error is the last line of its output.
///
/// The program and its process group are killed on timeout and when the future is dropped. The kernel kills the program
/// when this process dies.
pub async fn run<A: AsRef<OsStr>>(
    program: &Path,
    arguments: impl IntoIterator<Item = A>,
    stdin: Stdio,
) -> Result<(), String> {
    let mut command = Command::from(exec_command(own_id(), program));
    command.args(arguments);
    finish(program, command, stdin).await
}

/// Like [`run`], but for a program that must outlive this process, such as one that reboots the node.
pub(super) async fn run_detached(program: &Path) -> Result<(), String> {
    finish(program, Command::new(program), Stdio::null()).await
}

async fn finish(program: &Path, mut command: Command, stdin: Stdio) -> Result<(), String> {
    let program = program.display();
    command.env_clear().stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let failed = |error: io::Error| format!("{program}: {error}");
    let mut group = ProcessGroup(command.spawn().map_err(failed)?);
    let child = &mut group.0;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let ended =
        timeout(TIMEOUT, async { tokio::join!(output(stdout), output(stderr), child.wait()) });
    let Ok((stdout, stderr, status)) = ended.await else {
        group.kill();
        // The process is blocked in a system call. It still holds the lock on its standard input, so no other reset can
        // start.
        let _still_there = timeout(KILL_TIMEOUT, group.0.wait()).await;
        return Err(format!("{program} does not exit"));
    };
    if status.map_err(failed)?.success() {
        return Ok(());
    }
    let output = [stdout, stderr].concat();
    let output = String::from_utf8_lossy(&output);
    let last = output.lines().rev().find(|line| !line.trim().is_empty());
    let last = last
        .map_or_else(|| format!("{program} failed without output"), |line| line.trim().to_owned());
    Err(last)
}

/// Returns the first bytes of the output. Reads the pipe to its end, so that the program never blocks on writing.
async fn output(pipe: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut first = Vec::new();
    let mut chunk = [0; 4096];
    if let Some(mut pipe) = pipe {
        while let Ok(length @ 1..) = pipe.read(&mut chunk).await {
            let left = MAX_OUTPUT_BYTES.saturating_sub(first.len());
            first.extend(chunk.iter().take(length.min(left)));
        }
    }
    first
}

/// A child that leads its own process group. The group is killed if this is dropped before the child was waited for.
#[derive(Debug)]
struct ProcessGroup(Child);

impl ProcessGroup {
    fn kill(&self) {
        // The ID exists until the child has been waited for, and no other process can reuse its number before that.
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

/// Returns the ID of this process.
pub fn own_id() -> i32 {
    getpid().as_raw_nonzero().get()
}

/// Makes the kernel kill this process when the thread of process `parent` that started it ends.
pub fn kill_with_parent(parent: i32) -> io::Result<()> {
    // `fork` clears a signal that is set in the parent; `execve` preserves it, so it is set here. Source: prctl(2),
    // `PR_SET_PDEATHSIG`.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid().map(|parent| parent.as_raw_nonzero().get()) == Some(parent) {
        return Ok(());
    }
    Err(io::Error::other("the parent process has exited"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn failure_reports_last_output_line() {
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
        // A process that has ended and was not waited for is a zombie.
        state.is_some_and(|state| !state.trim().starts_with(['Z', 'X']))
    }

    #[tokio::test]
    async fn timeout_kills_the_whole_process_group() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "sleep 1000 & echo $!; wait"]).stdout(Stdio::piped()).process_group(0);
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
    async fn program_timeout_is_an_error() {
        let mut command = Command::new("/bin/sleep");
        command.arg("1000");
        let done = finish(Path::new("/bin/sleep"), command, Stdio::null()).await;
        assert_eq!(done, Err("/bin/sleep does not exit".to_owned()));
    }
}
