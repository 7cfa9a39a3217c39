//! Layout changes of a simulated machine: by the agent, and by NVIDIA's mig-parted in its own mount namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::resource::{Usage, UsageWho, getrusage};
use octavo_files::history::{self, Attempt};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::simulated_machine;

/// Profiles and their numbers of instances.
pub(crate) type Mix = [(&'static str, u32)];

/// First argument of the benchmark when it runs itself to measure one program.
pub(crate) const MEASURED: &str = "--measured";

/// A simulated machine and the state directory of its agent.
pub(crate) struct Node {
    directory: TempDir,
}

/// Use of the simulator's call log.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Log {
    On,
    Off,
}

/// NVIDIA's mig-parted, built by `tests/it/peer_mig_parted.rs`.
pub(crate) struct Peer {
    program: PathBuf,
}

/// Time and memory of one run of a program.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Cost {
    /// From exec to exit.
    pub(crate) wall_ms: f64,
    /// User and system time of all threads.
    pub(crate) cpu_ms: f64,
    /// Peak of the resident memory. Source: `getrusage`.
    pub(crate) peak_mib: f64,
}

/// One line of the simulator's call log.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Call {
    pub(crate) tid: u32,
    pub(crate) function: String,
    pub(crate) arguments: Vec<String>,
    pub(crate) result: String,
    start_ns: u64,
    duration_ns: u64,
}

/// One run of a program, with its NVML calls in order of their start.
pub(crate) struct ProgramRun {
    pub(crate) cost: Cost,
    pub(crate) calls: Vec<Call>,
}

impl Node {
    /// Creates a machine with `count` boards and `instances` on each.
    pub(crate) fn new(count: usize, instances: &Mix, latency: &str) -> Self {
        let instances: Vec<String> = instances
            .iter()
            .map(|(profile, count)| format!("{{profile: {profile}, count: {count}}}"))
            .collect();
        let instances = instances.join(", ");
        let scenario = format!(
            "machine: bench\nlinks: nvswitch\nlatency: {latency}\ngpus:\n- board: A100_80GB\n  count: {count}\n  mig: enabled\n  instances: [{instances}]\n"
        );
        let directory = simulated_machine::directory("apply", &scenario);
        let path = directory.path();
        fs::create_dir(path.join("proc")).unwrap();
        let devices = "Character devices:\n  1 mem\n\nBlock devices:\n  8 sd\n";
        fs::write(path.join("proc/devices"), devices).unwrap();
        prepare_for_peer(path);
        Self { directory }
    }

    /// Writes the desired layout of every GPU, in both dialects.
    pub(crate) fn set_layout(&self, mix: &Mix) {
        let counts: Vec<String> =
            mix.iter().map(|(name, count)| format!("{name}: {count}")).collect();
        let counts = counts.join(", ");
        let octavo = format!(
            "apiVersion: octavo.dev/v1\nkind: Layouts\nlayouts:\n  wanted: [{{devices: all, mig: {{{counts}}}}}]\n"
        );
        let mig_parted = format!(
            "version: v1\nmig-configs:\n  wanted:\n  - devices: all\n    mig-enabled: true\n    mig-devices: {{{counts}}}\n"
        );
        fs::write(self.file("layouts.yaml"), octavo).unwrap();
        fs::write(self.file("mig-parted.yaml"), mig_parted).unwrap();
    }

    /// Applies the layout with the agent.
    pub(crate) fn run_agent(&self, log: Log) -> ProgramRun {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([MEASURED, env!("CARGO_BIN_EXE_octavo-agent")]).args([
            "--oneshot",
            "--log-level",
            "error",
            "--layout",
            "wanted",
        ]);
        for (flag, file) in [
            ("--layouts", "layouts.yaml"),
            ("--nvml-library", simulated_machine::LIBRARY),
            ("--sys-root", "sys"),
            ("--state-dir", "state"),
            ("--proc-root", "proc"),
            ("--pod-resources", "no-kubelet/kubelet.sock"),
            ("--nvidia-smi", "nvidia-smi"),
        ] {
            command.arg(flag).arg(self.file(file));
        }
        self.run(command, log)
    }

    /// Applies the layout with mig-parted. It reads `/proc` and `/sys`, so it runs in a mount namespace with those of the simulated
    /// machine.
    pub(crate) fn run_peer(&self, peer: &Peer, log: Log) -> ProgramRun {
        const SCRIPT: &str = "cd \"$1\" && shift && mount --rbind /proc peer/real && mount --rbind peer /proc \
                              && mount --bind sys/bus/pci /sys/bus/pci && exec \"$@\"";
        let mut command = Command::new("unshare");
        command
            .args(["-m", "sh", "-c", SCRIPT, "sh"])
            .arg(self.directory.path())
            .arg(std::env::current_exe().unwrap())
            .arg(MEASURED)
            .arg(&peer.program)
            .args(["apply", "-c", "wanted", "-f", "mig-parted.yaml"])
            .env("LD_LIBRARY_PATH", self.directory.path());
        self.run(command, log)
    }

