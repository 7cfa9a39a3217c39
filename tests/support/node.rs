//! A machine with its own state directory.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use crate::machine::{Machine, simulator};
use crate::process::Program;
use crate::time_limits::{Finish, until};

const AGENT: &str = env!("CARGO_BIN_EXE_octavo-agent");
const OCTAVO: &str = env!("CARGO_BIN_EXE_octavo");

/// A machine with the state of the programs.
pub(crate) struct Node {
    pub(crate) machine: Machine,
}

/// Profile name and first slice of every GPU instance, by placement; one without a compute instance has a `!`.
pub(crate) type Geometry = Vec<(String, u32)>;

impl Node {
    pub(crate) fn new(gpus: &str) -> Self {
        let machine = Machine::new(&format!("machine: node\ngpus:\n{gpus}"));
        // No kernel driver is loaded, whatever machine runs the tests.
        fs::create_dir(machine.path().join("proc")).unwrap();
        let devices = "Character devices:\n  1 mem\n\nBlock devices:\n  8 sd\n";
        fs::write(machine.path().join("proc/devices"), devices).unwrap();
        Self { machine }
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.machine.path().join("state")
    }

    /// Path of the kubelet's socket.
    pub(crate) fn kubelet(&self) -> PathBuf {
        self.machine.path().join("kubelet/kubelet.sock")
    }

    /// A program with all paths of this machine.
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
        // With --dra, the agent opens sockets below it.
        command.env("OCTAVO_KUBELET_DIR", self.machine.path().join("kubelet-dir"));
        command.args(arguments);
        command
    }

    /// Applies a layout once where possible and returns the log.
    #[track_caller]
    pub(crate) fn apply_once(&self, layout: &str) -> String {
        let output = self.agent(&["--oneshot", "--layout", layout]).finish();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// The same for a layout that fails with exit code 1.
    #[track_caller]
    pub(crate) fn apply_once_failing(&self, layout: &str) -> String {
        let output = self.agent(&["--oneshot", "--layout", layout]).finish();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// A running agent.
    pub(crate) fn start(&self, arguments: &[&str]) -> Program {
        Program::start(&mut self.agent(arguments))
    }

    /// Runs an `octavo` command that changes the node.
    pub(crate) fn octavo(&self, command: &[&str]) -> Output {
        self.command(command).finish()
    }

    /// The same, not started.
    pub(crate) fn command(&self, command: &[&str]) -> Command {
        self.program(OCTAVO, command)
    }

    /// Runs an `octavo` command that only reads the node.
    pub(crate) fn run_read_only(&self, command: &[&str]) -> Output {
        let mut program = Command::new(OCTAVO);
        program
            .args(command)
            .arg("--nvml-library")
            .arg(self.machine.library())
            .arg("--sys-root")
            .arg(self.machine.path().join("sys"));
        program.finish()
    }

    /// A layout file with the layout `wanted`.
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

    /// The instances of the GPU.
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
    pub(crate) fn await_geometry(&self, gpu: usize, wanted: &[&str]) {
        let what = format!("{wanted:?} on GPU {gpu}");
        until(&what, || self.geometry(gpu), |now| names(now) == wanted);
    }

    /// Whether the current MIG mode of the GPU is enabled.
    pub(crate) fn is_partitioned(&self, gpu: usize) -> bool {
        let world = self.machine.world();
        world.gpus[gpu].mig.as_ref().is_some_and(|mig| mig.current)
    }

    /// Replaces the first instance of GPU 0 by another one.
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

    /// True if no journal is left.
    pub(crate) fn is_clear(&self) -> bool {
        !self.state().join("journal").exists()
    }
}

/// Names without slices.
pub(crate) fn names(geometry: &Geometry) -> Vec<&str> {
    geometry.iter().map(|(name, _)| name.as_str()).collect()
}
