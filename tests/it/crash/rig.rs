//! A machine on which one change is interrupted again and again, each time from the same beginning.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use nvml_sim::model::{Gpu, GpuInstance, Process, ProcessKind, World};

use super::cases::Case;
use crate::machine::{Machine, simulator};

const AGENT: &str = env!("CARGO_BIN_EXE_octavo-agent");
/// `SIGKILL`.
const KILLED: i32 = 9;
/// Functions that change something begin like one of these.
const CHANGES: [&str; 5] = [
    "nvmlDeviceSet",
    "nvmlDeviceCreateGpuInstance",
    "nvmlGpuInstanceCreateComputeInstance",
    "nvmlGpuInstanceDestroy",
    "nvmlComputeInstanceDestroy",
];

/// The agent dies at a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kill {
    /// Which call of the process, from 1.
    pub(super) call: u64,
    pub(super) when: When,
}

/// On which side of the call's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum When {
    Before,
    After,
}

/// What a device has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Geometry {
    mode: Option<(bool, bool)>,
    /// Profile, first slice, profiles of the compute instances.
    instances: Vec<(u32, u32, Vec<u32>)>,
}

/// A machine, a case and where everything is.
pub(super) struct Rig {
    machine: Machine,
    pub(super) case: &'static Case,
    /// The machine's state before anything was done, as the simulator keeps it.
    fresh: Vec<u8>,
    previous: Vec<Geometry>,
    target: Vec<Geometry>,
}

/// One run of the agent.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) output: Output,
    /// The functions it called, in the order in which they returned.
    pub(super) calls: Vec<String>,
}

impl Rig {
    pub(super) fn new(case: &'static Case) -> Self {
        let machine = Machine::new(&scenario(case.gpus, case.processes));
        let wanted = Machine::without_driver(&scenario(case.wanted, "[]")).world();
        let path = machine.path();
        fs::create_dir(path.join("proc")).unwrap();
        let devices = "Character devices:\n  1 mem\n\nBlock devices:\n  8 sd\n";
        fs::write(path.join("proc/devices"), devices).unwrap();
        if case.nvidia_smi {
            install_nvidia_smi(path);
        }
        let previous = geometry(&machine.world());
        assert_eq!(case.ends.len(), previous.len(), "{}", case.name);
        Self {
            fresh: fs::read(path.join("nvml-sim.state/state.json")).unwrap(),
            target: geometry(&wanted),
            previous,
            machine,
            case,
        }
    }

    /// Everything is as it was before anything was done.
    pub(super) fn reset(&self) {
        self.set_hardware(&self.fresh);
        // A first point has none.
        let _absent = fs::remove_dir_all(self.state_dir());
        self.machine.faults(&faults(self.case, None));
        self.lay_out(self.case.layout);
    }

    fn lay_out(&self, rules: &str) {
        let layouts =
            format!("apiVersion: octavo.dev/v1\nkind: Layouts\nlayouts:\n  wanted: {rules}\n");
        fs::write(self.machine.path().join("layouts.yaml"), layouts).unwrap();
    }

    /// The hardware as the simulator keeps it.
    pub(super) fn hardware(&self) -> Vec<u8> {
        fs::read(self.machine.path().join("nvml-sim.state/state.json")).unwrap()
    }

    /// Makes the hardware as it was another time.
    pub(super) fn set_hardware(&self, state: &[u8]) {
        let folder = self.machine.path().join("nvml-sim.state");
        fs::write(folder.join("state.new"), state).unwrap();
        fs::rename(folder.join("state.new"), folder.join("state.json")).unwrap();
    }

    /// Where everything of the machine is.
    pub(super) fn folder(&self) -> &Path {
        self.machine.path()
    }

    pub(super) fn state_dir(&self) -> PathBuf {
        self.machine.path().join("state")
    }

    pub(super) fn journal(&self) -> PathBuf {
        self.state_dir().join("journal")
    }

    /// Runs the agent once.
    pub(super) fn run(&self) -> Ran {
        let log = self.machine.path().join("calls.jsonl");
        let _absent = fs::remove_file(&log);
        let output = self.agent().env("NVML_SIM_LOG", &log).output().unwrap();
        let text = fs::read_to_string(&log).unwrap_or_default();
        let calls = text.lines().map(|line| {
            let entry: serde_json::Value = serde_json::from_str(line).unwrap();
            entry["function"].as_str().unwrap().to_owned()
        });
        Ran {
            calls: calls.collect(),
            output,
        }
    }

    /// Runs the agent until the call at which it is killed; whether it came so far.
    pub(super) fn kill_at(&self, kill: Kill) -> bool {
        self.machine.faults(&faults(self.case, Some(kill)));
        let output = self.agent().output().unwrap();
        self.machine.faults(&faults(self.case, None));
        output.status.signal() == Some(KILLED)
    }

    /// The agent, which looks once.
    pub(super) fn agent(&self) -> Command {
        let path = self.machine.path();
        let mut command = self.machine.command(AGENT);
        command
            .arg("--layouts")
            .arg(path.join("layouts.yaml"))
            .args(["--layout", "wanted", "--oneshot"])
            .arg("--state-dir")
            .arg(self.state_dir())
            .arg("--proc-root")
            .arg(path.join("proc"))
            .arg("--pod-resources")
            .arg(path.join("no-kubelet/kubelet.sock"))
            .arg("--nvidia-smi")
            .arg(path.join("nvidia-smi"));
        command
    }

