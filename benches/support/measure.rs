//! Starting programs on a simulated machine and reading what they cost from `/proc`.

use std::fmt;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nvml_sim::location::Location;
use nvml_sim::store::Store;
use serde::Deserialize;
use tempfile::TempDir;

/// A simulated machine in a folder of its own.
pub(crate) struct Machine {
    folder: TempDir,
}

/// One process started, waited for, and what it took.
pub(crate) struct Run {
    pub(crate) wall_ms: f64,
    pub(crate) nvml_ms: f64,
}

/// Cost of observations, from the call log and the scheduler's account.
pub(crate) struct Observations {
    pub(crate) first_calls: usize,
    pub(crate) first_nvml_ms: f64,
    pub(crate) later_calls: usize,
    pub(crate) later_nvml_ms: f64,
    pub(crate) cpu_ms: f64,
}

/// Memory of a process in MiB. Source: `/proc/PID/smaps_rollup`.
pub(crate) struct Memory {
    pub(crate) pss: f64,
    pub(crate) anonymous: f64,
}

/// What an idle agent does.
pub(crate) struct Idle {
    pub(crate) cpu_ms: f64,
    pub(crate) wakeups_per_s: f64,
}

/// Median, least and greatest of several runs.
pub(crate) struct Spread(Vec<f64>);

#[derive(Deserialize)]
struct Call {
    function: String,
    duration_ns: u64,
}

impl Spread {
    pub(crate) fn of(runs: usize, mut measure: impl FnMut() -> f64) -> Self {
        let mut values: Vec<f64> = (0..runs).map(|_| measure()).collect();
        values.sort_by(f64::total_cmp);
        Self(values)
    }

    pub(crate) fn median(&self) -> f64 {
        self.0.get(self.0.len() / 2).copied().unwrap_or_default()
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let least = self.0.first().copied().unwrap_or_default();
        let greatest = self.0.last().copied().unwrap_or_default();
        write!(f, "{:.1} ({least:.1} to {greatest:.1})", self.median())
    }
}

impl Machine {
    pub(crate) fn new(name: &str, scenario: &str) -> Self {
        let folder = tempfile::Builder::new().prefix(name).tempdir().unwrap();
        fs::copy(simulator(), folder.path().join("libnvidia-ml.so.1")).unwrap();
        fs::write(folder.path().join("nvml-sim.yaml"), scenario).unwrap();
        let machine = Self { folder };
        let location = Location {
            scenario: Some(machine.folder.path().join("nvml-sim.yaml")),
            state: machine.folder.path().join("nvml-sim.state"),
        };
        let world = Store::open(&location).unwrap().read().unwrap();
        nvml_sim::sysfs::write(&world, machine.folder.path()).unwrap();
        machine
    }

    fn library(&self) -> PathBuf {
        self.folder.path().join("libnvidia-ml.so.1")
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("calls.jsonl")
    }

    fn agent(&self) -> Command {
        let mut agent = Command::new(env!("CARGO_BIN_EXE_octavo-agent"));
        agent
            .arg("--nvml-library")
            .arg(self.library())
            .arg("--sys-root")
            .arg(self.folder.path().join("sys"))
            .args(["--mig-strategy", "mixed", "--log-level", "error"])
            .stdout(Stdio::piped());
        agent
    }

    /// Time from exec to the whole first label set on standard output.
    pub(crate) fn run_once(&self, logged: bool) -> Run {
        let mut agent = self.agent();
        agent.arg("--oneshot");
        if logged {
            let _none_yet = fs::remove_file(self.log());
            agent.env("NVML_SIM_LOG", self.log());
        }
        let start = Instant::now();
        let output = agent.output().unwrap();
        let wall_ms = start.elapsed().as_secs_f64() * 1000.0;
        assert!(
            output.status.success() && output.stdout.len() > 100,
            "the agent printed no labels"
        );
        let nvml_ms = if logged { nvml_ms(&self.calls()) } else { 0.0 };
        Run { wall_ms, nvml_ms }
    }

