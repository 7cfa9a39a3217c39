//! Our programs as processes on a simulated machine.
//!
//! Nothing waits by sleeping; whoever needs something to have happened waits for the line in which the agent says so.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::machine::Machine;

/// Longer than anything takes on a loaded machine; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_mins(2);

const AGENT: &str = env!("CARGO_BIN_EXE_octavo-agent");

/// A running agent; ended when dropped.
pub(crate) struct Agent {
    child: Child,
    lines: Receiver<String>,
    said: Vec<String>,
}

impl Machine {
    /// A program of ours on this machine.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .arg("--nvml-library")
            .arg(self.library())
            .arg("--sys-root")
            .arg(self.path().join("sys"));
        command
    }

    /// Runs the agent once.
    pub(crate) fn agent_once(&self, arguments: &[&str]) -> Output {
        self.command(AGENT)
            .arg("--oneshot")
            .args(arguments)
            .output()
            .unwrap()
    }

    /// Starts the agent.
    pub(crate) fn agent(&self, arguments: &[&str]) -> Agent {
        let mut child = self
            .command(AGENT)
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Agent {
            child,
            lines,
            said: Vec::new(),
        }
    }
}

impl Agent {
    /// Waits until the agent says a line with `text` in it, and returns the line.
    #[track_caller]
    pub(crate) fn says(&mut self, text: &str) -> String {
        loop {
            let Ok(line) = self.lines.recv_timeout(PATIENCE) else {
                panic!(
                    "the agent never said {text:?}; it said:\n{}",
                    self.said.join("\n")
                );
            };
            self.said.push(line.clone());
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Asks the agent to end, and waits for it.
    pub(crate) fn stop(mut self) -> ExitStatus {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        kill(pid, Signal::SIGTERM).unwrap();
        self.child.wait().unwrap()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _gone_already = self.child.wait();
    }
}
