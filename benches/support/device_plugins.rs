//! A simulated machine with a test kubelet and a device plugin: the agent, or NVIDIA's plugin.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use std::{fs, thread};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nvml_sim::location::STATE_DIRECTORY;
use nvml_sim::model::{Code, World};
use nvml_sim::store::Store;
use tempfile::TempDir;

use crate::peer::Peer;
use crate::sharing::kubelet::Kubelet;
use crate::simulated_machine;

const PEER: Peer = Peer {
    pinned: "device-plugin",
    package: "github.com/NVIDIA/k8s-device-plugin/cmd/nvidia-device-plugin",
    version: "v0.19.1",
};
/// Time-slicing of whole GPUs as a layout.
const LAYOUT: &str = "apiVersion: octavo.dev/v1\nkind: Layouts\nlayouts:\n  wanted: [{devices: all, timeSlicing: {replicas: 3}}]\n";
/// The same as configuration of NVIDIA's plugin.
const CONFIG: &str = "version: v1\nflags: {migStrategy: mixed}\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 3}]}}\n";
/// Maximum time for a log line.
const TIME_LIMIT: Duration = Duration::from_mins(1);

/// A simulated machine with a test kubelet.
pub(crate) struct Rig {
    // Dropped before the directory, which contains its files.
    pub(crate) kubelet: Kubelet,
    machine: TempDir,
    is_partitioned: bool,
}

/// Program that allocates devices.
pub(crate) enum PluginKind<'a> {
    /// The agent, with these arguments.
    Octavo(&'a [&'a str]),
    /// NVIDIA's plugin, with the path of its program.
    Nvidia(&'a PathBuf),
}

/// A running program; killed when dropped.
pub(crate) struct Program {
    child: Child,
    lines: Receiver<String>,
}

/// Builds NVIDIA's device plugin, unless it is built already. Returns `None` if this user cannot mount.
pub(crate) fn peer() -> Option<PathBuf> {
    let namespace = Command::new("unshare").args(["-m", "true"]).output();
    let is_allowed = namespace.is_ok_and(|output| output.status.success());
    is_allowed.then(|| PEER.build())
}

impl PluginKind<'_> {
    /// Returns `true` if the program registers with the kubelet.
    pub(crate) fn is_device_plugin(&self) -> bool {
        match self {
            Self::Octavo(arguments) => arguments.contains(&"--sharing=embedded"),
            Self::Nvidia(_) => true,
        }
    }
}

impl Rig {
    pub(crate) fn new(gpus: &str) -> Self {
        let scenario = format!("machine: bench\nlinks: nvswitch\nlatency: null\ngpus:\n- {gpus}\n");
        let machine = simulated_machine::directory("sharing", &scenario);
        let path = machine.path();
        fs::create_dir(path.join("proc")).unwrap();
        let devices = "Character devices:\n  1 mem\n\nBlock devices:\n  8 sd\n";
        fs::write(path.join("proc/devices"), devices).unwrap();
        fs::write(path.join("layouts.yaml"), LAYOUT).unwrap();
        fs::write(path.join("plugin.yaml"), CONFIG).unwrap();
        prepare_for_peer(path);
        Self {
            kubelet: Kubelet::start(&directory(path), &path.join("kubelet/kubelet.sock")),
            is_partitioned: gpus.contains("instances"),
            machine,
        }
    }

    /// Returns the directory of the plugins' sockets.
    pub(crate) fn directory(&self) -> PathBuf {
        directory(self.machine.path())
    }

    /// Changes the hardware.
    pub(crate) fn change(&self, change: impl FnOnce(&mut World) -> Result<(), Code>) {
        let store = Store::at(&self.machine.path().join(STATE_DIRECTORY));
        store.change(change).unwrap().unwrap();
    }

    /// Allocates each of `count` devices to its own pod.
    pub(crate) fn fill(&self, resource: &str, count: usize) {
        for pod in 0..count {
            let name = format!("pod-{pod}");
            self.kubelet.admit(&name, resource, 1).unwrap();
        }
    }

