//! A simulated machine on which the agent, gpu-feature-discovery and a minimal NVML client are measured.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fmt, fs, thread};

use serde::Deserialize;
use tempfile::TempDir;

use crate::process::{self, Memory};
use crate::simulated_machine;

/// A simulated machine in a temporary directory.
pub(crate) struct Machine {
    directory: TempDir,
}

/// Times of one run with `--oneshot`.
pub(crate) struct Run {
    /// From exec to the first line of output.
    pub(crate) wall_ms: f64,
    /// Inside NVML calls; 0 without the call log.
    pub(crate) nvml_ms: f64,
}

/// Calls and times of one observation: of the first, and the mean of the later ones. NVML figures are from the call log.
pub(crate) struct Observations {
    pub(crate) first_calls: usize,
    pub(crate) first_nvml_ms: f64,
    pub(crate) later_calls: usize,
    pub(crate) later_nvml_ms: f64,
    pub(crate) cpu_ms: f64,
}

/// CPU and wake-ups of an idle process.
pub(crate) struct Idle {
    pub(crate) cpu_ms: f64,
    pub(crate) millicores: f64,
    pub(crate) wakeups_per_s: f64,
}

/// Use of the simulator's call log, which takes time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Log {
    On,
    Off,
}

/// NVIDIA's gpu-feature-discovery, built by `tests/it/peer_gfd.rs`.
pub(crate) struct Peer {
    program: PathBuf,
}

/// Sorted values of several runs. It displays the median, the minimum and the maximum.
pub(crate) struct MedianAndRange(Vec<f64>);

#[derive(Deserialize)]
struct Call {
    function: String,
    duration_ns: u64,
}

impl MedianAndRange {
    pub(crate) fn new(runs: usize, mut measure: impl FnMut() -> f64) -> Self {
        let mut values: Vec<f64> = (0..runs).map(|_| measure()).collect();
        values.sort_by(f64::total_cmp);
        Self(values)
    }

    pub(crate) fn median(&self) -> f64 {
        self.0.get(self.0.len() / 2).copied().unwrap_or_default()
    }
}

impl fmt::Display for MedianAndRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let minimum = self.0.first().copied().unwrap_or_default();
        let maximum = self.0.last().copied().unwrap_or_default();
        write!(f, "{:.1} ({minimum:.1} to {maximum:.1})", self.median())
    }
}

impl Machine {
    pub(crate) fn new(name: &str, scenario: &str) -> Self {
        Self { directory: simulated_machine::directory(name, scenario) }
    }

    fn library(&self) -> PathBuf {
        self.directory.path().join(simulated_machine::LIBRARY)
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("calls.jsonl")
    }

    fn agent(&self) -> Command {
        let mut agent = Command::new(env!("CARGO_BIN_EXE_octavo-agent"));
        agent
            .arg("--nvml-library")
            .arg(self.library())
            .arg("--sys-root")
            .arg(self.directory.path().join("sys"))
            .args(["--mig-strategy", "mixed", "--log-level", "error"])
            .stdout(Stdio::piped());
        agent
    }

    /// Measures the time from exec to the first labels on standard output.
    pub(crate) fn run_once(&self, log: Log) -> Run {
        let mut agent = self.agent();
        agent.arg("--oneshot");
        if log == Log::On {
            let _not_found = fs::remove_file(self.log());
            agent.env("NVML_SIM_LOG", self.log());
        }
        let (wall_ms, output) = time_to_labels(agent);
        assert!(output.contains("octavo.dev/type="), "the agent printed no labels");
        let nvml_ms = match log {
            Log::On => nvml_ms(&self.calls()),
            Log::Off => 0.0,
        };
        Run { wall_ms, nvml_ms }
    }

