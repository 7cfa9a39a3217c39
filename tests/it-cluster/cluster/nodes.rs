//! A complete cluster: two nodes with kubelet and containerd, on addresses of the machine. Only one can run on a
//! machine.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::{Mutex, MutexGuard};

use super::api::Api;
use super::supervisor::{Supervisor, command, directory, programs, script, setting};
use crate::time_limits::{Finish, until};

/// An API server at the service address, and the nodes node-1 and node-2.
pub(crate) struct Nodes {
    api: Api,
}

impl Nodes {
    /// The cluster shared by all tests of this process. The first call starts it, after waiting for other processes
    /// with one.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Nodes> = OnceLock::new();
        SHARED.get_or_init(Self::launch)
    }

    fn launch() -> Self {
        let programs = programs(&[
            "etcd",
            "kube-apiserver",
            "kubectl",
            "kube-controller-manager",
            "kube-scheduler",
            "kubelet",
        ]);
        let directory = directory();
        let supervisor = Supervisor::start(
            command(&directory, &programs, true)
                // Node objects without kubelet have no heartbeat.
                .arg(setting("CONTROLLER_MANAGER_FLAGS", "--node-monitor-grace-period=24h"))
                .arg(script("supervise.sh"))
                .args(["1", "2"]),
        );
        let url = "https://10.96.0.1:443".to_owned();
        Self { api: Api::new(directory, url, &programs, supervisor) }
    }

    pub(crate) fn api(&self) -> &Api {
        &self.api
    }

    /// Exclusive access, for a test that changes or observes the resources of a node.
    pub(crate) async fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::const_new(());
        ALONE.lock().await
    }

    /// Waits until no pod of an earlier test requests CPU on a node: deleted pods hold their requests until they end.
    pub(crate) fn await_free_cpu(&self, node: &str) {
        let on_node = format!("--field-selector=spec.nodeName={node}");
        let pods = || self.api.kubectl(&["get", "pods", "-A", &on_node, "-o=json"]);
        until("no pod requests CPU", pods, |list| {
            let list: Value = serde_json::from_str(list).unwrap();
            list["items"].as_array().unwrap().iter().all(|pod| {
                let ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
                let containers =
                    ["containers", "initContainers"].map(|of| pod["spec"][of].as_array());
                let mut containers = containers.into_iter().flatten().flatten();
                ended || containers.all(|one| one["resources"]["requests"]["cpu"].is_null())
            })
        });
    }

    /// Kills the kubelet of a node and restarts it; its pods continue.
    #[track_caller]
    pub(crate) fn restart_kubelet(&self, node: &str) {
        self.api.order(&format!("kubelet {node}"));
    }

    /// Creates an image from a directory, for pods of one node. Requires `imagePullPolicy: Never`.
    #[track_caller]
    pub(crate) fn image(&self, node: &str, name: &str, root: &Path, entrypoint: &[&str]) {
        let root = root.to_str().unwrap();
        let words = [&["image", node, name, root], entrypoint].concat();
        let spaced =
            words.iter().find(|word| word.contains(char::is_whitespace) || word.is_empty());
        assert_eq!(spaced, None, "a command is split at whitespace");
        self.api.order(&words.join(" "));
    }

    /// Imports an OCI archive on a node, under the name in the archive. Requires `imagePullPolicy: Never`.
    #[track_caller]
    pub(crate) fn import(&self, node: &str, archive: &Path) {
        let archive = archive.to_str().unwrap();
        assert!(
            !archive.contains(char::is_whitespace),
            "a command is split at whitespace: {archive:?}"
        );
        self.api.order(&format!("archive {node} {archive}"));
    }

    /// Adds a second name to an image of a node.
    #[track_caller]
    pub(crate) fn name(&self, node: &str, image: &str, name: &str) {
        self.api.order(&format!("name {node} {image} {name}"));
    }

    /// Directory of a node: `kubelet` is its `/var/lib/kubelet`, `octavo` its `/var/lib/octavo`.
    pub(crate) fn directory(&self, node: &str) -> PathBuf {
        self.api.directory().join("nodes").join(node)
    }

    /// The `/var/lib/kubelet` of a node with its sockets, as seen by this process.
    pub(crate) fn kubelet(&self, node: &str) -> PathBuf {
        self.directory(node).join("kubelet")
    }
}

/// A directory with programs of this machine under other names, and their libraries.
pub(crate) fn root(programs: &[(&Path, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let put = |from: &Path, to: &str| {
        let to = root.path().join(to.trim_start_matches('/'));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(from, to).unwrap();
    };
    fs::create_dir(root.path().join("tmp")).unwrap();
    for (program, name) in programs {
        put(program, name);
        let output = Command::new("ldd").arg(program).finish();
        // "libm.so.6 => /lib/libm.so.6 (0x…)", or the loader: "/lib64/ld-linux-x86-64.so.2 (0x…)"; a static program has none.
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            if let Some(library) = line.split_whitespace().find(|word| word.starts_with('/')) {
                put(Path::new(library), library);
            }
        }
    }
    root
}

/// Lets every user read and write the directory, like device files.
pub(crate) fn open_to_all(directory: &Path) {
    let all = fs::Permissions::from_mode(0o777);
    fs::set_permissions(directory, all.clone()).unwrap();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            open_to_all(&path);
        } else {
            fs::set_permissions(path, all.clone()).unwrap();
        }
    }
}
