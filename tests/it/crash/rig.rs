//! A machine on which one change is interrupted repeatedly, each time from the same initial state.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use nvml_sim::model::{Gpu, GpuInstance, Process, ProcessKind, World};
use octavo_files::history;

use super::cases::{AppliedBy, Case, OtherLayout};
use crate::machine::{Machine, simulator};
use crate::sweep::KillPoint;
use crate::sweep::world::{Geometry, changes, geometry, instances, shape};
use crate::time_limits::Finish;

const AGENT: &str = env!("CARGO_BIN_EXE_octavo-agent");
const OCTAVO: &str = env!("CARGO_BIN_EXE_octavo");
/// `SIGKILL`.
const KILLED: i32 = 9;

/// A machine with a case.
pub(super) struct Rig {
    machine: Machine,
    pub(super) case: &'static Case,
    /// Initial state of the machine in the format of the simulator.
    fresh: Vec<u8>,
    previous: Vec<Geometry>,
    target: Vec<Geometry>,
    begun: Option<Vec<Geometry>>,
    /// True if the other layout is requested now.
    is_other: Cell<bool>,
}

/// One run of the agent, or of a command.
#[derive(Debug)]
pub(super) struct RunResult {
    pub(super) output: Output,
    /// Called functions in the order in which they returned.
    pub(super) calls: Vec<String>,
}

