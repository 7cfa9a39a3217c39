//! Settings of `octavo profiles`.

use std::env;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use octavo_fleet::hardware_profile::CountOverride;

use super::fleet::OutputOptions;
use super::server::ServerSettings;

pub(super) const EXAMPLES: &str = "\
Examples:
  # Which profiles are there, for which type, and how many more workloads of each fit now?
  octavo profiles list

  # The same, and what changes from now on
  octavo profiles list --watch

  # Where does one really go, and what is wrong with it?
  octavo profiles show large-gpu

  # In a pipeline: fail when a profile has something wrong with it
  octavo profiles check

  # A profile for a type, looked at, checked by the API server, and made
  octavo profiles create --type nvidia-h200-141gb --dry-run=client
  octavo profiles create --type nvidia-h200-141gb --dry-run=server
  octavo profiles create --type nvidia-h200-141gb --display-name \"Premium GPU\" --reason \"team vision\"

  # From nodes, under a name of your own
  octavo profiles create --from-nodes gpu-07,gpu-08 --name premium --namespace opendatahub

  # With other counts than the nodes suggest, tolerating one of their taints
  octavo profiles create --type nvidia-h200-141gb --counts nvidia.com/gpu:1:2:4 --counts memory:::256Gi --tolerate nvidia.com/gpu=true:NoSchedule

A profile is made with your own kubeconfig, so it is you who may or may not. One that something else made is never changed, and one that
was made so is only with --replace.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 `check` found something.";

/// Settings of `octavo profiles`'s subcommands.
#[derive(Debug, Clone, Subcommand)]
pub enum ProfilesCommand {
    /// List hardware profiles with what is free for them
    #[command(after_long_help = EXAMPLES)]
    List(ListSettings),
    /// Show where one hardware profile really goes
    #[command(after_long_help = EXAMPLES)]
    Show(ShowSettings),
    /// Say what is wrong with hardware profiles, and what to do
    #[command(after_long_help = EXAMPLES)]
    Check(CheckSettings),
    /// Make a hardware profile for nodes or for a type
    #[command(after_long_help = EXAMPLES)]
    Create(Box<CreateSettings>),
}

/// Selected profiles, and the output format.
#[derive(Debug, Clone, Args)]
pub struct ProfileFilter {
    /// Only profiles for this type
    #[arg(long = "type", value_name = "TYPE")]
    pub type_name: Option<String>,

    /// Only profiles of this namespace
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,

    /// Output format.
    #[command(flatten)]
    pub output: OutputOptions,

    /// Aggregator.
    #[command(flatten)]
    pub server: ServerSettings,
}

/// Settings of `octavo profiles list`.
#[derive(Debug, Clone, Args)]
pub struct ListSettings {
    /// Filter.
    #[command(flatten)]
    pub filter: ProfileFilter,

    /// Stay and follow what changes, what is free for each among it
    #[arg(short, long)]
    pub watch: bool,
}

/// Settings of `octavo profiles check`.
#[derive(Debug, Clone, Args)]
pub struct CheckSettings {
    /// Only these profiles
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,

    /// Filter.
    #[command(flatten)]
    pub filter: ProfileFilter,
}

/// Settings of `octavo profiles show`.
#[derive(Debug, Clone, Args)]
pub struct ShowSettings {
    /// The profile's name
    #[arg(value_name = "NAME")]
    pub name: String,

    /// Its namespace, where several have one of this name
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,

    /// Output format.
    #[command(flatten)]
    pub output: OutputOptions,

    /// Aggregator.
    #[command(flatten)]
    pub server: ServerSettings,
}

/// Settings of `octavo profiles create`.
#[derive(Debug, Clone, Args)]
pub struct CreateSettings {
    /// What it is derived from.
    #[command(flatten)]
    pub basis: ProfileBasis,

    /// The resource it asks for, where the nodes give out several, such as nvidia.com/mig-3g.71gb
    #[arg(long, value_name = "RESOURCE")]
    pub resource: Option<String>,

    /// Its name; after its type without one
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Its namespace; that of the profiles there are without one
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,

    /// What people are shown
    #[arg(long, value_name = "TEXT")]
    pub display_name: Option<String>,

    /// How many of a resource: the least, what is usual and the most; what is left out stays as the nodes suggest
    #[arg(long, value_name = "RESOURCE:LEAST:USUAL:MOST")]
    pub counts: Vec<CountOverride>,

    /// A taint of the nodes that does not matter, such as nvidia.com/gpu=true:NoSchedule, instead of all that last; none for none
    #[arg(long, value_name = "TAINT", value_delimiter = ',')]
    pub tolerate: Vec<String>,

    /// Why it is made, which is kept in an annotation beside who made it
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,

    /// Take the place of one of this name that was made so, too, whoever made it
    #[arg(long)]
    pub replace: bool,

    /// How far to go
    #[arg(
        long,
        value_name = "WHERE",
        num_args = 0..=1,
        require_equals = true,
        default_value = "none",
        default_missing_value = "client"
    )]
    pub dry_run: DryRunMode,

    /// The cluster in which it is made, and as whom; without one ~/.kube/config, or that of this pod
    #[arg(
        long,
        value_name = "FILE",
        env = "KUBECONFIG",
        help_heading = "Kubernetes"
    )]
    pub kubeconfig: Option<PathBuf>,

    /// Aggregator.
    #[command(flatten)]
    pub server: ServerSettings,
}

/// What a new profile is derived from.
#[derive(Debug, Clone, Args)]
#[group(required = true, multiple = true)]
pub struct ProfileBasis {
    /// Nodes that it is made of; those that have several types are left out
    #[arg(long, value_name = "NODE", value_delimiter = ',')]
    pub from_nodes: Vec<String>,

    /// The type of accelerator that it is for
    #[arg(long = "type", value_name = "TYPE")]
    pub type_name: Option<String>,
}

impl ProfileFilter {
    /// Returns the names and values of the aggregator's parameters.
    pub fn parameters(&self) -> Vec<(&'static str, &str)> {
        let all = [("type", &self.type_name), ("namespace", &self.namespace)];
        let given = all.into_iter();
        given
            .filter_map(|(name, value)| Some((name, value.as_deref()?)))
            .collect()
    }
}

impl CreateSettings {
    /// Returns the kubeconfig of the cluster and the credentials; `None` for kubectl's default.
    pub fn kubeconfig(&self) -> Option<PathBuf> {
        let default = || {
            let path = env::home_dir()?.join(".kube/config");
            path.is_file().then_some(path)
        };
        self.kubeconfig.clone().or_else(default)
    }
}

/// How far making a profile goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DryRunMode {
    /// Make it
    None,
    /// Print it, and ask no cluster
    Client,
    /// Let the API server check it, and make nothing
    Server,
}
