//! What a person may type, as clap reads it, and how it becomes settings.

mod completion;
mod plugin;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};

pub use self::completion::{completion_script, mig_parted_completion_script};
use self::plugin::{PLUGIN, as_plugin};
use super::apply::{self, ApplyArgs, CheckpointArgs, HistoryArgs, RestoreArgs};
use super::catalogue::{self, CatalogueArgs};
use super::demo::{self, DemoArgs};
use super::doctor::{self, DoctorArgs};
use super::fleet::{self, NodeArgs, NodesArgs, TypesArgs, WatchArgs};
use super::layouts::{self, AssertArgs, ExportArgs, LayoutsArgs, PlanArgs};
use super::mig_parted::{self, MigPartedArgs, NvidiaMigPartedArgs};
use super::naming::{NamingArgs, NamingSettings};
use super::sharing::{self, SharingArgs};
use super::top::TopArgs;
use super::{
    Colors, Command, Headers, Input, InspectFormat, InspectSettings, Invocation, LabelsFormat,
    LabelsPurpose, LabelsSettings, Screen, Shell, Source, Terminal,
};
use crate::config::hardware::HardwareArgs;
use crate::config::labels::LabelArgs;
use crate::config::{Answer, parse_as};

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

const INSPECT_EXAMPLES: &str = "\
Examples:
  # Table, pictures of the slices, and what is wrong
  octavo inspect

  # With PCI addresses, UUIDs, product names and links
  octavo inspect -o wide

  # Only the rows, for a script
  octavo inspect --no-headers

  # Record this machine and look at the recording elsewhere
  octavo inspect -o json > node7.json
  octavo inspect --from node7.json

In the pictures, one cell is one memory slice. `gi 2/0` is GPU instance 2 with compute instance 0; `gi 2/-` has no
compute instance, so nothing can use it.";

const LABELS_EXAMPLES: &str = "\
Examples:
  # Labels as key=value
  octavo labels --mig-strategy mixed

  # What would change against the node as it is?
  kubectl get node $NODE -o json | octavo labels --from node7.json --diff -

  # What would change against gpu-feature-discovery?
  octavo labels --diff /etc/kubernetes/node-feature-discovery/features.d/gfd

With --diff, a line with `-` is there now and would go, one with `+` would come; the exit code is 3 if there are any.";

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
    #[command(after_long_help = INSPECT_EXAMPLES)]
    Inspect(InspectArgs),
    /// Show the labels that this node would carry
    #[command(after_long_help = LABELS_EXAMPLES)]
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
    #[command(after_long_help = catalogue::EXAMPLES)]
    Catalog(CatalogueArgs),
    /// Do what NVIDIA's mig-parted does, in its words
    #[command(after_long_help = mig_parted::EXAMPLES)]
    MigParted(MigPartedArgs),
    /// List the nodes of the fleet
    #[command(after_long_help = fleet::NODES_EXAMPLES)]
    Nodes(NodesArgs),
    /// List the types of accelerators of the fleet
    #[command(after_long_help = fleet::TYPES_EXAMPLES)]
    Types(TypesArgs),
    /// Show one node of the fleet
    #[command(after_long_help = fleet::NODE_EXAMPLES)]
    Node(NodeArgs),
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

#[derive(Debug, clap::Args)]
struct InspectArgs {
    /// How to print it
    #[arg(
        short,
        long,
        value_enum,
        value_name = "FORMAT",
        default_value = "table"
    )]
    output: InspectFormat,

    /// Print the rows of the table and nothing else
    #[arg(long)]
    no_headers: bool,

    #[command(flatten)]
    naming: NamingArgs,

    #[command(flatten)]
    source: SourceArgs,
}

#[derive(Debug, clap::Args)]
struct LabelsArgs {
    /// How to print it
    #[arg(
        short,
        long,
        value_enum,
        value_name = "FORMAT",
        default_value = "table"
    )]
    output: LabelsFormat,

    /// Print how the labels differ from those in FILE; - for standard input
    ///
    /// FILE may hold what this command printed, a feature file of Node Feature Discovery, or a Node as kubectl prints it
    /// with -o json or yaml. Labels of other owners are not compared, nor is nvidia.com/gfd.timestamp.
    #[arg(long, value_name = "FILE", conflicts_with = "output")]
    diff: Option<PathBuf>,

    #[command(flatten)]
    naming: NamingArgs,

    #[command(flatten)]
    source: SourceArgs,

    #[command(flatten)]
    labels: LabelArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct SourceArgs {
    /// Read a recorded inventory instead of this machine; - for standard input
    ///
    /// FILE is what `octavo inspect -o json` or `-o yaml` printed, or a scenario of the simulated driver, which needs
    /// nvml-simctl and `libnvml_sim.so` beside this program. The flags about hardware are not used then, but
    /// --catalog by `inspect`, `labels` and `doctor`.
    #[arg(long, visible_alias = "machine", value_name = "FILE")]
    from: Option<PathBuf>,

    #[command(flatten)]
    hardware: HardwareArgs,
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

/// What `arguments` ask for, program name first.
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
            screen: Screen::Scroll,
        });
    }
    let command = if program.is_some_and(|name| name == PLUGIN) {
        as_plugin(OctavoArgs::command())
    } else {
        OctavoArgs::command()
    };
    if mig_parted::is_meant(&arguments) {
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
            Terminal::Colorful | Terminal::Monochrome => Screen::Live,
            Terminal::Plain => Screen::Scroll,
        };
        let command = match self.command {
            CommandArgs::Inspect(args) => Command::Inspect(args.into()),
            CommandArgs::Labels(args) => Command::Labels(labels(args)?),
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
            CommandArgs::Node(args) => Command::Node(args.into()),
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

impl From<InspectArgs> for InspectSettings {
    fn from(args: InspectArgs) -> Self {
        let naming = NamingSettings::new(args.naming, args.source.catalog());
        Self {
            source: args.source.into(),
            format: args.output,
            headers: Headers::unless(args.no_headers),
            naming,
        }
    }
}

/// Arguments that each may be given, and not together.
fn usage<T>(resolved: Result<T, &'static str>) -> Result<T, Answer> {
    resolved.map_err(|message| Answer::usage(&mut OctavoArgs::command(), message))
}

fn labels(args: LabelsArgs) -> Result<LabelsSettings, Answer> {
    let naming = NamingSettings::new(args.naming, args.source.catalog());
    let source = Source::from(args.source);
    let purpose = args.diff.map_or(LabelsPurpose::Print(args.output), |path| {
        LabelsPurpose::Diff(path.into())
    });
    if source == Source::Recording(Input::Stdin) && purpose == LabelsPurpose::Diff(Input::Stdin) {
        return usage(Err("only one of --from and --diff can read standard input"));
    }
    Ok(LabelsSettings {
        source,
        labels: args.labels.into(),
        purpose,
        naming,
    })
}

impl SourceArgs {
    /// A catalogue of one's own.
    pub(super) fn catalog(&self) -> Option<Input> {
        self.hardware.catalog.clone().map(Input::File)
    }
}

impl From<SourceArgs> for Source {
    fn from(args: SourceArgs) -> Self {
        match args.from {
            Some(path) => Self::Recording(path.into()),
            None => Self::Machine(args.hardware.into()),
        }
    }
}

impl From<PathBuf> for Input {
    fn from(path: PathBuf) -> Self {
        if path == Path::new("-") {
            Self::Stdin
        } else {
            Self::File(path)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_given_to_clap_is_sound() {
        OctavoArgs::command().debug_assert();
        NvidiaMigPartedArgs::command().debug_assert();
    }
}