    /// What happens while the agent is down: other rules are written, and somebody begins to use the instance that the case
    /// says, if it is there.
    pub(super) fn meanwhile(&self) {
        if let Some(rules) = self.case.afterwards {
            self.lay_out(rules);
        }
        let Some(newcomer) = &self.case.newcomer else {
            return;
        };
        let world = self.world();
        let gpu = &world.gpus[newcomer.gpu];
        let profile = gpu.profiles.iter().find(|one| one.name == newcomer.profile);
        let profile = profile.unwrap().id;
        let wanted =
            |one: &&GpuInstance| one.profile_id == profile && one.placement.start == newcomer.start;
        let found = instances(gpu).find(wanted);
        let Some((gi, ci)) = found.and_then(|gi| Some((gi.id, gi.compute.first()?.id))) else {
            return;
        };
        let process = Process {
            pid: 6001,
            name: "newcomer".to_owned(),
            gpu_uuid: gpu.uuid.clone(),
            gi: Some(gi),
            ci: Some(ci),
            memory_mib: 100,
            kind: ProcessKind::Compute,
        };
        self.machine.change(|world| world.add_process(process));
    }

    pub(super) fn world(&self) -> Arc<World> {
        self.machine.world()
    }

    /// Whether each device is at its target; why it is neither there nor as it was, or at the wrong one of both.
    pub(super) fn sides(&self) -> Result<Vec<bool>, String> {
        let now = geometry(&self.world());
        let ends = self.case.ends.chars();
        let all = now.iter().zip(&self.previous).zip(&self.target).zip(ends);
        all.enumerate()
            .map(|(gpu, (((now, previous), target), end))| {
                let at_target = now.mode == target.mode && shape(now) == shape(target);
                match (at_target, now == previous, end) {
                    (true, _, 't' | 'e') => Ok(true),
                    (_, true, 'p' | 'e') => Ok(false),
                    _ => Err(format!(
                        "GPU {gpu} has {now:?}; it had {previous:?}, and shall have {target:?}"
                    )),
                }
            })
            .collect()
    }
}

impl Ran {
    /// Whether it changed the hardware, or tried to.
    pub(super) fn changed(&self) -> bool {
        self.calls.iter().any(|name| changes(name))
    }

    pub(super) fn said(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }
}

/// A program that resets the machine's first GPU.
fn install_nvidia_smi(machine: &Path) {
    let program = machine.join("nvidia-smi");
    let text = format!(
        "#!/bin/sh\nexec '{}' --state '{}' reset 0\n",
        simulator().display(),
        machine.join("nvml-sim.state").display()
    );
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Whether a function changes the hardware.
pub(super) fn changes(function: &str) -> bool {
    CHANGES.iter().any(|begin| function.starts_with(begin))
}

/// The MIG UUIDs of everything that somebody uses.
pub(super) fn in_use(world: &World) -> Vec<String> {
    let uses = world.processes.iter().filter_map(|process| {
        let gpu = world.gpus.iter().find(|gpu| gpu.uuid == process.gpu_uuid);
        let gi = gpu
            .into_iter()
            .flat_map(instances)
            .find(|gi| Some(gi.id) == process.gi);
        let ci = gi
            .into_iter()
            .flat_map(|gi| &gi.compute)
            .find(|ci| Some(ci.id) == process.ci);
        ci.map(|ci| ci.uuid.clone())
    });
    uses.collect()
}

/// The MIG UUIDs of everything that is there.
pub(super) fn there(world: &World) -> Vec<String> {
    let all = world.gpus.iter().flat_map(instances);
    let parts = all.flat_map(|gi| &gi.compute);
    parts.map(|ci| ci.uuid.clone()).collect()
}

fn instances(gpu: &Gpu) -> impl Iterator<Item = &GpuInstance> {
    gpu.mig.iter().flat_map(|mig| &mig.instances)
}

fn geometry(world: &World) -> Vec<Geometry> {
    let gpus = world.gpus.iter();
    gpus.map(|gpu| {
        let mut instances: Vec<_> = instances(gpu)
            .map(|gi| {
                let mut compute: Vec<u32> = gi.compute.iter().map(|ci| ci.profile_id).collect();
                compute.sort_unstable();
                (gi.profile_id, gi.placement.start, compute)
            })
            .collect();
        instances.sort();
        Geometry {
            mode: gpu.mig.as_ref().map(|mig| (mig.current, mig.pending)),
            instances,
        }
    })
    .collect()
}

/// What a layout asks for: profiles and splits, wherever they lie.
fn shape(geometry: &Geometry) -> Vec<(u32, Vec<u32>)> {
    let all = geometry.instances.iter();
    let mut shape: Vec<_> = all
        .map(|(profile, _, compute)| (*profile, compute.clone()))
        .collect();
    shape.sort();
    shape
}

fn scenario(gpus: &str, processes: &str) -> String {
    format!(
        "machine: crash\ndriver: 580.95.05\ncuda: \"13.0\"\ngpus: {gpus}\nprocesses: {processes}\n"
    )
}

fn faults(case: &Case, kill: Option<Kill>) -> String {
    let mut rules: Vec<String> = case.faults.iter().map(|&rule| rule.to_owned()).collect();
    if let Some(Kill { call, when }) = kill {
        let when = match when {
            When::Before => "before",
            When::After => "after",
        };
        rules.push(format!(
            "{{call: \"nvml*\", nth: {call}, times: 1, count: process, abort: {when}}}"
        ));
    }
    format!("[{}]\n", rules.join(", "))
}
