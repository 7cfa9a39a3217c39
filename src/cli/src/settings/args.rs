//! Command-line arguments as clap parses them, and their resolution to settings.

mod completion;
mod inspect;
mod plugin;
mod source;

use std::ffi::OsString;
use std::path::Path;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use octavo_settings::{Answer, parse_as};

pub use self::completion::{completion_script, mig_parted_completion_script};
use self::inspect::{InspectArgs, LabelsArgs};
use self::plugin::{PLUGIN_NAME, as_plugin};
pub(super) use self::source::SourceArgs;
use super::apply::{self, ApplyArgs, CheckpointArgs, HistoryArgs, RestoreArgs};
use super::catalog::{self, CatalogArgs};
use super::demo::{self, DemoArgs};
use super::doctor::{self, DoctorArgs};
use super::estimate::{self, EstimateArgs};
use super::fleet::{self, AvailabilityArgs, NodeArgs, NodesArgs, TypesArgs, WatchArgs};
use super::layouts::{self, AssertArgs, ExportArgs, LayoutsArgs, PlanArgs};
use super::matching::{self, MatchArgs};
use super::mig_parted::{self, MigPartedArgs, NvidiaMigPartedArgs};
use super::profiles::{self, ProfilesArgs};
use super::sharing::{self, SharingArgs};
use super::slo::{self, SloArgs};
use super::top::TopArgs;
use super::{Colors, Command, Invocation, OutputMode, Shell, Terminal};
use super::{usage as given, usage::UsageArgs};

const EXAMPLES: &str = "\
Examples:
  # What accelerators does this node have, and how are they partitioned?
  octavo inspect

  # Which labels would this node carry?
  octavo labels

  # What is missing on this node, and what is to be done?
  octavo doctor

  # What would happen if it were partitioned as `serving` in layouts.yaml?
  octavo plan serving -f layouts.yaml

  # What does the fleet have, how much of it is free, and on which nodes?
  octavo types --server https://octavo.example.org

  # See all of it without an accelerator: a fleet of simulated machines
  octavo demo

  # Complete commands and flags in this shell
  source <(octavo completion bash)

Exit codes: 0 done or nothing to do, 1 failed, 2 wrong usage, 3 there are differences or changes, 4 blocked,
5 impossible on this hardware.";

/// See the accelerators of a Kubernetes fleet and its nodes, their partitions and labels, and plan their layouts
#[derive(Debug, Parser)]
#[command(
    name = "octavo",
    version,
    after_long_help = EXAMPLES,
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(super) struct OctavoArgs {
    #[command(subcommand)]
    command: CommandArgs,

    /// When to use colours; auto heeds `NO_COLOR` and `TERM=dumb`
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "WHEN",
        default_value = "auto"
    )]
    color: ColorArg,
}

