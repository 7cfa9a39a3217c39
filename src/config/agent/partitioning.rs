//! Which layout the node shall have, and how it is put in force.

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::domain::plan::{Disruption, Policy};
use crate::domain::reconcile::Drift;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Partitioning")]
pub(super) struct PartitioningArgs {
    /// A file of layouts; without it those that are generated for this node can be named
    ///
    /// It is read again when it was replaced. An agent with neither this nor --layout changes nothing.
    #[arg(
        long,
        value_name = "FILE",
        env = "OCTAVO_LAYOUTS",
        hide_env_values = true
    )]
    layouts: Option<PathBuf>,

    /// The layout that this node shall have
    ///
    /// What is in use stays as it is until it is let go of. `octavo apply` chooses another one by hand.
    #[arg(
        long,
        value_name = "NAME",
        env = "OCTAVO_LAYOUT",
        hide_env_values = true
    )]
    layout: Option<String>,

    /// The most that a change may cost those who use the node
    #[arg(
        long,
        value_enum,
        value_name = "DISRUPTION",
        env = "OCTAVO_ALLOW",
        hide_env_values = true,
        default_value = "gpu-reset"
    )]
    allow: Allow,

    /// What is done when somebody else changed a GPU that this node's layout speaks of
    #[arg(
        long,
        value_enum,
        value_name = "POLICY",
        env = "OCTAVO_DRIFT",
        hide_env_values = true,
        default_value = "repair"
    )]
    drift: DriftName,

    /// Where the agent keeps its journal, history and socket
    #[arg(
        long,
        value_name = "DIR",
        env = "OCTAVO_STATE_DIR",
        hide_env_values = true,
        default_value = DEFAULT_STATE_DIR
    )]
    state_dir: PathBuf,

    /// Resets a GPU where a change of MIG mode needs it, if it is there
    #[arg(
        long,
        value_name = "PATH",
        env = "OCTAVO_NVIDIA_SMI",
        hide_env_values = true,
        default_value = "/usr/bin/nvidia-smi"
    )]
    nvidia_smi: PathBuf,

    /// Let the kernel reset a GPU, through sysfs, where there is no nvidia-smi
    #[arg(long, env = "OCTAVO_ALLOW_SYSFS_RESET", hide_env_values = true)]
    allow_sysfs_reset: bool,

    /// Where procfs of the node is mounted
    #[arg(
        long,
        value_name = "DIR",
        env = "OCTAVO_PROC_ROOT",
        hide_env_values = true,
        default_value = "/proc"
    )]
    proc_root: PathBuf,

    /// Where the kubelet tells which pods have which devices; not asked where there is no such socket
    #[arg(
        long,
        value_name = "PATH",
        env = "OCTAVO_POD_RESOURCES",
        hide_env_values = true,
        default_value = "/var/lib/kubelet/pod-resources/kubelet.sock"
    )]
    pod_resources: PathBuf,
}

/// Where the state directory is unless somebody says otherwise.
pub const DEFAULT_STATE_DIR: &str = "/var/lib/octavo";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Allow {
    /// Nothing that anybody notices
    None,
    /// Clients that have a GPU open let go of it
    ClientsBounce,
    /// A GPU is reset
    GpuReset,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DriftName {
    /// It is undone as far as nothing is in use
    Repair,
    /// It is left and reported
    Report,
}

/// How the node is partitioned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitioningSettings {
    layouts: Option<PathBuf>,
    layout: Option<String>,
    policy: Policy,
    drift: Drift,
    state_dir: PathBuf,
    nvidia_smi: PathBuf,
    sysfs_reset: bool,
    proc_root: PathBuf,
    pod_resources: PathBuf,
}

impl PartitioningSettings {
    /// The file of layouts, if there is one.
    pub fn layouts(&self) -> Option<&Path> {
        self.layouts.as_deref()
    }

    /// The layout that the node shall have; `None` until somebody chooses one.
    pub fn layout(&self) -> Option<&str> {
        self.layout.as_deref()
    }

    /// What may be done.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// What is done about changes by somebody else.
    pub fn drift(&self) -> Drift {
        self.drift
    }

    /// The state directory.
    pub fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    /// What resets a GPU, if it is there.
    pub fn nvidia_smi(&self) -> &Path {
        &self.nvidia_smi
    }

    /// Whether the kernel may be asked to reset a GPU.
    pub fn sysfs_reset(&self) -> bool {
        self.sysfs_reset
    }

    /// Where procfs of the node is mounted.
    pub fn proc_root(&self) -> &Path {
        &self.proc_root
    }

    /// The kubelet's socket.
    pub fn pod_resources(&self) -> &Path {
        &self.pod_resources
    }
}

impl PartitioningArgs {
    /// `None` where nothing is to be changed.
    pub(super) fn resolve(self) -> Option<PartitioningSettings> {
        if self.layouts.is_none() && self.layout.is_none() {
            return None;
        }
        Some(PartitioningSettings {
            layouts: self.layouts,
            layout: self.layout,
            policy: Policy {
                most_disruption: match self.allow {
                    Allow::None => Disruption::None,
                    Allow::ClientsBounce => Disruption::ClientsBounce,
                    Allow::GpuReset => Disruption::GpuReset,
                },
            },
            drift: match self.drift {
                DriftName::Repair => Drift::Repair,
                DriftName::Report => Drift::Report,
            },
            state_dir: self.state_dir,
            nvidia_smi: self.nvidia_smi,
            sysfs_reset: self.allow_sysfs_reset,
            proc_root: self.proc_root,
            pod_resources: self.pod_resources,
        })
    }
}
