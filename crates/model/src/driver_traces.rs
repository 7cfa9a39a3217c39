//! Traces of accelerator drivers on a node, beside their devices.

use std::collections::{BTreeMap, BTreeSet};

/// Gathered information, or the reason why it is not available.
pub type Observed<T> = Result<T, String>;

/// Driver information in sysfs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DriverTraces {
    /// True if the directory of PCI functions is readable.
    pub has_bus: bool,
    /// Loaded kernel modules related to accelerators, with their versions if they have one.
    pub modules: BTreeMap<String, Option<String>>,
    /// Modules whose state is unknown, with the reason.
    pub unknown_modules: BTreeMap<String, String>,
    /// Numbers of the devices that the Neuron driver reports.
    pub neuron: BTreeSet<u32>,
    /// Number of nodes in KFD's topology.
    pub kfd_nodes: usize,
    /// Reason why KFD's topology is unknown.
    pub kfd_error: Option<String>,
    /// Modules available for the running kernel, loaded or not; `None` if unknown.
    pub installed: Option<AvailableModules>,
}

/// Kernel modules available for loading.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AvailableModules {
    /// File that lists them.
    pub place: String,
    /// Accelerator drivers among them.
    pub modules: BTreeSet<String>,
}

/// Control groups of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlGroups {
    /// Version of control groups.
    pub version: CgroupVersion,
    /// Manager of pods' control groups; `None` if there are no pod control groups.
    pub pods: Option<PodCgroupManager>,
    /// NVIDIA device files without a link in `/dev/char`, by which systemd finds device files.
    pub unlinked: Observed<Vec<String>>,
}

/// Version of control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupVersion {
    /// cgroup v1: one hierarchy per controller.
    One,
    /// cgroup v2: a single hierarchy.
    Two,
}

/// Manager of pods' control groups. Source: Kubernetes, "Container Runtimes", cgroup drivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodCgroupManager {
    /// systemd, on behalf of the container runtime: `kubepods.slice`.
    Systemd,
    /// The container runtime itself: `kubepods`.
    Runtime,
}

/// Names of accelerator device files relative to the device directory, such as `nvidiactl` and `dri/renderD128`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeviceFiles(pub BTreeSet<String>);
