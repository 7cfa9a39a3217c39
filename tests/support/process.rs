//! The programs as processes on a simulated machine.
//!
//! Nothing sleeps; a test waits for the log line of the program.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::machine::Machine;
use crate::time_limits::{Finish, Lines, exit_status};

const AGENT: &str = env!("CARGO_BIN_EXE_octavo-agent");

/// Resident memory of a process in KiB.
pub(crate) fn resident(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let (number, _) = line.unwrap().trim().split_once(' ').unwrap();
    number.parse().unwrap()
}

/// A running program; killed when dropped.
pub(crate) struct Program {
    child: Child,
    lines: Lines,
}

impl Machine {
    /// A program on this machine.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .arg("--nvml-library")
            .arg(self.library())
            .arg("--sys-root")
            .arg(self.path().join("sys"))
            .arg("--neuron-logical-config")
            .arg(self.path().join("opt/aws/neuron/logical_nc_config"));
        command
    }

    /// Runs the agent once.
    pub(crate) fn agent_once(&self, arguments: &[&str]) -> Output {
        self.command(AGENT).arg("--oneshot").args(arguments).finish()
    }

    /// Starts the agent.
    pub(crate) fn agent(&self, arguments: &[&str]) -> Program {
        Program::start(self.command(AGENT).args(arguments))
    }
}

impl Program {
    /// Starts a program and reads its log.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = Lines::of(child.stderr.take().unwrap());
        Self { child, lines }
    }

    /// Waits for a log line that contains `text` and returns it.
    #[track_caller]
    pub(crate) fn expect_log(&mut self, text: &str) -> String {
        self.lines.find_line(text)
    }

    /// Waits for log lines with all of these texts, in any order.
    #[track_caller]
    pub(crate) fn expect_all_logs(&mut self, texts: &[&str]) {
        self.lines.find_lines(texts);
    }

    /// Starts over at the first line of the log: threads log independently of each other.
    pub(crate) fn rewind(&mut self) {
        self.lines.rewind();
    }

    /// The logged address of the agent's metrics.
    pub(crate) fn metrics(&mut self) -> SocketAddr {
        let line = self.expect_log("serving metrics address=");
        let (_, address) = line.split_once("serving metrics address=").unwrap();
        address.trim().parse().unwrap()
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGTERM and waits for the exit.
    #[track_caller]
    pub(crate) fn stop(self) -> ExitStatus {
        self.terminate();
        self.wait_for_exit()
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        kill(pid, Signal::SIGTERM).unwrap();
    }

    /// Returns whether it has exited.
    pub(crate) fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Waits until it exits by itself.
    #[track_caller]
    pub(crate) fn wait_for_exit(mut self) -> ExitStatus {
        exit_status(&mut self.child)
    }

    /// Kills it and returns its complete log.
    pub(crate) fn kill(&mut self) -> Vec<String> {
        let _gone_already = self.child.kill();
        let _gone_already = self.child.wait();
        // The pipe is closed, so this ends.
        self.lines.all()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if !self.has_ended() {
            let _gone_already = self.child.kill();
        }
        let _gone_already = self.child.wait();
    }
}

/// The aggregator as a process; killed when dropped.
pub(crate) struct Aggregator {
    program: Program,
    arguments: Vec<String>,
    /// Address for agents and watchers.
    pub(crate) grpc: SocketAddr,
    /// Address for HTTP clients.
    pub(crate) http: SocketAddr,
}

impl Aggregator {
    /// Starts an aggregator on free ports of its own address, so that they stay free for a restart.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let number = u8::try_from(STARTED.fetch_add(1, Ordering::Relaxed) % 200).unwrap();
        Self::start_at(IpAddr::from([127, 1 + number, high, low.max(1)]), arguments)
    }

    /// Starts an aggregator on free ports of this address.
    pub(crate) fn start_at(host: IpAddr, arguments: &[&str]) -> Self {
        let any = SocketAddr::new(host, 0);
        let arguments: Vec<String> = arguments.iter().map(|&text| text.to_owned()).collect();
        let (program, grpc, http) = Self::launch(&arguments, any, any);
        Self { program, arguments, grpc, http }
    }

    fn launch(
        arguments: &[String],
        grpc: SocketAddr,
        http: SocketAddr,
    ) -> (Program, SocketAddr, SocketAddr) {
        let mut program = Program::start(
            Command::new(env!("CARGO_BIN_EXE_octavo-aggregator"))
                .args(arguments)
                .arg(format!("--grpc-listen={grpc}"))
                .arg(format!("--http-listen={http}")),
        );
        let mut listens = |whom: &str| {
            let line = program.expect_log(whom);
            let (_, rest) = line.split_once(whom).unwrap();
            rest.split(' ').next().unwrap().parse().unwrap()
        };
        let grpc = listens("listening for agents on ");
        let http = listens("listening for HTTP clients on ");
        program.rewind();
        (program, grpc, http)
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.program.id()
    }

    /// Waits for a log line that contains `text`.
    #[track_caller]
    pub(crate) fn expect_log(&mut self, text: &str) -> String {
        self.program.expect_log(text)
    }

    /// Sends SIGTERM and waits for the exit.
    #[track_caller]
    pub(crate) fn stop(self) -> ExitStatus {
        self.program.stop()
    }

    /// Kills it like the OOM killer and returns its complete log.
    pub(crate) fn kill(&mut self) -> Vec<String> {
        self.program.kill()
    }

    /// Restarts it at the same addresses after it was killed.
    pub(crate) fn restart(&mut self) {
        self.program = Self::launch(&self.arguments, self.grpc, self.http).0;
    }
}
