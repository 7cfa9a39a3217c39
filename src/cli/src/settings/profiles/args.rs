//! Command-line arguments of `octavo profiles`.

use std::env;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use octavo_fleet::hardware_profile::CountOverride;

use super::{
    CreateSettings, DryRunMode, ListSettings, ProfileRequest, ProfilesCommand, ShowSettings,
};
use crate::settings::fleet::OutputArgs;
use crate::settings::server::ServerArgs;

pub(in crate::settings) const EXAMPLES: &str = "\
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

/// Raw arguments of `octavo profiles`.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(in crate::settings) struct ProfilesArgs {
    #[command(subcommand)]
    command: ProfilesCommandArgs,
}

#[derive(Debug, Subcommand)]
enum ProfilesCommandArgs {
    /// List hardware profiles with what is free for them
    #[command(after_long_help = EXAMPLES)]
    List(ListCommandArgs),
    /// Show where one hardware profile really goes
    #[command(after_long_help = EXAMPLES)]
    Show(ShowArgs),
    /// Say what is wrong with hardware profiles, and what to do
    #[command(after_long_help = EXAMPLES)]
    Check(CheckArgs),
    /// Make a hardware profile for nodes or for a type
    #[command(after_long_help = EXAMPLES)]
    Create(CreateArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Only profiles for this type
    #[arg(long = "type", value_name = "TYPE")]
    type_name: Option<String>,

    /// Only profiles of this namespace
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
struct ListCommandArgs {
    #[command(flatten)]
    which: ListArgs,

    /// Stay and follow what changes, what is free for each among it
    #[arg(short, long)]
    watch: bool,
}

#[derive(Debug, Args)]
struct CheckArgs {
    /// Only these profiles
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    #[command(flatten)]
    which: ListArgs,
}

#[derive(Debug, Args)]
struct ShowArgs {
    /// The profile's name
    #[arg(value_name = "NAME")]
    name: String,

    /// Its namespace, where several have one of this name
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
struct CreateArgs {
    #[command(flatten)]
    of: ProfileSourceArgs,

    /// The resource it asks for, where the nodes give out several, such as nvidia.com/mig-3g.71gb
    #[arg(long, value_name = "RESOURCE")]
    resource: Option<String>,

    /// Its name; after its type without one
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Its namespace; that of the profiles there are without one
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,

    /// What people are shown
    #[arg(long, value_name = "TEXT")]
    display_name: Option<String>,

    /// How many of a resource: the least, what is usual and the most; what is left out stays as the nodes suggest
    #[arg(long, value_name = "RESOURCE:LEAST:USUAL:MOST")]
    counts: Vec<CountOverride>,

    /// A taint of the nodes that does not matter, such as nvidia.com/gpu=true:NoSchedule, instead of all that last; none for none
    #[arg(long, value_name = "TAINT", value_delimiter = ',')]
    tolerate: Vec<String>,

    /// Why it is made, which is kept in an annotation beside who made it
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    /// Take the place of one of this name that was made so, too, whoever made it
    #[arg(long)]
    replace: bool,

    /// How far to go
    #[arg(
        long,
        value_enum,
        value_name = "WHERE",
        num_args = 0..=1,
        require_equals = true,
        default_value = "none",
        default_missing_value = "client"
    )]
    dry_run: DryRunMode,

    /// The cluster in which it is made, and as whom; without one ~/.kube/config, or that of this pod
    #[arg(
        long,
        value_name = "FILE",
        env = "KUBECONFIG",
        hide_env_values = true,
        help_heading = "Kubernetes"
    )]
    kubeconfig: Option<PathBuf>,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
struct ProfileSourceArgs {
    /// Nodes that it is made of; those that have several types are left out
    #[arg(long, value_name = "NODE", value_delimiter = ',')]
    from_nodes: Vec<String>,

    /// The type of accelerator that it is for
    #[arg(long = "type", value_name = "TYPE")]
    type_name: Option<String>,
}

impl From<ProfilesArgs> for ProfilesCommand {
    fn from(args: ProfilesArgs) -> Self {
        match args.command {
            ProfilesCommandArgs::List(args) => {
                let which = list(args.which, Vec::new());
                if args.watch {
                    Self::Watch(which)
                } else {
                    Self::List(which)
                }
            }
            ProfilesCommandArgs::Show(args) => Self::Show(ShowSettings {
                server: args.server.into(),
                printed: args.output.into(),
                name: args.name,
                namespace: args.namespace,
            }),
            ProfilesCommandArgs::Check(args) => Self::Check(list(args.which, args.names)),
            ProfilesCommandArgs::Create(args) => Self::Create(args.into()),
        }
    }
}

fn list(args: ListArgs, names: Vec<String>) -> ListSettings {
    ListSettings {
        server: args.server.into(),
        printed: args.output.into(),
        type_name: args.type_name,
        namespace: args.namespace,
        names,
    }
}

/// Returns kubectl's default kubeconfig.
fn default_kubeconfig() -> Option<PathBuf> {
    let path = env::home_dir()?.join(".kube/config");
    path.is_file().then_some(path)
}

impl From<CreateArgs> for CreateSettings {
    fn from(args: CreateArgs) -> Self {
        let wish = ProfileRequest {
            nodes: args.of.from_nodes,
            type_name: args.of.type_name,
            resource: args.resource,
            name: args.name,
            namespace: args.namespace,
            display_name: args.display_name,
            counts: args.counts,
            tolerate: args.tolerate,
        };
        Self {
            server: args.server.into(),
            kubeconfig: args.kubeconfig.or_else(default_kubeconfig),
            wish,
            reason: args.reason,
            replaces: args.replace,
            attempt: args.dry_run,
        }
    }
}
