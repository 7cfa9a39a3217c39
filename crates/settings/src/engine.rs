//! Settings of changing a node's devices, shared by the agent and commands.

use std::path::{Path, PathBuf};

use octavo_planner::plan::{Disruption, Policy};

use octavo_toolkit::choice::{Choice, choice};

/// Disruptions that a change may cause.
const DISRUPTIONS: &[Choice<Disruption>] = &[
    ("none", "No disruption of running workloads", Disruption::None),
    ("clients-bounce", "Clients that have a GPU open must close it", Disruption::ClientsBounce),
    ("gpu-reset", "GPUs can be reset", Disruption::GpuReset),
    (
        "reboot",
        "The node can be rebooted once, if a required reset is impossible and no GPU is in use",
        Disruption::Reboot,
    ),
];

/// Settings of changing devices.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Partitioning")]
pub struct EngineSettings {
    /// Maximum disruption that a change can cause
    #[arg(
        long,
        value_name = "LEVEL",
        env = "OCTAVO_ALLOW",
        default_value = "gpu-reset",
        value_parser = choice(DISRUPTIONS)
    )]
    allow: Disruption,

    /// Directory of journal, history, lock and the agent's socket
    #[arg(long, value_name = "DIR", env = "OCTAVO_STATE_DIR", default_value = "/var/lib/octavo")]
    pub state_dir: PathBuf,

    /// Program that resets a GPU if a change of MIG mode needs it; optional
    #[arg(
        long,
        value_name = "PATH",
        env = "OCTAVO_NVIDIA_SMI",
        default_value = "/usr/bin/nvidia-smi"
    )]
    pub nvidia_smi: PathBuf,

    /// Program that reboots the node, for --allow reboot
    #[arg(
        long,
        value_name = "PATH",
        env = "OCTAVO_REBOOT_PROGRAM",
        default_value = "/usr/sbin/reboot"
    )]
    reboot_program: PathBuf,

    /// Reset GPUs through sysfs if nvidia-smi does not exist
    #[arg(long, env = "OCTAVO_ALLOW_SYSFS_RESET")]
    pub allow_sysfs_reset: bool,

    /// Mount point of the node's procfs
    #[arg(long, value_name = "DIR", env = "OCTAVO_PROC_ROOT", default_value = "/proc")]
    pub proc_root: PathBuf,

    /// Directory of the kubelet's PodResources socket; `none` without a kubelet
    ///
    /// Outside a pod, a missing directory means the same as `none`. In a pod, mount the directory: devices with
    /// unknown allocations count as in use.
    #[arg(
        long,
        value_name = "PATH",
        env = "OCTAVO_POD_RESOURCES",
        default_value = "/var/lib/kubelet/pod-resources/kubelet.sock"
    )]
    pod_resources: PathBuf,

    /// Set by the kubelet in every container; not for users
    #[arg(long, env = "KUBERNETES_SERVICE_HOST", hide = true)]
    kubernetes_service_host: Option<String>,

    /// The directory of the device plugins' sockets, if it is not beside that of `pod_resources`.
    #[arg(skip)]
    pub device_plugins: Option<PathBuf>,
}

impl EngineSettings {
    /// Returns which disruptions are permitted.
    pub fn policy(&self) -> Policy {
        Policy { max_disruption: self.allow }
    }

    /// Returns the program that reboots the node, if that is permitted.
    pub fn reboot_program(&self) -> Option<&Path> {
        (self.allow == Disruption::Reboot).then_some(&self.reboot_program)
    }

    /// Returns kubelet's socket; `None` if there is no kubelet.
    pub fn pod_resources(&self) -> Option<&Path> {
        Some(self.pod_resources.as_path()).filter(|path| *path != Path::new("none"))
    }

    /// Returns the directory of the device plugins' sockets and of kubelet's checkpoint.
    pub fn device_plugins(&self) -> PathBuf {
        // Both directories are kubelet's, and are siblings.
        let sibling = || {
            let kubelet = self.pod_resources.parent().and_then(Path::parent);
            kubelet.unwrap_or_else(|| Path::new("")).join("device-plugins")
        };
        self.device_plugins.clone().unwrap_or_else(sibling)
    }

    /// Returns whether this process runs in a pod. Source: kubelet sets `KUBERNETES_SERVICE_HOST` in every container.
    pub fn in_pod(&self) -> bool {
        self.kubernetes_service_host.is_some()
    }
}