    fn calls(&self) -> Vec<Call> {
        let text = fs::read_to_string(self.log()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Observes the machine at `interval` for `span`, twice: with the call log to count calls, and without it to measure CPU time.
    pub(crate) fn observe_for(&self, span: Duration, interval: Duration) -> Observations {
        self.run_once(Log::On);
        let first = self.calls();
        fs::remove_file(self.log()).unwrap();
        let interval = format!("{}ms", interval.as_millis());
        let mut command = self.agent();
        command.args(["--interval", &interval]).env("NVML_SIM_LOG", self.log());
        let agent = Daemon::start(command);
        let calls_before = self.calls().len();
        thread::sleep(span);
        drop(agent);
        // Another thread waits for events; these calls are not part of an observation.
        let later: Vec<Call> = self
            .calls()
            .into_iter()
            .skip(calls_before)
            .filter(|call| !call.function.starts_with("nvmlEventSetWait"))
            .collect();
        // Called once in every observation.
        let counts = later.iter().filter(|call| call.function.starts_with("nvmlDeviceGetCount"));
        let observations = counts.count().max(1);
        let per = |total: f64| total / f64::from(u32::try_from(observations).unwrap());

        let mut command = self.agent();
        command.args(["--interval", &interval]);
        let agent = Daemon::start(command);
        let cpu_before = agent.cpu_ms();
        thread::sleep(span);
        Observations {
            first_calls: first.len(),
            first_nvml_ms: nvml_ms(&first),
            later_calls: later.len() / observations,
            later_nvml_ms: per(nvml_ms(&later)),
            cpu_ms: per(agent.cpu_ms() - cpu_before),
        }
    }

    /// Measures the agent's memory five seconds after its first labels.
    pub(crate) fn agent_memory(&self) -> Memory {
        let mut command = self.agent();
        command.args(["--interval", "200ms"]);
        let agent = Daemon::start(command);
        thread::sleep(Duration::from_secs(5));
        agent.memory()
    }

    /// Measures the memory of a C program that only loads the library and waits for events.
    pub(crate) fn library_memory(&self) -> Memory {
        self.baseline().memory()
    }

    /// Measures that C program while it is idle.
    pub(crate) fn library_idle(&self, span: Duration) -> Idle {
        self.baseline().idle(span)
    }

    /// Measures the idle agent with its default interval.
    pub(crate) fn agent_idle(&self, span: Duration) -> Idle {
        Daemon::start(self.agent()).idle(span)
    }

    fn baseline(&self) -> Daemon {
        let program = self.directory.path().join("baseline");
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
        command.arg(self.library()).stdout(Stdio::piped());
        Daemon::start(command)
    }
}

impl Peer {
    /// Returns the program in the cache, if it was built.
    pub(crate) fn find() -> Option<Self> {
        let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(
            || PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache"),
            PathBuf::from,
        );
        let entries = fs::read_dir(cache.join("octavo")).ok()?;
        let mut programs = entries.map(|entry| entry.unwrap().path());
        let program = programs.find(|path| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.starts_with("gpu-feature-discovery-")
        })?;
        Some(Self { program })
    }

    /// Returns the name and version of the program.
    pub(crate) fn name(&self) -> String {
        self.program.file_name().unwrap().to_string_lossy().into_owned()
    }

    /// Measures the time from exec to the labels of a single pass.
    pub(crate) fn once_ms(&self, machine: &Machine) -> f64 {
        let mut peer = self.command(machine);
        peer.arg("--oneshot");
        let (wall_ms, output) = time_to_labels(peer);
        assert!(output.contains("nvidia.com/gpu.count="), "the peer printed no labels");
        wall_ms
    }

    pub(crate) fn memory(&self, machine: &Machine) -> Memory {
        let daemon = Daemon::start(self.command(machine));
        thread::sleep(Duration::from_secs(5));
        daemon.memory()
    }

    /// Measures the idle program with its default interval of a minute.
    pub(crate) fn idle(&self, machine: &Machine, span: Duration) -> Idle {
        Daemon::start(self.command(machine)).idle(span)
    }

    fn command(&self, machine: &Machine) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(["--use-node-feature-api=false", "--no-timestamp", "--output-file="])
            .args(["--mig-strategy=mixed"])
            .env("LD_LIBRARY_PATH", machine.directory.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        command
    }
}

/// Returns the time until a process writes its first line, and its whole output. Both programs write all labels together and then
/// exit. The time that the kernel needs to clean up the process is not included.
fn time_to_labels(mut command: Command) -> (f64, String) {
    let start = Instant::now();
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    output.read_line(&mut text).unwrap();
    let wall_ms = start.elapsed().as_secs_f64() * 1000.0;
    output.read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success());
    (wall_ms, text)
}

/// Measures the wall time of the same program when it does nothing.
pub(crate) fn bare_process_ms() -> f64 {
    let start = Instant::now();
    Command::new(env!("CARGO_BIN_EXE_octavo-agent")).arg("--version").output().unwrap();
    start.elapsed().as_secs_f64() * 1000.0
}

fn nvml_ms(calls: &[Call]) -> f64 {
    calls.iter().map(|call| Duration::from_nanos(call.duration_ns).as_secs_f64() * 1000.0).sum()
}

/// A running process that has printed its first line; killed when dropped.
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
        // Reads all further output, so that the process never blocks on a full pipe.
        thread::spawn(move || output.read_to_end(&mut Vec::new()));
        Self { child }
    }

    fn memory(&self) -> Memory {
        process::memory(self.child.id())
    }

    /// Measures the process for `span`, five seconds after its first output.
    fn idle(&self, span: Duration) -> Idle {
        thread::sleep(Duration::from_secs(5));
        let (cpu, wakeups) = (self.cpu_ms(), self.wakeups());
        thread::sleep(span);
        let cpu_ms = self.cpu_ms() - cpu;
        Idle {
            cpu_ms,
            millicores: cpu_ms / span.as_secs_f64(),
            wakeups_per_s: (self.wakeups() - wakeups) / span.as_secs_f64(),
        }
    }

    fn cpu_ms(&self) -> f64 {
        process::cpu_ms(self.child.id())
    }

    fn wakeups(&self) -> f64 {
        process::wakeups(self.child.id())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _already_exited = self.child.kill();
        let _already_exited = self.child.wait();
    }
}