#[derive(Debug, Subcommand)]
enum CommandArgs {
    /// Show the accelerators of this node
    #[command(after_long_help = inspect::INSPECT_EXAMPLES)]
    Inspect(InspectArgs),
    /// Show the labels that this node would carry
    #[command(after_long_help = inspect::LABELS_EXAMPLES)]
    Labels(LabelsArgs),
    /// Say what stands between this node's accelerators and pods, and what to do
    #[command(after_long_help = doctor::EXAMPLES)]
    Doctor(DoctorArgs),
    /// Show what a layout would change on this node, before anything is touched
    #[command(after_long_help = layouts::PLAN_EXAMPLES)]
    Plan(PlanArgs),
    /// Give this node a layout
    #[command(after_long_help = apply::APPLY_EXAMPLES)]
    Apply(ApplyArgs),
    /// Show what was done to this node's partitions, when, and why not
    #[command(after_long_help = apply::HISTORY_EXAMPLES)]
    History(HistoryArgs),
    /// Write down what this node has, each instance in its place
    #[command(after_long_help = apply::CHECKPOINT_EXAMPLES)]
    Checkpoint(CheckpointArgs),
    /// Bring back what a checkpoint has
    #[command(after_long_help = apply::CHECKPOINT_EXAMPLES)]
    Restore(RestoreArgs),
    /// Tell whether this node has a layout
    #[command(after_long_help = layouts::ASSERT_EXAMPLES)]
    Assert(AssertArgs),
    /// Print what this node has as a layout
    #[command(after_long_help = layouts::EXPORT_EXAMPLES)]
    Export(ExportArgs),
    /// Check, show and generate files of layouts
    #[command(after_long_help = layouts::LAYOUTS_EXAMPLES)]
    Layouts(LayoutsArgs),
    /// Show what a layout would have this node give out to pods, and how it is shared
    #[command(after_long_help = sharing::EXAMPLES)]
    Sharing(SharingArgs),
    /// Look up which accelerator a name means, and what is known of it
    #[command(after_long_help = catalog::EXAMPLES)]
    Catalog(CatalogArgs),
    /// Do what NVIDIA's mig-parted does, in its words
    #[command(after_long_help = mig_parted::EXAMPLES)]
    MigParted(MigPartedArgs),
    /// List the nodes of the fleet
    #[command(after_long_help = fleet::NODES_EXAMPLES)]
    Nodes(NodesArgs),
    /// List the types of accelerators of the fleet
    #[command(after_long_help = fleet::TYPES_EXAMPLES)]
    Types(TypesArgs),
    /// Tell what is to be had of each type, and why the rest is not
    #[command(after_long_help = fleet::AVAILABILITY_EXAMPLES)]
    Availability(AvailabilityArgs),
    /// Show one node of the fleet
    #[command(after_long_help = fleet::NODE_EXAMPLES)]
    Node(NodeArgs),
    /// Say which nodes hardware profiles reach, what is wrong with them, and make new ones
    #[command(after_long_help = profiles::EXAMPLES)]
    Profiles(ProfilesArgs),
    /// Find which accelerators of the fleet suit a pod, and why not the others
    #[command(after_long_help = matching::EXAMPLES)]
    Match(MatchArgs),
    /// Estimate how long a training takes, how fast a model writes, and what it costs
    #[command(after_long_help = estimate::EXAMPLES)]
    Estimate(EstimateArgs),
    /// Say which measured hardware keeps what a service promises, the cheapest first
    #[command(after_long_help = slo::EXAMPLES)]
    Slo(SloArgs),
    /// Count what each namespace has of each type
    #[command(after_long_help = given::EXAMPLES)]
    Usage(UsageArgs),
    /// Follow what changes in the fleet
    #[command(after_long_help = fleet::WATCH_EXAMPLES)]
    Watch(WatchArgs),
    /// Follow who uses what, pod by pod
    Top(TopArgs),
    /// Run a fleet of simulated machines on this one
    #[command(after_long_help = demo::EXAMPLES)]
    Demo(DemoArgs),
    /// Print a completion script
    Completion {
        /// The shell to complete in
        shell: Shell,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ColorArg {
    /// On a terminal
    Auto,
    /// Everywhere
    Always,
    /// Nowhere
    Never,
}

/// Parses `arguments`, program name first.
pub(super) fn invocation<A>(
    arguments: impl IntoIterator<Item = A>,
    terminal: Terminal,
) -> Result<Invocation, Answer>
where
    A: Into<OsString> + Clone,
{
    let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
    let program = arguments.first().map(Path::new).and_then(Path::file_name);
    if program.is_some_and(|name| name == mig_parted::NAME) {
        let arguments = mig_parted::with_two_dashes(arguments);
        let parsed = parse_as::<NvidiaMigPartedArgs, _>(NvidiaMigPartedArgs::command(), arguments);
        let settings = parsed.map_err(|error| Answer::from(error).into_failure())?;
        return Ok(Invocation {
            command: Command::MigParted(settings.into()),
            colors: Colors::Off,
            screen: OutputMode::Append,
        });
    }
    let command = if program.is_some_and(|name| name == PLUGIN_NAME) {
        as_plugin(OctavoArgs::command())
    } else {
        OctavoArgs::command()
    };
    if mig_parted::is_mig_parted(&arguments) {
        let arguments = mig_parted::with_two_dashes(arguments);
        let parsed = parse_as::<OctavoArgs, _>(command, arguments).map_err(Answer::from);
        let parsed = parsed.map_err(Answer::into_failure)?;
        return parsed.resolve(terminal);
    }
    parse_as::<OctavoArgs, _>(command, arguments)?.resolve(terminal)
}

impl OctavoArgs {
    fn resolve(self, terminal: Terminal) -> Result<Invocation, Answer> {
        let colors = match (self.color, terminal) {
            (ColorArg::Always, _) | (ColorArg::Auto, Terminal::Colorful) => Colors::On,
            (ColorArg::Never, _) | (ColorArg::Auto, Terminal::Monochrome | Terminal::Plain) => {
                Colors::Off
            }
        };
        let screen = match terminal {
            Terminal::Colorful | Terminal::Monochrome => OutputMode::Redraw,
            Terminal::Plain => OutputMode::Append,
        };
        let command = match self.command {
            CommandArgs::Inspect(args) => Command::Inspect(args.into()),
            CommandArgs::Labels(args) => Command::Labels(usage(args.resolve())?),
            CommandArgs::Doctor(args) => Command::Doctor(usage(args.resolve())?),
            CommandArgs::Plan(args) => Command::Plan(usage(args.resolve())?),
            CommandArgs::Apply(args) => Command::Apply(args.into()),
            CommandArgs::History(args) => Command::History(args.into()),
            CommandArgs::Checkpoint(args) => Command::Checkpoint(args.into()),
            CommandArgs::Restore(args) => Command::Restore(args.into()),
            CommandArgs::Assert(args) => Command::Assert(usage(args.resolve())?),
            CommandArgs::Export(args) => Command::Export(args.into()),
            CommandArgs::Layouts(args) => Command::Layouts(usage(args.resolve())?),
            CommandArgs::Sharing(args) => Command::Sharing(usage(args.resolve())?),
            CommandArgs::Catalog(args) => Command::Catalogue(args.into()),
            CommandArgs::MigParted(args) => Command::MigParted(args.into()),
            CommandArgs::Nodes(args) => match args.resolve() {
                (settings, true) => Command::Watch(settings),
                (settings, false) => Command::Nodes(settings),
            },
            CommandArgs::Types(args) => Command::Types(args.into()),
            CommandArgs::Availability(args) => Command::Availability(args.into()),
            CommandArgs::Node(args) => Command::Node(args.into()),
            CommandArgs::Profiles(args) => Command::Profiles(args.into()),
            CommandArgs::Match(args) => Command::Match(args.into()),
            CommandArgs::Estimate(args) => Command::Estimate(Box::new(args.into())),
            CommandArgs::Slo(args) => Command::Slo(args.into()),
            CommandArgs::Usage(args) => Command::Usage(args.into()),
            CommandArgs::Watch(args) => Command::Watch(args.into()),
            CommandArgs::Top(args) => Command::Top(args.into()),
            CommandArgs::Demo(args) => Command::Demo(args.into()),
            CommandArgs::Completion { shell } => Command::Completion(shell),
        };
        Ok(Invocation {
            command,
            colors,
            screen,
        })
    }
}

/// Turns an invalid combination of arguments into a usage error.
fn usage<T>(resolved: Result<T, &'static str>) -> Result<T, Answer> {
    resolved.map_err(|message| Answer::usage(&mut OctavoArgs::command(), message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clap_command_is_valid() {
        OctavoArgs::command().debug_assert();
        NvidiaMigPartedArgs::command().debug_assert();
    }
}