    /// Returns the last entry of the history.
    pub(crate) fn last_attempt(&self) -> Attempt {
        let text = fs::read_to_string(self.file("state/history.jsonl")).unwrap();
        history::parse(&text).pop().unwrap()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn run(&self, mut command: Command, log: Log) -> ProgramRun {
        let calls = self.file("calls.jsonl");
        let _not_found = fs::remove_file(&calls);
        if log == Log::On {
            command.env("NVML_SIM_LOG", &calls);
        }
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let cost = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        let text = fs::read_to_string(&calls).unwrap_or_default();
        let mut calls: Vec<Call> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        calls.sort_by_key(Call::start);
        ProgramRun { cost, calls }
    }
}

/// Creates the `/proc/modules` in which mig-parted looks for the driver before it uses NVML.
fn prepare_for_peer(directory: &Path) {
    fs::create_dir_all(directory.join("peer/real")).unwrap();
    fs::write(directory.join("peer/modules"), "nvidia 1 0 - Live 0x0000000000000000\n").unwrap();
    std::os::unix::fs::symlink("real/self", directory.join("peer/self")).unwrap();
}

impl Peer {
    /// Returns the program in the cache, if it was built and this user can mount.
    pub(crate) fn find() -> Option<Self> {
        let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(
            || PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache"),
            PathBuf::from,
        );
        let program = cache.join("octavo/nvidia-mig-parted-v0.13.1");
        let namespace = Command::new("unshare").args(["-m", "true"]).output();
        let allowed = namespace.is_ok_and(|output| output.status.success());
        (program.is_file() && allowed).then_some(Self { program })
    }
}

/// Runs the program in the arguments and prints its cost. It must run in a separate small process, because the memory of a process
/// before exec counts toward its peak.
pub(crate) fn run_measured(mut arguments: impl Iterator<Item = String>) {
    let cpu_time = |usage: &Usage| {
        let times = [usage.user_time(), usage.system_time()];
        let micros = times.map(|time| time.tv_sec() * 1_000_000 + time.tv_usec());
        Duration::from_micros(u64::try_from(micros.iter().sum::<i64>()).unwrap())
    };
    let before = cpu_time(&getrusage(UsageWho::RUSAGE_CHILDREN).unwrap());
    let start = Instant::now();
    let status = Command::new(arguments.next().unwrap())
        .args(arguments)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    let wall = start.elapsed();
    assert!(status.success(), "{status}");
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap();
    let cost = Cost {
        wall_ms: millis(wall),
        cpu_ms: millis(cpu_time(&usage).checked_sub(before).unwrap()),
        peak_mib: f64::from(u32::try_from(usage.max_rss()).unwrap()) / 1024.0,
    };
    println!("{}", serde_json::to_string(&cost).unwrap());
}

/// Measures a program that does nothing.
pub(crate) fn minimum_cost() -> Cost {
    let output =
        Command::new(std::env::current_exe().unwrap()).args([MEASURED, "true"]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

pub(crate) fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1000.0
}

impl Call {
    /// Returns `true` if the call changes the hardware, even if it fails.
    pub(crate) fn changes(&self) -> bool {
        const CHANGES: [&str; 5] = [
            "nvmlDeviceSet",
            "nvmlDeviceCreateGpuInstance",
            "nvmlGpuInstanceCreateComputeInstance",
            "nvmlGpuInstanceDestroy",
            "nvmlComputeInstanceDestroy",
        ];
        CHANGES.iter().any(|prefix| self.function.starts_with(prefix))
    }

    /// Returns `true` if the call waits for events. A separate thread makes these calls all the time.
    pub(crate) fn waits(&self) -> bool {
        self.function.starts_with("nvmlEventSetWait")
    }

    /// Returns the start of the call since the Unix epoch.
    pub(crate) fn start(&self) -> Duration {
        Duration::from_nanos(self.start_ns)
    }

    pub(crate) fn duration(&self) -> Duration {
        Duration::from_nanos(self.duration_ns)
    }
}

/// Returns the total time inside these calls.
pub(crate) fn duration_ms<'a>(calls: impl IntoIterator<Item = &'a Call>) -> f64 {
    millis(calls.into_iter().map(Call::duration).sum())
}

/// Returns the longest time that one of the threads that change devices spent inside calls.
pub(crate) fn longest_driver_ms(calls: &[Call]) -> f64 {
    let changing = changing_threads(calls);
    let mut sums: BTreeMap<u32, Duration> = BTreeMap::new();
    for call in calls.iter().filter(|call| changing.contains(&call.tid)) {
        *sums.entry(call.tid).or_default() += call.duration();
    }
    millis(sums.into_values().max().unwrap_or_default())
}

/// Returns the ids of the threads that change the hardware.
pub(crate) fn changing_threads(calls: &[Call]) -> BTreeSet<u32> {
    let changes = calls.iter().filter(|call| call.changes());
    changes.map(|call| call.tid).collect()
}

/// Returns the numbers of GPU instances that were destroyed and created.
pub(crate) fn instance_counts(calls: &[Call]) -> (usize, usize) {
    let count = |function: &str| {
        let successful = calls.iter().filter(|call| call.result == "SUCCESS");
        successful.filter(|call| call.function.starts_with(function)).count()
    };
    (count("nvmlGpuInstanceDestroy"), count("nvmlDeviceCreateGpuInstance"))
}
