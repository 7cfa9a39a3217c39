//! A machine with a state directory of its own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use crate::machine::{Machine, simulator};
use crate::process::Program;
use crate::time_limits::{Finish, until};

const AGENT: &str = env!("CARGO_BIN_EXE_octavo-agent");
const OCTAVO: &str = env!("CARGO_BIN_EXE_octavo");

/// A machine, and what our programs keep of it.
pub(crate) struct Node {
    pub(crate) machine: Machine,
}

/// Profile name and first slice of every GPU instance of a GPU, by place; one without a compute instance has a `!`.
pub(crate) type Geometry = Vec<(String, u32)>;

impl Node {
    pub(crate) fn new(gpus: &str) -> Self {
        let machine = Machine::new(&format!("machine: node\ngpus:\n{gpus}"));
        // No kernel driver is loaded here as far as this says, whatever machine the tests run on.
        fs::create_dir(machine.path().join("proc")).unwrap();
        let devices = "Character devices:\n  1 mem\n\nBlock devices:\n  8 sd\n";
        fs::write(machine.path().join("proc/devices"), devices).unwrap();
        Self { machine }
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.machine.path().join("state")
    }

    /// Where a kubelet would listen.
    pub(crate) fn kubelet(&self) -> PathBuf {
        self.machine.path().join("kubelet/kubelet.sock")
    }

    /// A program of ours with everything it needs to know of this machine.
    fn program(&self, name: &str, first: &[&str]) -> Command {
        let path = self.machine.path();
        let mut command = Command::new(name);
        command
            .args(first)
            .arg("--nvml-library")
            .arg(self.machine.library())
            .arg("--sys-root")
            .arg(path.join("sys"))
            .arg("--state-dir")
            .arg(self.state())
            .arg("--proc-root")
            .arg(path.join("proc"))
            .arg("--pod-resources")
            .arg(self.kubelet())
            .arg("--nvidia-smi")
            .arg(path.join("nvidia-smi"));
        command
    }

    /// The agent with these arguments.
    pub(crate) fn agent(&self, arguments: &[&str]) -> Command {
        let mut command = self.program(AGENT, &[]);
        command.args(arguments);
        command
    }

    /// Gives the node a layout once, as far as that is possible now; what the agent said.
    #[track_caller]
    pub(crate) fn once(&self, layout: &str) -> String {
        let output = self.agent(&["--oneshot", "--layout", layout]).finish();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// The same for a layout that fails: the exit code is 1.
    #[track_caller]
    pub(crate) fn once_failing(&self, layout: &str) -> String {
        let output = self.agent(&["--oneshot", "--layout", layout]).finish();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// An agent that goes on.
    pub(crate) fn start(&self, arguments: &[&str]) -> Program {
        Program::start(&mut self.agent(arguments))
    }

    /// A command of `octavo` that changes the node.
    pub(crate) fn octavo(&self, command: &[&str]) -> Output {
        self.command(command).finish()
    }

    /// The same, not started yet.
    pub(crate) fn command(&self, command: &[&str]) -> Command {
        self.program(OCTAVO, command)
    }

    /// A command of `octavo` that only reads the node.
    pub(crate) fn reads(&self, command: &[&str]) -> Output {
        let mut program = Command::new(OCTAVO);
        program
            .args(command)
            .arg("--nvml-library")
            .arg(self.machine.library())
            .arg("--sys-root")
            .arg(self.machine.path().join("sys"));
        program.finish()
    }

    /// A file of layouts of which one is called `wanted`.
    pub(crate) fn layouts(&self, rules: &str) -> String {
        let path = self.machine.path().join("layouts.yaml");
        let text =
            format!("apiVersion: octavo.dev/v1\nkind: Layouts\nlayouts:\n  wanted: {rules}\n");
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// A program that resets the first GPU.
    pub(crate) fn install_nvidia_smi(&self) {
        let path = self.machine.path();
        let text = format!(
            "#!/bin/sh\nexec '{}' --state '{}' reset 0\n",
            simulator().display(),
            path.join("nvml-sim.state").display()
        );
        fs::write(path.join("nvidia-smi"), text).unwrap();
        fs::set_permissions(path.join("nvidia-smi"), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// What the GPU really has.
    pub(crate) fn geometry(&self, gpu: usize) -> Geometry {
        let world = self.machine.world();
        let gpu = &world.gpus[gpu];
        let mut all: Geometry = gpu
            .mig
            .iter()
            .flat_map(|mig| &mig.instances)
            .map(|one| {
                let profile = gpu.profiles.iter().find(|known| known.id == one.profile_id);
                let mark = if one.compute.is_empty() { "!" } else { "" };
                (format!("{}{mark}", profile.unwrap().name), one.placement.start)
            })
            .collect();
        all.sort_by_key(|one| one.1);
        all
    }

    /// Waits until the GPU has these instances.
    #[track_caller]
    pub(crate) fn settles(&self, gpu: usize, wanted: &[&str]) {
        let what = format!("{wanted:?} on GPU {gpu}");
        until(&what, || self.geometry(gpu), |now| names(now) == wanted);
    }

    /// Whether the current MIG mode of the GPU is enabled.
    pub(crate) fn is_partitioned(&self, gpu: usize) -> bool {
        let world = self.machine.world();
        world.gpus[gpu].mig.as_ref().is_some_and(|mig| mig.current)
    }

    /// Instead of the first instance of GPU 0 there is another one.
    pub(crate) fn is_changed_by_another_process(&self) {
        self.machine.change(|world| {
            let slot = world.slot_of_index(0).unwrap();
            world.destroy_ci(slot, 0, 0)?;
            world.destroy_gi(slot, 0)?;
            // Profile 19 is 1g.5gb, and 0 its only compute instance.
            let gi = world.create_gi(slot, 19, None)?;
            world.create_ci(slot, gi, 0, None)
        });
    }

    /// Whether nothing is left of what was begun.
    pub(crate) fn is_clear(&self) -> bool {
        !self.state().join("journal").exists()
    }
}

/// Names alone.
pub(crate) fn names(geometry: &Geometry) -> Vec<&str> {
    geometry.iter().map(|(name, _)| name.as_str()).collect()
}