    fn calls(&self) -> Vec<Call> {
        let text = fs::read_to_string(self.log()).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Looks again and again for `span`, and shares what it took among the observations.
    pub(crate) fn observe_for(&self, span: Duration, interval: Duration) -> Observations {
        self.run_once(true);
        let first = self.calls();
        fs::remove_file(self.log()).unwrap();
        let mut command = self.agent();
        command
            .args(["--interval", &format!("{}ms", interval.as_millis())])
            .env("NVML_SIM_LOG", self.log());
        let agent = Daemon::start(command);
        let (cpu_before, calls_before) = (agent.cpu_ms(), self.calls().len());
        thread::sleep(span);
        let cpu_ms = agent.cpu_ms() - cpu_before;
        drop(agent);
        // Event waits run beside the observations and are none of them.
        let later: Vec<Call> = self
            .calls()
            .into_iter()
            .skip(calls_before)
            .filter(|call| !call.function.starts_with("nvmlEventSetWait"))
            .collect();
        // Read once in every observation.
        let observations = later
            .iter()
            .filter(|call| call.function.starts_with("nvmlDeviceGetCount"))
            .count()
            .max(1);
        let per = |total: f64| total / f64::from(u32::try_from(observations).unwrap());
        Observations {
            first_calls: first.len(),
            first_nvml_ms: nvml_ms(&first),
            later_calls: later.len() / observations,
            later_nvml_ms: per(nvml_ms(&later)),
            cpu_ms: per(cpu_ms),
        }
    }

    /// The agent's memory once it has published and settled.
    pub(crate) fn agent_memory(&self) -> Memory {
        let mut command = self.agent();
        command.args(["--interval", "200ms"]);
        let agent = Daemon::start(command);
        thread::sleep(Duration::from_secs(5));
        agent.memory()
    }

    /// The memory of a C program that only loads the library.
    pub(crate) fn library_memory(&self) -> Memory {
        let program = self.folder.path().join("baseline");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/baseline.c");
        let built = Command::new("cc")
            .arg("-O2")
            .arg("-o")
            .arg(&program)
            .arg(source)
            .arg("-ldl")
            .status()
            .unwrap();
        assert!(built.success(), "cc failed");
        let mut command = Command::new(program);
        command
            .arg(self.library())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        Daemon::start(command).memory()
    }

    /// The agent with its default interval, left alone.
    pub(crate) fn idle(&self, span: Duration) -> Idle {
        let agent = Daemon::start(self.agent());
        thread::sleep(Duration::from_secs(5));
        let (cpu, wakeups) = (agent.cpu_ms(), agent.wakeups());
        thread::sleep(span);
        Idle {
            cpu_ms: agent.cpu_ms() - cpu,
            wakeups_per_s: (agent.wakeups() - wakeups) / span.as_secs_f64(),
        }
    }
}

/// Wall time of a process of the same binary that does nothing.
pub(crate) fn bare_process_ms() -> f64 {
    let start = Instant::now();
    Command::new(env!("CARGO_BIN_EXE_octavo-agent"))
        .arg("--version")
        .output()
        .unwrap();
    start.elapsed().as_secs_f64() * 1000.0
}

fn nvml_ms(calls: &[Call]) -> f64 {
    calls
        .iter()
        .map(|call| Duration::from_nanos(call.duration_ns).as_secs_f64() * 1000.0)
        .sum()
}

/// The library that cargo built beside this program.
fn simulator() -> PathBuf {
    std::env::current_exe()
        .unwrap()
        .with_file_name("libnvml_sim.so")
}

/// A process that runs until it is dropped; started once it has printed its first line.
struct Daemon {
    child: Child,
}

impl Daemon {
    fn start(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the process printed nothing");
        // Keeps reading, so that the process never waits for us.
        thread::spawn(move || output.read_to_end(&mut Vec::new()));
        Self { child }
    }

    fn proc_file(&self, name: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{name}", self.child.id())).unwrap()
    }

    fn memory(&self) -> Memory {
        let rollup = self.proc_file("smaps_rollup");
        let mebibytes = |key: &str| {
            let line = rollup.lines().find(|line| line.starts_with(key)).unwrap();
            line.split_whitespace()
                .nth(1)
                .unwrap()
                .parse::<f64>()
                .unwrap()
                / 1024.0
        };
        Memory {
            pss: mebibytes("Pss:"),
            anonymous: mebibytes("Pss_Anon:"),
        }
    }

    /// CPU time of all threads so far.
    fn cpu_ms(&self) -> f64 {
        let per_thread = |thread: PathBuf| {
            let text = fs::read_to_string(thread.join("schedstat")).unwrap();
            text.split_whitespace()
                .next()
                .unwrap()
                .parse::<f64>()
                .unwrap()
                / 1e6
        };
        self.threads().map(per_thread).sum()
    }

    fn wakeups(&self) -> f64 {
        let per_thread = |thread: PathBuf| {
            let text = fs::read_to_string(thread.join("status")).unwrap();
            let line = text
                .lines()
                .find(|line| line.starts_with("voluntary_ctxt_switches"))
                .unwrap();
            line.split_whitespace()
                .nth(1)
                .unwrap()
                .parse::<f64>()
                .unwrap()
        };
        self.threads().map(per_thread).sum()
    }

    fn threads(&self) -> impl Iterator<Item = PathBuf> {
        let folder = format!("/proc/{}/task", self.child.id());
        fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _gone_already = self.child.wait();
    }
}
