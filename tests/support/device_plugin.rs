//! A machine with a kubelet, to which the agent offers the devices that it shares.

use std::fs;
use std::path::PathBuf;

use crate::kubelet::Kubelet;
use crate::node::Node;
use crate::process::Program;
use crate::record;

pub(crate) const GPU: &str = "nvidia.com/gpu";

/// A machine with a kubelet.
pub(crate) struct Rig {
    // Before the machine, which it has files of.
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

    /// Where kubelet and plugins meet.
    pub(crate) fn directory(&self) -> PathBuf {
        self.node.machine.path().join("plugins")
    }

    /// The pod's sandbox runs, as the process of this number.
    pub(crate) fn runs(&self, pid: u32, pod: &str) {
        record::runs(&self.node.machine.path().join("proc"), pid, pod);
    }

    /// And has ended.
    pub(crate) fn dies(&self, pid: u32) {
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

/// A layout that shares every GPU so often.
pub(crate) fn shared(replicas: u32) -> String {
    format!("[{{devices: all, timeSlicing: {{replicas: {replicas}}}}}]")
}
