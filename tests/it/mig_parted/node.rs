//! A simulated node for NVIDIA's mig-parted and ours.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use crate::machine::{Machine, simulator};
use crate::peer::Peer;
use crate::time_limits::Finish;

pub(crate) const PEER: Peer = Peer {
    pinned: "mig-parted",
    package: "github.com/NVIDIA/mig-parted/cmd/nvidia-mig-parted",
    version: "v0.13.1",
};

/// A machine with all files that either program reads.
pub(crate) struct Node {
    pub(crate) machine: Machine,
}

/// Output and exit code of a program.
#[derive(Debug)]
pub(crate) struct CommandResult {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl CommandResult {
    fn of(output: &Output) -> Self {
        Self {
            code: output.status.code().unwrap(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    #[track_caller]
    pub(crate) fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }

    #[track_caller]
    pub(crate) fn expect_output(self, text: &str) -> Self {
        let reported = self.err.contains(text) || self.out.contains(text);
        assert!(reported, "{text:?} is not in the output: {self:#?}");
        self
    }
}

/// MIG mode, and the count of each profile with each split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) mode: bool,
    pub(crate) instances: BTreeMap<(u32, Vec<u32>), usize>,
}

impl Node {
    pub(crate) fn new(gpus: &str) -> Self {
        Self::with_driver("570.133.20", gpus)
    }

    pub(crate) fn with_driver(driver: &str, gpus: &str) -> Self {
        let scenario = format!("machine: drop-in\ndriver: {driver}\ngpus:\n{gpus}");
        let node = Self { machine: Machine::new(&scenario) };
        node.write_proc();
        node.write_reset();
        node
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.machine.path().join(name)
    }

    /// Writes a file beside the machine and returns its path.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Our program under NVIDIA's name.
    pub(crate) fn ours(&self, arguments: &[&str]) -> CommandResult {
        CommandResult::of(&self.command(arguments).finish())
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_octavo"));
        command
            .arg0("/usr/bin/nvidia-mig-parted")
            .args(arguments)
            .env("OCTAVO_NVML_LIBRARY", self.machine.library())
            .env("OCTAVO_SYS_ROOT", self.path("sys"))
            .env("OCTAVO_PROC_ROOT", self.path("proc"))
            .env("OCTAVO_STATE_DIR", self.path("state"))
            .env("OCTAVO_POD_RESOURCES", self.path("no-kubelet/kubelet.sock"))
            .env("OCTAVO_NVIDIA_SMI", self.path("bin/nvidia-smi"))
            .current_dir(self.machine.path())
            .stdin(Stdio::null());
        command
    }

    /// NVIDIA's program in its own namespaces, because it reads `/proc/modules` and the PCI bus of the real machine.
    pub(crate) fn theirs(&self, arguments: &[&str]) -> CommandResult {
        static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
        let script = r#"
            mount --bind "$1" /sys/bus/pci/devices && shift &&
            mount --bind "$1" /proc && shift && exec "$@""#;
        let output = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"])
            .arg(self.path("sys/bus/pci/devices"))
            .arg(self.path("their-proc"))
            .arg(PROGRAM.get_or_init(|| PEER.build()))
            .args(arguments)
            .env("LD_LIBRARY_PATH", self.machine.path())
            .env("PATH", format!("{}:/usr/bin:/bin", self.path("bin").display()))
            .stdin(Stdio::null())
            .finish();
        CommandResult::of(&output)
    }

    /// The state of the GPUs.
    pub(crate) fn geometry(&self) -> Vec<Geometry> {
        let world = self.machine.world();
        let gpus = world.gpus.iter().map(|gpu| {
            let mut instances = BTreeMap::new();
            let mig = gpu.mig.as_ref();
            for instance in mig.iter().flat_map(|mig| &mig.instances) {
                let sizes = instance.compute.iter();
                let mut sizes: Vec<u32> = sizes.map(|compute| compute.placement.size).collect();
                sizes.sort_unstable();
                *instances.entry((instance.profile_id, sizes)).or_insert(0) += 1;
            }
            Geometry { mode: mig.is_some_and(|mig| mig.current), instances }
        });
        gpus.collect()
    }

    /// Existing instances by serial number, which is never reused.
    pub(crate) fn serials(&self, gpu: usize) -> Vec<u64> {
        let world = self.machine.world();
        let mig = world.gpus[gpu].mig.as_ref().unwrap();
        mig.instances.iter().map(|instance| instance.serial).collect()
    }

    /// A configuration file with one configuration, `wanted`.
    pub(crate) fn config(&self, rules: &str) -> String {
        let text = format!("version: v1\nmig-configs:\n  wanted:\n{rules}");
        self.file("config.yaml", &text)
    }

    fn write_proc(&self) {
        let root = self.path("proc");
        let write = |name: &str, text: &str| {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("devices", "Character devices:\n195 nvidia\n235 nvidia-caps\n");
        let mut minors = String::from("config 1\nmonitor 2\n");
        let mut minor = 3;
        for gpu in 0..self.machine.world().gpus.len() {
            for gi in 0..15 {
                writeln!(minors, "gpu{gpu}/gi{gi}/access {minor}").unwrap();
                minor += 1;
                for ci in 0..8 {
                    writeln!(minors, "gpu{gpu}/gi{gi}/ci{ci}/access {minor}").unwrap();
                    minor += 1;
                }
            }
        }
        write("driver/nvidia-caps/mig-minors", &minors);
        let zeros = "0 ".repeat(43);
        let stat = format!("2 (kthreadd) S 0 0 0 0 -1 2129984 {}\n", zeros.trim_end());
        write("2/stat", &stat);
        // All files that NVIDIA's program reads.
        fs::create_dir_all(self.path("their-proc")).unwrap();
        self.file("their-proc/modules", "nvidia 1 0 - Live 0x0\n");
    }

    /// A program that resets the simulated GPUs with these addresses.
    fn write_reset(&self) {
        let directory = self.path("bin");
        fs::create_dir_all(&directory).unwrap();
        let program = simulator();
        let state = self.path(nvml_sim::location::STATE_DIRECTORY);
        let script = format!(
            "#!/bin/sh\necho \"$*\" >> '{log}'\nfor gpu in $(echo \"$3\" | /usr/bin/tr , ' '); do\n  '{program}' --state '{state}' reset \"$gpu\" || exit 1\ndone\n",
            log = self.path("resets").display(),
            program = program.display(),
            state = state.display(),
        );
        let path = directory.join("nvidia-smi");
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// The addresses of each reset.
    pub(crate) fn resets(&self) -> Vec<String> {
        let reported = fs::read_to_string(self.path("resets")).unwrap_or_default();
        reported.lines().map(str::to_owned).collect()
    }

    /// A process that has this instance open, without a context that the driver lists.
    pub(crate) fn opened(&self, pid: u32, name: &str, (gpu, gi): (u32, u32)) {
        let root = self.path("proc").join(pid.to_string());
        fs::create_dir_all(root.join("fd")).unwrap();
        let zeros = "0 ".repeat(43);
        let stat = format!("{pid} ({name}) S 0 0 0 0 -1 0 {}\n", zeros.trim_end());
        fs::write(root.join("stat"), stat).unwrap();
        fs::write(root.join("cmdline"), format!("{name}\0")).unwrap();
        let minor = 3 + (gpu * 15 + gi) * 9;
        let node = format!("/nowhere/dev/nvidia-caps/nvidia-cap{minor}");
        symlink(node, root.join("fd/3")).unwrap();
    }
}