impl Rig {
    pub(super) fn new(case: &'static Case) -> Self {
        let machine = Machine::new(&scenario(case.gpus, case.processes));
        let of = |gpus| geometry(&Machine::without_driver(&scenario(gpus, "[]")).world());
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
            fresh: machine.hardware(),
            target: of(case.wanted),
            begun: case.begun.map(of),
            is_other: Cell::new(false),
            previous,
            machine,
            case,
        }
    }

    /// Restores the initial state.
    pub(super) fn reset(&self) {
        self.machine.set_hardware(&self.fresh);
        // Absent before the first point.
        let _absent = fs::remove_dir_all(self.state_dir());
        self.machine.faults(&faults(self.case, None));
        self.is_other.set(false);
        self.write_layout(self.case.layout);
    }

    fn write_layout(&self, rules: &str) {
        let layouts =
            format!("apiVersion: octavo.dev/v1\nkind: Layouts\nlayouts:\n  wanted: {rules}\n");
        fs::write(self.layouts(), layouts).unwrap();
    }

    fn layouts(&self) -> PathBuf {
        self.machine.path().join("layouts.yaml")
    }

    /// The other layout, if it is requested now.
    pub(super) fn other(&self) -> Option<&'static OtherLayout> {
        self.case.other.as_ref().filter(|_| self.is_other.get())
    }

    /// The machine.
    pub(super) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The directory of the machine.
    pub(super) fn directory(&self) -> &Path {
        self.machine.path()
    }

    pub(super) fn state_dir(&self) -> PathBuf {
        self.machine.path().join("state")
    }

    pub(super) fn journal(&self) -> PathBuf {
        self.state_dir().join("journal")
    }

    /// Runs the agent once, or the command that applies the other layout.
    pub(super) fn run(&self) -> RunResult {
        let log = self.machine.path().join("calls.jsonl");
        let _absent = fs::remove_file(&log);
        let output = self.program().env("NVML_SIM_LOG", &log).finish();
        let text = fs::read_to_string(&log).unwrap_or_default();
        let calls = text.lines().map(|line| {
            let entry: serde_json::Value = serde_json::from_str(line).unwrap();
            entry["function"].as_str().unwrap().to_owned()
        });
        RunResult { calls: calls.collect(), output }
    }

    /// Runs it until the call at which it is killed; returns whether that call was reached.
    pub(super) fn kill_at(&self, kill: KillPoint) -> bool {
        self.kill_at_call("nvml*", kill)
    }

    /// Runs it until the nth call of these functions, where it is killed; returns whether that call was reached.
    pub(super) fn kill_at_call(&self, functions: &str, kill: KillPoint) -> bool {
        self.machine.faults(&faults(self.case, Some(kill.rule(functions))));
        let output = self.program().finish();
        self.machine.faults(&faults(self.case, None));
        output.status.signal() == Some(KILLED)
    }

    /// Runs it once with the faults of a first reading. It may do nothing; the next start completes the change.
    pub(super) fn run_with_faulty_reading(&self) {
        if self.case.first_reading.is_empty() {
            return;
        }
        let rules = [self.case.faults, self.case.first_reading].concat();
        self.machine.faults(&format!("[{}]\n", rules.join(", ")));
        self.program().finish();
        self.machine.faults(&faults(self.case, None));
    }

    pub(super) fn program(&self) -> Command {
        let path = self.machine.path();
        let layout = self.other().map_or("wanted", |_| "other");
        let mut command = match self.by() {
            AppliedBy::Agent => {
                let mut command = Command::new(AGENT);
                command.arg("--layouts").arg(self.layouts());
                command.args(["--layout", layout, "--oneshot"]);
                command
            }
            AppliedBy::Command => {
                let mut command = Command::new(OCTAVO);
                command.args(["apply", layout, "-o", "json", "-f"]);
                command.arg(self.layouts());
                command
            }
        };
        command
            .arg("--nvml-library")
            .arg(self.machine.library())
            .arg("--sys-root")
            .arg(path.join("sys"))
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

    /// The program that runs now.
    pub(super) fn by(&self) -> AppliedBy {
        self.other().map_or(AppliedBy::Agent, |other| other.by)
    }

    /// The labels of the hardware, as printed by a command.
    pub(super) fn labels(&self) -> String {
        let output = Command::new(OCTAVO)
            .arg("labels")
            .arg("--nvml-library")
            .arg(self.machine.library())
            .arg("--sys-root")
            .arg(self.machine.path().join("sys"))
            .finish();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Layout and PCI address of each device in the history.
    pub(super) fn history(&self) -> Vec<(String, String)> {
        let text = fs::read_to_string(self.state_dir().join("history.jsonl"));
        let attempts = history::parse(&text.unwrap_or_default());
        let devices = attempts.iter().flat_map(|attempt| {
            let devices = attempt.devices.iter();
            devices.map(|device| (attempt.layout.clone(), device.pci.clone()))
        });
        devices.collect()
    }

    /// PCI addresses of the GPUs whose partitions differ from the initial state.
    pub(super) fn reshaped(&self) -> Vec<String> {
        let world = self.world();
        let geometries = geometry(&world).into_iter().zip(&self.previous);
        let gpus = world.gpus.iter().zip(geometries);
        let reshaped = gpus.filter(|(_, (has, had))| has != *had);
        reshaped.map(|(gpu, _)| gpu.pci.sysfs()).collect()
    }

    /// The plan of the current request as JSON, if there is one.
    pub(super) fn plan(&self) -> Option<serde_json::Value> {
        let (layouts, state) = (self.layouts(), self.state_dir());
        let proc = self.machine.path().join("proc");
        let [layouts, state, proc] = [layouts, state, proc].map(|path| path.display().to_string());
        let output = Command::new(OCTAVO)
            .args(["plan", "other", "-o", "json", "-f", &layouts])
            .args(["--state-dir", &state, "--proc-root", &proc])
            .arg("--nvml-library")
            .arg(self.machine.library())
            .arg("--sys-root")
            .arg(self.machine.path().join("sys"))
            .finish();
        serde_json::from_slice(&output.stdout).ok()
    }

    /// PCI addresses of the GPUs that differ between two states.
    pub(super) fn changed(before: &World, after: &World) -> Vec<String> {
        let parts = |gpu: &Gpu| -> Vec<String> {
            let all = instances(gpu).flat_map(|gi| &gi.compute);
            all.map(|ci| ci.uuid.clone()).collect()
        };
        let pairs = before.gpus.iter().zip(&after.gpus);
        let geometries = geometry(before).into_iter().zip(geometry(after));
        let changed = pairs
            .zip(geometries)
            .filter(|((before, after), (had, has))| had != has || parts(before) != parts(after));
        changed.map(|((gpu, _), _)| gpu.pci.sysfs()).collect()
    }

    /// Changes while the agent is down: edits the rules and starts the late process of the case.
    pub(super) fn meanwhile(&self) {
        if let Some(rules) = self.case.afterwards {
            self.write_layout(rules);
        }
        if let Some(other) = &self.case.other {
            let mut layouts = fs::read_to_string(self.layouts()).unwrap();
            layouts.push_str("  other: ");
            layouts.push_str(other.rules);
            layouts.push('\n');
            fs::write(self.layouts(), layouts).unwrap();
            self.is_other.set(true);
        }
        let Some(late_process) = &self.case.late_process else {
            return;
        };
        let world = self.world();
        let gpu = &world.gpus[late_process.gpu];
        let profile = gpu.profiles.iter().find(|one| one.name == late_process.profile);
        let profile = profile.unwrap().id;
        let wanted = |one: &&GpuInstance| {
            one.profile_id == profile && one.placement.start == late_process.start
        };
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

    /// True if each device is at its target; an error if it is neither there nor at its previous state, or at the wrong
    /// one of both.
    pub(super) fn sides(&self) -> Result<Vec<bool>, String> {
        let now = geometry(&self.world());
        let ends = self.case.ends.chars();
        let all = now.iter().zip(&self.previous).zip(&self.target).zip(ends);
        all.enumerate()
            .map(|(gpu, (((now, previous), target), end))| {
                let is_at =
                    |wanted: &Geometry| now.mode == wanted.mode && shape(now) == shape(wanted);
                let begun = self.begun.as_ref().and_then(|begun| begun.get(gpu));
                let at_begun = begun.is_some_and(is_at);
                match (is_at(target), now == previous, end) {
                    (true, _, 't' | 'e') => Ok(true),
                    (_, true, 'p' | 'e' | 'b') => Ok(false),
                    (_, _, 'b') if at_begun => Ok(true),
                    _ => Err(format!(
                        "GPU {gpu} has {now:?}; it had {previous:?}, and shall have {target:?}"
                    )),
                }
            })
            .collect()
    }
}

impl RunResult {
    /// True if it changed the hardware or tried to.
    pub(super) fn changed(&self) -> bool {
        self.calls.iter().any(|name| changes(name))
    }

    /// Its complete output.
    pub(super) fn all(&self) -> String {
        let text = [self.output.stdout.clone(), self.output.stderr.clone()].concat();
        String::from_utf8_lossy(&text).into_owned()
    }

    pub(super) fn reported(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }
}

/// A program that resets the first GPU of the machine.
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

fn scenario(gpus: &str, processes: &str) -> String {
    format!(
        "machine: crash\ndriver: 580.95.05\ncuda: \"13.0\"\ngpus: {gpus}\nprocesses: {processes}\n"
    )
}

fn faults(case: &Case, kill: Option<String>) -> String {
    let rules = case.faults.iter().map(|&rule| rule.to_owned());
    format!("[{}]\n", rules.chain(kill).collect::<Vec<_>>().join(", "))
}
