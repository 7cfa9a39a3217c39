//! Settings of changing a node's devices, shared by the agent and commands.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use octavo_planner::plan::{Disruption, Policy};

/// Raw arguments.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Partitioning")]
pub struct EngineArgs {
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
    state_dir: PathBuf,

    /// Resets a GPU where a change of MIG mode needs it, if it is there
    #[arg(
        long,
        value_name = "PATH",
        env = "OCTAVO_NVIDIA_SMI",
        default_value = "/usr/bin/nvidia-smi"
    )]
    nvidia_smi: PathBuf,

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
    allow_sysfs_reset: bool,

    /// Where procfs of the node is mounted
    #[arg(
        long,
        value_name = "DIR",
        env = "OCTAVO_PROC_ROOT",
        default_value = "/proc"
    )]
    proc_root: PathBuf,

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

/// Settings of changing devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineSettings {
    policy: Policy,
    state_dir: PathBuf,
    nvidia_smi: PathBuf,
    reboot_program: PathBuf,
    sysfs_reset: bool,
    proc_root: PathBuf,
    pod_resources: Option<PathBuf>,
    device_plugins: PathBuf,
    in_pod: bool,
}

impl EngineSettings {
    /// Returns which disruptions are permitted.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Returns the state directory.
    pub fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    /// Returns the program that resets a GPU, if it exists.
    pub fn nvidia_smi(&self) -> &Path {
        &self.nvidia_smi
    }

    /// Returns the program that reboots the node, if that is permitted.
    pub fn reboot_program(&self) -> Option<&Path> {
        let allowed = self.policy.max_disruption >= Disruption::Reboot;
        allowed.then_some(self.reboot_program.as_path())
    }

    /// Returns whether a GPU may be reset through sysfs.
    pub fn sysfs_reset(&self) -> bool {
        self.sysfs_reset
    }

    /// Returns the mount point of the node's procfs.
    pub fn proc_root(&self) -> &Path {
        &self.proc_root
    }

    /// Returns kubelet's socket; `None` if there is no kubelet.
    pub fn pod_resources(&self) -> Option<&Path> {
        self.pod_resources.as_deref()
    }

    /// Returns the directory of the device plugins' sockets and of kubelet's checkpoint.
    pub fn device_plugins(&self) -> &Path {
        &self.device_plugins
    }

    /// Sets the directory of the device plugins' sockets to `folder`.
    #[must_use]
    pub fn with_device_plugins(self, folder: &Path) -> Self {
        Self {
            device_plugins: folder.to_owned(),
            ..self
        }
    }

    /// Returns whether this process runs in a pod. Source: kubelet sets `KUBERNETES_SERVICE_HOST` in every container.
    pub fn in_pod(&self) -> bool {
        self.in_pod
    }
}

impl From<EngineArgs> for EngineSettings {
    fn from(args: EngineArgs) -> Self {
        // Both directories are kubelet's, and are siblings.
        let kubelets = args.pod_resources.parent().and_then(Path::parent);
        Self {
            device_plugins: kubelets
                .unwrap_or_else(|| Path::new(""))
                .join("device-plugins"),
            policy: Policy {
                max_disruption: match args.allow {
                    Allow::None => Disruption::None,
                    Allow::ClientsBounce => Disruption::ClientsBounce,
                    Allow::GpuReset => Disruption::GpuReset,
                    Allow::Reboot => Disruption::Reboot,
                },
            },
            state_dir: args.state_dir,
            nvidia_smi: args.nvidia_smi,
            reboot_program: args.reboot_program,
            sysfs_reset: args.allow_sysfs_reset,
            proc_root: args.proc_root,
            pod_resources: Some(args.pod_resources).filter(|path| path != Path::new("none")),
            in_pod: args.kubernetes_service_host.is_some(),
        }
    }
}
