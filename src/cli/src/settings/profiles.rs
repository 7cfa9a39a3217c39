//! Settings of `octavo profiles`.

use clap::{Args, Subcommand, ValueEnum};
use octavo_client::ServerSettings;
use octavo_fleet::hardware_profile::CountOverride;

use super::fleet::OutputOptions;

/// Settings of `octavo profiles`'s subcommands.
#[derive(Debug, Clone, Subcommand)]
pub enum ProfilesCommand {
    /// List hardware profiles and their free capacity
    #[command(after_long_help = include_str!("../../help/profiles.txt"))]
    List(ListSettings),
    /// Show one hardware profile with its matching nodes and problems
    #[command(after_long_help = include_str!("../../help/profiles.txt"))]
    Show(ShowSettings),
    /// Check hardware profiles for problems, and show remedies
    #[command(after_long_help = include_str!("../../help/profiles.txt"))]
    Check(CheckSettings),
    /// Create a hardware profile for nodes or for a type
    #[command(after_long_help = include_str!("../../help/profiles.txt"))]
    Create(Box<CreateSettings>),
}

/// Selected profiles, and the output format.
#[derive(Debug, Clone, Args)]
pub struct ProfileFilter {
    /// Show only profiles for this type
    #[arg(long = "type", value_name = "TYPE")]
    pub type_name: Option<String>,

    /// Show only profiles of this namespace
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
    /// Keep watching for changes, including changes of free capacity
    #[arg(short, long)]
    pub watch: bool,

    /// Filter.
    #[command(flatten)]
    pub filter: ProfileFilter,
}

/// Settings of `octavo profiles check`.
#[derive(Debug, Clone, Args)]
pub struct CheckSettings {
    /// Check only these profiles
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,

    /// Filter.
    #[command(flatten)]
    pub filter: ProfileFilter,
}

/// Settings of `octavo profiles show`.
#[derive(Debug, Clone, Args)]
pub struct ShowSettings {
    /// Name of the profile
    #[arg(value_name = "NAME")]
    pub name: String,

    /// Namespace of the profile, if its name is not unique
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

    /// Resource that the profile requests, if the nodes offer several, such as nvidia.com/mig-3g.71gb
    #[arg(long, value_name = "RESOURCE")]
    pub resource: Option<String>,

    /// Name of the profile [default: derived from its type]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Namespace of the profile [default: the namespace of the existing profiles]
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,

    /// Display name of the profile
    #[arg(long, value_name = "TEXT")]
    pub display_name: Option<String>,

    /// Minimum, default and maximum count of a resource; omitted values are derived from the nodes
    #[arg(long, value_name = "RESOURCE:MIN:DEFAULT:MAX")]
    pub counts: Vec<CountOverride>,

    /// Node taint to tolerate, such as nvidia.com/gpu=true:NoSchedule, instead of all persistent taints; `none` to
    /// tolerate none
    #[arg(long, value_name = "TAINT", value_delimiter = ',')]
    pub tolerate: Vec<String>,

    /// Reason for the profile; stored in an annotation with the name of the user
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,

    /// Replace an existing profile of this name, if it was created with Octavo by any user
    #[arg(long)]
    pub replace: bool,

    /// Preview mode
    #[arg(
        long,
        value_name = "MODE",
        num_args = 0..=1,
        require_equals = true,
        default_value = "none",
        default_missing_value = "client"
    )]
    pub dry_run: DryRunMode,

    /// Aggregator.
    #[command(flatten)]
    pub server: ServerSettings,
}

/// What a new profile is derived from.
#[derive(Debug, Clone, Args)]
#[group(required = true, multiple = true)]
pub struct ProfileBasis {
    /// Nodes to derive the profile from; nodes with several types are ignored
    #[arg(long, value_name = "NODE", value_delimiter = ',')]
    pub from_nodes: Vec<String>,

    /// Accelerator type of the profile
    #[arg(long = "type", value_name = "TYPE")]
    pub type_name: Option<String>,
}

impl ProfileFilter {
    /// Returns the names and values of the aggregator's parameters.
    pub fn parameters(&self) -> Vec<(&'static str, &str)> {
        let all = [("type", &self.type_name), ("namespace", &self.namespace)];
        let given = all.into_iter();
        given.filter_map(|(name, value)| Some((name, value.as_deref()?))).collect()
    }
}

/// How far making a profile goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DryRunMode {
    /// Create the profile
    None,
    /// Print the profile, without contacting the cluster
    Client,
    /// Validate the profile on the API server, without creating it
    Server,
}
