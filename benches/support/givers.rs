//! A simulated machine with a kubelet, and who gives its devices out: our agent, or NVIDIA's device plugin.

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
use crate::simulated;

const PEER: Peer = Peer {
    pinned: "device-plugin",
    package: "github.com/NVIDIA/k8s-device-plugin/cmd/nvidia-device-plugin",
    version: "v0.19.1",
};
/// What is shared, in our words: whole GPUs, not partitions.
const LAYOUT: &str = "apiVersion: octavo.dev/v1\nkind: Layouts\nlayouts:\n  wanted: [{devices: all, timeSlicing: {replicas: 3}}]\n";
/// And in NVIDIA's.
const CONFIG: &str = "version: v1\nflags: {migStrategy: mixed}\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 3}]}}\n";
/// Longer than anything takes on a loaded machine.
const TIME_LIMIT: Duration = Duration::from_mins(1);

/// A machine with a kubelet.
pub(crate) struct Rig {
    // Dropped before the directory that it has files in.
    pub(crate) kubelet: Kubelet,
    machine: TempDir,
    is_split: bool,
}

/// Who gives devices out.
pub(crate) enum PluginKind<'a> {
    /// Our agent with these arguments.
    Ours(&'a [&'a str]),
    /// NVIDIA's plugin, which is this program.
    Theirs(&'a PathBuf),
}

/// A program; killed when dropped.
pub(crate) struct Program {
    child: Child,
    lines: Receiver<String>,
}

/// NVIDIA's device plugin, built once, where it can be run.
pub(crate) fn peer() -> Option<PathBuf> {
    let namespace = Command::new("unshare").args(["-m", "true"]).output();
    let is_allowed = namespace.is_ok_and(|output| output.status.success());
    is_allowed.then(|| PEER.build())
}

impl PluginKind<'_> {
    /// Whether kubelet gets anything from it.
    pub(crate) fn gives(&self) -> bool {
        match self {
            Self::Ours(arguments) => arguments.contains(&"--sharing=embedded"),
            Self::Theirs(_) => true,
        }
    }
}

impl Rig {
    pub(crate) fn new(gpus: &str) -> Self {
        let scenario = format!("machine: bench\nlinks: nvswitch\nlatency: null\ngpus:\n- {gpus}\n");
        let machine = simulated::directory("sharing", &scenario);
        let path = machine.path();
        fs::create_dir(path.join("proc")).unwrap();
        let devices = "Character devices:\n  1 mem\n\nBlock devices:\n  8 sd\n";
        fs::write(path.join("proc/devices"), devices).unwrap();
        fs::write(path.join("layouts.yaml"), LAYOUT).unwrap();
        fs::write(path.join("plugin.yaml"), CONFIG).unwrap();
        prepare_for_peer(path);
        Self {
            kubelet: Kubelet::start(&directory(path), &path.join("kubelet/kubelet.sock")),
            is_split: gpus.contains("instances"),
            machine,
        }
    }

    /// Where kubelet and plugins meet.
    pub(crate) fn directory(&self) -> PathBuf {
        directory(self.machine.path())
    }

    /// Something happens to the machine.
    pub(crate) fn change(&self, what: impl FnOnce(&mut World) -> Result<(), Code>) {
        let store = Store::at(&self.machine.path().join(STATE_DIRECTORY));
        store.change(what).unwrap().unwrap();
    }

    /// Every share gets a pod.
    pub(crate) fn fill(&self, resource: &str, count: usize) {
        for pod in 0..count {
            let name = format!("pod-{pod}");
            self.kubelet.admit(&name, resource, 1).unwrap();
        }
    }

    pub(crate) fn start(&self, plugin_kind: &PluginKind<'_>) -> Program {
        match plugin_kind {
            PluginKind::Ours(arguments) => self.ours(arguments),
            PluginKind::Theirs(program) => self.theirs(program),
        }
    }

    /// Partitions are advertised as they are, and whole GPUs are shared by the layout.
    fn ours(&self, arguments: &[&str]) -> Program {
        let path = self.machine.path();
        let mut command = Command::new(env!("CARGO_BIN_EXE_octavo-agent"));
        for (flag, file) in [
            ("--nvml-library", simulated::LIBRARY),
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
        if !self.is_split {
            command.arg("--layouts").arg(path.join("layouts.yaml")).arg("--layout=wanted");
        }
        Program::start(command)
    }

    /// In a namespace where this machine's folders are those that are part of the program.
    fn theirs(&self, program: &Path) -> Program {
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
            // With a whole path its gRPC names a host that has slashes, which our kubelet's does not take.
            .args(["--kubelet-socket", "kubelet.sock"])
            .env("LD_LIBRARY_PATH", path);
        Program::start(command)
    }
}

/// NVIDIA's plugin has `/var/lib/kubelet/device-plugins` in it.
fn directory(machine: &Path) -> PathBuf {
    machine.join("lib/kubelet/device-plugins")
}

/// What NVIDIA's plugin reads of the kernel: the table of what partitions are, as device nodes.
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
        let (say, lines) = channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // No listener stays for long, and it must never wait for us.
                let _no_listener = say.send(line);
            }
        });
        Self { child, lines }
    }

    /// Where an agent says that its metrics are.
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

    /// NVIDIA's plugin starts all over on this signal.
    pub(crate) fn hang_up(&self) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        kill(pid, Signal::SIGHUP).unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _gone_already = self.child.wait();
    }
}
