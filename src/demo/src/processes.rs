//! Child processes of the demo: started, logged, and stopped.
//!
//! They run under `setpriv --pdeathsig KILL` of util-linux if it is available, so that the kernel ends them even when
//! this program is killed with SIGKILL. Setting the signal in this program would require `unsafe` between fork and
//! exec. The signal is sent when the *thread* that started them ends, which is one more reason for a runtime of one
//! thread. Without setpriv, a SIGKILL leaves them running.

use std::collections::VecDeque;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::error::DemoError;

/// Number of retained lines per log.
const MAX_LOG_LINES: usize = 40;

/// Time between the request to exit and the kill.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// The running children.
#[derive(Debug)]
pub struct ChildProcesses {
    running: JoinSet<ExitedChild>,
    orders: watch::Sender<Option<Signal>>,
    led: bool,
}

/// A child that has exited.
#[derive(Debug)]
struct ExitedChild {
    name: String,
    how: io::Result<ExitStatus>,
    log: ProcessLog,
}

/// The last lines of a process's standard error.
#[derive(Debug, Clone, Default)]
pub struct ProcessLog(Arc<(Mutex<VecDeque<String>>, Notify)>);

impl ChildProcesses {
    /// Finds out whether `setpriv` can be used.
    pub async fn new() -> Self {
        let probe = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "true"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .await;
        Self {
            running: JoinSet::new(),
            orders: watch::Sender::new(None),
            led: probe.is_ok_and(|status| status.success()),
        }
    }

    /// Starts a child. It has a process group of its own: Ctrl-C is for this program, which stops the others in order.
    pub fn start(&mut self, name: &str, command: &Command) -> Result<ProcessLog, DemoError> {
        let wanted = command.as_std();
        let mut command = if self.led {
            let mut leader = Command::new("setpriv");
            leader.args(["--pdeathsig", "KILL", "--"]);
            leader.arg(wanted.get_program());
            leader
        } else {
            Command::new(wanted.get_program())
        };
        let mut child = command
            .args(wanted.get_args())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|source| DemoError::Start { program: wanted.get_program().into(), source })?;
        let log = ProcessLog::default();
        let errors = child.stderr.take();
        let (name, orders) = (name.to_owned(), self.orders.subscribe());
        self.running.spawn({
            let log = log.clone();
            async move {
                let (how, ()) = tokio::join!(supervise(child, orders), log.fill(errors));
                ExitedChild { name, how, log }
            }
        });
        Ok(log)
    }

    /// Returns once a child has exited by itself.
    pub async fn died(&mut self) -> DemoError {
        loop {
            match self.running.join_next().await {
                Some(Ok(ExitedChild { name, how, log })) => {
                    let how = how.map_or_else(|error| error.to_string(), |how| how.to_string());
                    let log = log.text();
                    return DemoError::Died { name, how, log };
                }
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }

    /// Asks all children to exit, kills those that do not, and returns when none is left.
    pub async fn stop(&mut self) {
        for order in [Signal::SIGTERM, Signal::SIGKILL] {
            self.orders.send_replace(Some(order));
            let all = async { while self.running.join_next().await.is_some() {} };
            if timeout(STOP_TIMEOUT, all).await.is_ok() {
                return;
            }
        }
    }
}

/// Waits for `child` and passes signals on; its PID is not reused before it was waited for.
async fn supervise(
    mut child: Child,
    mut orders: watch::Receiver<Option<Signal>>,
) -> io::Result<ExitStatus> {
    loop {
        let order = tokio::select! {
            status = child.wait() => return status,
            Ok(()) = orders.changed() => *orders.borrow_and_update(),
        };
        let pid = child.id().and_then(|id| i32::try_from(id).ok());
        if let (Some(order), Some(pid)) = (order, pid) {
            // The child may exit at this moment; that is handled above.
            let _ = kill(Pid::from_raw(pid), order);
        }
    }
}

impl ProcessLog {
    /// Waits for a line that contains `text`, including earlier ones, and returns the rest of the line.
    pub async fn wait_for(&self, text: &str) -> String {
        let (lines, added) = &*self.0;
        loop {
            let next = added.notified();
            tokio::pin!(next);
            next.as_mut().enable();
            let found = {
                let lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
                let found = lines.iter().find_map(|line| line.split_once(text));
                found.map(|(_, rest)| rest.to_owned())
            };
            if let Some(found) = found {
                return found;
            }
            next.await;
        }
    }

    /// Returns the retained lines.
    pub fn text(&self) -> String {
        let lines = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines: Vec<String> = lines.iter().map(|line| format!("  {line}")).collect();
        lines.join("\n")
    }

    async fn fill(&self, from: Option<impl AsyncRead + Unpin>) {
        let Some(from) = from else { return };
        let mut from = BufReader::new(from).lines();
        while let Ok(Some(line)) = from.next_line().await {
            let (lines, added) = &*self.0;
            let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
            if lines.len() >= MAX_LOG_LINES {
                lines.pop_front();
            }
            lines.push_back(octavo_model::text::printable(&line));
            drop(lines);
            added.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[tokio::test]
    async fn early_exit_is_reported_with_log_tail() {
        let mut children = ChildProcesses::new().await;
        let log = children
            .start("agent", &shell("echo listening on 1:2 >&2; echo no luck >&2; exit 3"))
            .unwrap();
        assert_eq!(log.wait_for("listening on ").await, "1:2");
        let died = children.died().await.to_string();
        assert_eq!(
            died,
            "agent exited early (exit status: 3); last lines of its log:\n  listening on 1:2\n  no luck"
        );
    }

    #[tokio::test]
    async fn unresponsive_child_is_killed() {
        let mut children = ChildProcesses::new().await;
        let deaf = shell("trap '' TERM; echo deaf >&2; exec tail -f /dev/null");
        let log = children.start("deaf", &deaf).unwrap();
        log.wait_for("deaf").await;
        children.stop().await;
        assert!(children.running.is_empty());
    }
}
