//! A machine with a kubelet whose device plugin is the agent.

use std::fs;
use std::path::PathBuf;

use crate::kubelet::Kubelet;
use crate::node::Node;
use crate::process::Program;
use crate::record;

pub(crate) const GPU: &str = "nvidia.com/gpu";

/// A machine with a kubelet.
pub(crate) struct Rig {
    // Dropped before the machine, whose files it uses.
    pub(crate) kubelet: Kubelet,
    pub(crate) node: Node,
}

impl Rig {
    pub(crate) fn new(gpus: &str) -> Self {
        let node = Node::new(gpus);
        let directory = node.machine.path().join("plugins");
        record::show_all(&node.machine.path().join("proc"));
        Self { kubelet: Kubelet::start(&directory, &node.kubelet()), node }
    }

    /// Directory of the plugin sockets.
    pub(crate) fn directory(&self) -> PathBuf {
        self.node.machine.path().join("plugins")
    }

    /// Adds a process of the pod's sandbox.
    pub(crate) fn add_process(&self, pid: u32, pod: &str) {
        record::add_process(&self.node.machine.path().join("proc"), pid, pod);
    }

    /// Removes a process.
    pub(crate) fn remove_process(&self, pid: u32) {
        let directory = self.node.machine.path().join(format!("proc/{pid}"));
        fs::remove_dir_all(directory).unwrap();
    }

    /// The agent, which advertises what the layout `wanted` requires.
    pub(crate) fn agent(&self, rules: &str, more: &[&str]) -> Program {
        let layouts = self.node.layouts(rules);
        let directory = self.directory().display().to_string();
        let mut arguments = vec![
            "--sharing=embedded",
            "--interval=500ms",
            "--layouts",
            &layouts,
            "--layout=wanted",
            "--device-plugins",
            &directory,
        ];
        arguments.extend(more);
        self.node.start(&arguments)
    }

    /// UUID of a GPU.
    pub(crate) fn uuid(&self, gpu: usize) -> String {
        self.node.machine.world().gpus[gpu].uuid.clone()
    }

    /// Ids of the replicas of a GPU.
    pub(crate) fn replicas(&self, gpu: usize, numbers: &[u32]) -> Vec<String> {
        let uuid = self.uuid(gpu);
        let ids = numbers.iter().map(|number| format!("{uuid}::{number}"));
        ids.collect()
    }
}

/// A layout with this many replicas of every GPU.
pub(crate) fn shared(replicas: u32) -> String {
    format!("[{{devices: all, timeSlicing: {{replicas: {replicas}}}}}]")
}