    pub(crate) fn start(&self, kind: &PluginKind<'_>) -> Program {
        match kind {
            PluginKind::Octavo(arguments) => self.start_agent(arguments),
            PluginKind::Nvidia(program) => self.start_nvidia(program),
        }
    }

    /// Starts the agent. On a machine without partitions, it applies the layout with time-slicing.
    fn start_agent(&self, arguments: &[&str]) -> Program {
        let path = self.machine.path();
        let mut command = Command::new(env!("CARGO_BIN_EXE_octavo-agent"));
        for (flag, file) in [
            ("--nvml-library", simulated_machine::LIBRARY),
            ("--sys-root", "sys"),
            ("--proc-root", "proc"),
            ("--state-dir", "state"),
            ("--pod-resources", "kubelet/kubelet.sock"),
        ] {
            command.arg(flag).arg(path.join(file));
        }
        command
            .arg("--device-plugins")
            .arg(self.directory())
            .args(["--mig-strategy=mixed", "--metrics-listen=127.0.0.1:0"])
            .args(arguments);
        if !self.is_partitioned {
            command.arg("--layouts").arg(path.join("layouts.yaml")).arg("--layout=wanted");
        }
        Program::start(command)
    }

    /// Starts NVIDIA's plugin in a mount namespace with this machine's directories at the paths that are compiled into it.
    fn start_nvidia(&self, program: &Path) -> Program {
        const SCRIPT: &str = "cd \"$1\" && shift && mount --rbind /proc peer/real && mount --rbind peer /proc \
                              && mount --bind lib /var/lib && cd /var/lib/kubelet/device-plugins && exec \"$@\"";
        let path = self.machine.path();
        let mut command = Command::new("unshare");
        command
            .args(["-m", "sh", "-c", SCRIPT, "sh"])
            .arg(path)
            .arg(program)
            .arg("--config-file")
            .arg(path.join("plugin.yaml"))
            // With an absolute path, the gRPC authority contains slashes, which the test kubelet rejects.
            .args(["--kubelet-socket", "kubelet.sock"])
            .env("LD_LIBRARY_PATH", path);
        Program::start(command)
    }
}

/// Returns the directory that becomes `/var/lib/kubelet/device-plugins`, which is compiled into NVIDIA's plugin.
fn directory(machine: &Path) -> PathBuf {
    machine.join("lib/kubelet/device-plugins")
}

/// Creates the table of MIG device nodes that NVIDIA's plugin reads from `/proc`.
fn prepare_for_peer(machine: &Path) {
    fs::create_dir_all(machine.join("peer/real")).unwrap();
    std::os::unix::fs::symlink("real/self", machine.join("peer/self")).unwrap();
    let mut table = vec!["config 1".to_owned(), "monitor 2".to_owned()];
    for gpu in 0..8 {
        for instance in 0..15 {
            let minor = table.len() + 1;
            table.push(format!("gpu{gpu}/gi{instance}/access {minor}"));
            table.push(format!("gpu{gpu}/gi{instance}/ci0/access {}", minor + 1));
        }
    }
    fs::create_dir_all(machine.join("peer/driver/nvidia-caps")).unwrap();
    fs::write(machine.join("peer/driver/nvidia-caps/mig-minors"), table.join("\n")).unwrap();
}

impl Program {
    fn start(mut command: Command) -> Self {
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // Lines are read even without a receiver, so that the process never blocks on a full pipe.
                let _no_receiver = sender.send(line);
            }
        });
        Self { child, lines }
    }

    /// Returns the address of the metrics, from the log of the agent.
    pub(crate) fn metrics(&mut self) -> SocketAddr {
        loop {
            let line = self.lines.recv_timeout(TIME_LIMIT).unwrap();
            if let Some((_, address)) = line.split_once("serving metrics address=") {
                return address.trim().parse().unwrap();
            }
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGHUP, on which NVIDIA's plugin restarts all its servers.
    pub(crate) fn hang_up(&self) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        kill(pid, Signal::SIGHUP).unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _already_exited = self.child.kill();
        let _already_exited = self.child.wait();
    }
}
