//! Settings of `octavo validate` and `octavo pod-devices`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum, ValueHint};
use octavo_kube::client::ClusterSelection;
use octavo_settings::duration;
use octavo_settings::hardware::HardwareSettings;

/// Format of the printed validations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ValidateFormat {
    /// A line for each step, with remedies
    Table,
    /// All results as JSON
    Json,
    /// YAML
    Yaml,
}

/// Settings of `octavo validate`.
#[derive(Debug, Clone, Args)]
pub struct ValidateSettings {
    /// Nodes to validate
    #[arg(value_name = "NODE", required_unless_present = "selector")]
    pub nodes: Vec<String>,

    /// Validate the nodes with these labels, for example those of a pool
    #[arg(short = 'l', long, value_name = "SELECTOR", conflicts_with = "nodes")]
    pub selector: Option<String>,

    /// Validate only this resource; repeat for several [default: all accelerator resources of each node]
    #[arg(long = "resource", value_name = "NAME")]
    pub resources: Vec<String>,

    /// Namespace of the pods [default: the namespace of the agents]
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,

    /// Image with the command octavo [default: the image of the agent on the node]
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,

    /// RuntimeClass of pods with NVIDIA's devices; "" for none [default: that of the agent on the node]
    #[arg(long, value_name = "NAME")]
    pub runtime_class: Option<String>,

    /// Time limit of each pod, from its creation to its result
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "3m",
        value_parser = duration::positive
    )]
    pub timeout: Duration,

    /// Print the pods as YAML, and create none
    #[arg(long)]
    pub dry_run: bool,

    /// Output format
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "table")]
    pub format: ValidateFormat,

    /// Kubeconfig of the cluster [default: KUBECONFIG, ~/.kube/config, or the pod's account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig [default: the current context]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

impl ValidateSettings {
    /// Returns the cluster and the user that kubectl would select.
    pub fn cluster(&self) -> ClusterSelection {
        ClusterSelection { kubeconfig: self.kubeconfig.clone(), context: self.context.clone() }
    }
}

/// Settings of `octavo pod-devices`.
#[derive(Debug, Clone, Args)]
pub struct PodDevicesSettings {
    /// Write to this existing file, instead of standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub output_file: Option<PathBuf>,

    /// Directory of device files
    #[arg(long, value_name = "DIR", env = "OCTAVO_DEV_ROOT", default_value = "/dev")]
    pub dev_root: PathBuf,

    /// Set by NVIDIA's device plugin; not for users
    #[arg(long, env = "NVIDIA_VISIBLE_DEVICES", hide = true)]
    pub nvidia_visible_devices: Option<String>,

    /// Set by the Neuron device plugin; not for users
    #[arg(long, env = "NEURON_RT_VISIBLE_CORES", hide = true)]
    pub neuron_rt_visible_cores: Option<String>,

    /// Paths of the hardware.
    #[command(flatten)]
    pub hardware: HardwareSettings,
}
