//! Settings of changing a node's devices, shared by the agent and commands.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use octavo_planner::plan::{Disruption, Policy};

/// Settings of changing devices.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Partitioning")]
pub struct EngineSettings {
    /// The most that a change may cost those who use the node
    #[arg(
        long,
        value_name = "DISRUPTION",
        env = "OCTAVO_ALLOW",
        default_value = "gpu-reset"
    )]
    allow: Allow,

    /// Where journal, history, lock and the agent's socket are
    #[arg(
        long,
        value_name = "DIR",
        env = "OCTAVO_STATE_DIR",
        default_value = "/var/lib/octavo"
    )]
    pub state_dir: PathBuf,

    /// Resets a GPU where a change of MIG mode needs it, if it is there
    #[arg(
        long,
        value_name = "PATH",
        env = "OCTAVO_NVIDIA_SMI",
        default_value = "/usr/bin/nvidia-smi"
    )]
    pub nvidia_smi: PathBuf,

    /// Reboots the node, with --allow reboot
    #[arg(
        long,
        value_name = "PATH",
        env = "OCTAVO_REBOOT_PROGRAM",
        default_value = "/usr/sbin/reboot"
    )]
    reboot_program: PathBuf,

    /// Let the kernel reset a GPU, through sysfs, where there is no nvidia-smi
    #[arg(long, env = "OCTAVO_ALLOW_SYSFS_RESET")]
    pub allow_sysfs_reset: bool,

    /// Where procfs of the node is mounted
    #[arg(
        long,
        value_name = "DIR",
        env = "OCTAVO_PROC_ROOT",
        default_value = "/proc"
    )]
    pub proc_root: PathBuf,

    /// Where the kubelet tells which pods have which devices; `none` where there is no kubelet
    ///
    /// Outside of a pod, a folder that is not there says the same. In a pod it has to be mounted: what cannot be told counts as
    /// in use.
    #[arg(
        long,
        value_name = "PATH",
        env = "OCTAVO_POD_RESOURCES",
        default_value = "/var/lib/kubelet/pod-resources/kubelet.sock"
    )]
    pod_resources: PathBuf,

    /// What kubelet says to every container: not for people
    #[arg(long, env = "KUBERNETES_SERVICE_HOST", hide = true)]
    kubernetes_service_host: Option<String>,

    /// The directory of the device plugins' sockets, if it is not beside that of `pod_resources`.
    #[arg(skip)]
    pub device_plugins: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Allow {
    /// Nothing that anybody notices
    None,
    /// Clients that have a GPU open let go of it
    ClientsBounce,
    /// A GPU is reset
    GpuReset,
    /// The node is rebooted, where a reset is needed and cannot be done, nobody uses a GPU, and it was not tried before
    Reboot,
}

impl EngineSettings {
    /// Returns which disruptions are permitted.
    pub fn policy(&self) -> Policy {
        Policy {
            max_disruption: match self.allow {
                Allow::None => Disruption::None,
                Allow::ClientsBounce => Disruption::ClientsBounce,
                Allow::GpuReset => Disruption::GpuReset,
                Allow::Reboot => Disruption::Reboot,
            },
        }
    }

    /// Returns the program that reboots the node, if that is permitted.
    pub fn reboot_program(&self) -> Option<&Path> {
        (self.allow == Allow::Reboot).then_some(&self.reboot_program)
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
            kubelet
                .unwrap_or_else(|| Path::new(""))
                .join("device-plugins")
        };
        self.device_plugins.clone().unwrap_or_else(sibling)
    }

    /// Returns whether this process runs in a pod. Source: kubelet sets `KUBERNETES_SERVICE_HOST` in every container.
    pub fn in_pod(&self) -> bool {
        self.kubernetes_service_host.is_some()
    }
}
