//! Settings of the `octavo` command line: each group of arguments is one struct, which the commands use as it is parsed.

pub mod apply;
pub mod catalog;
mod choice;
mod completion;
pub mod demo;
pub mod doctor;
pub mod estimate;
pub mod fleet;
mod go_flags;
pub mod input;
pub mod inspect;
pub mod layouts;
pub mod matching;
pub mod mig_parted;
mod plugin;
pub mod profiles;
pub mod server;
pub mod sharing;
pub mod slo;
pub mod source;
pub mod top;
pub mod usage;

use std::env;
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::Path;

use clap::builder::{BoolValueParser, TypedValueParser};
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use octavo_settings::{Answer, parse_as};

use self::apply::{ApplySettings, CheckpointSettings, HistorySettings, RestoreSettings};
use self::catalog::CatalogCommand;
pub use self::completion::{completion_script, mig_parted_completion_script};
use self::demo::DemoSettings;
use self::doctor::DoctorSettings;
use self::estimate::EstimateCommand;
use self::fleet::{
    AvailabilitySettings, NodeSettings, NodesSettings, TypesSettings, WatchSettings,
};
pub use self::input::Input;
use self::inspect::{InspectSettings, LabelsSettings};
use self::layouts::{ExportSettings, LayoutRequest, LayoutsCommand, PlanSettings};
use self::matching::MatchSettings;
use self::mig_parted::{MigPartedSettings, NvidiaMigPartedArgs};
use self::plugin::{PLUGIN_NAME, as_plugin};
use self::profiles::ProfilesCommand;
use self::sharing::SharingCommand;
use self::slo::SloSettings;
use self::top::TopSettings;
use self::usage::UsageSettings;

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
#[derive(Debug, Clone, Parser)]
#[command(
    name = "octavo",
    version,
    after_long_help = EXAMPLES,
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = true
)]
struct OctavoArgs {
    #[command(subcommand)]
    command: Command,

    /// When to use colours; auto heeds `NO_COLOR` and `TERM=dumb`
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    color: ColorArg,
}

/// The commands.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Show the accelerators of this node
    #[command(after_long_help = inspect::INSPECT_EXAMPLES)]
    Inspect(InspectSettings),
    /// Show the labels that this node would carry
    #[command(after_long_help = inspect::LABELS_EXAMPLES)]
    Labels(LabelsSettings),
    /// Say what stands between this node's accelerators and pods, and what to do
    #[command(after_long_help = doctor::EXAMPLES)]
    Doctor(DoctorSettings),
    /// Show what a layout would change on this node, before anything is touched
    #[command(after_long_help = layouts::PLAN_EXAMPLES)]
    Plan(PlanSettings),
    /// Give this node a layout
    #[command(after_long_help = apply::APPLY_EXAMPLES)]
    Apply(ApplySettings),
    /// Show what was done to this node's partitions, when, and why not
    #[command(after_long_help = apply::HISTORY_EXAMPLES)]
    History(HistorySettings),
    /// Write down what this node has, each instance in its place
    #[command(after_long_help = apply::CHECKPOINT_EXAMPLES)]
    Checkpoint(CheckpointSettings),
    /// Bring back what a checkpoint has
    #[command(after_long_help = apply::CHECKPOINT_EXAMPLES)]
    Restore(RestoreSettings),
    /// Tell whether this node has a layout
    #[command(after_long_help = layouts::ASSERT_EXAMPLES)]
    Assert(LayoutRequest),
    /// Print what this node has as a layout
    #[command(after_long_help = layouts::EXPORT_EXAMPLES)]
    Export(ExportSettings),
    /// Check, show and generate files of layouts
    #[command(subcommand, after_long_help = layouts::LAYOUTS_EXAMPLES)]
    Layouts(LayoutsCommand),
    /// Show what a layout would have this node give out to pods, and how it is shared
    #[command(subcommand, after_long_help = sharing::EXAMPLES)]
    Sharing(SharingCommand),
    /// Look up which accelerator a name means, and what is known of it
    #[command(subcommand, after_long_help = catalog::EXAMPLES)]
    Catalog(CatalogCommand),
    /// Do what NVIDIA's mig-parted does, in its words
    #[command(after_long_help = mig_parted::EXAMPLES)]
    MigParted(MigPartedSettings),
    /// List the nodes of the fleet
    #[command(after_long_help = fleet::NODES_EXAMPLES)]
    Nodes(NodesSettings),
    /// List the types of accelerators of the fleet
    #[command(after_long_help = fleet::TYPES_EXAMPLES)]
    Types(TypesSettings),
    /// Tell what is to be had of each type, and why the rest is not
    #[command(after_long_help = fleet::AVAILABILITY_EXAMPLES)]
    Availability(AvailabilitySettings),
    /// Show one node of the fleet
    #[command(after_long_help = fleet::NODE_EXAMPLES)]
    Node(NodeSettings),
    /// Say which nodes hardware profiles reach, what is wrong with them, and make new ones
    #[command(subcommand, after_long_help = profiles::EXAMPLES)]
    Profiles(ProfilesCommand),
    /// Find which accelerators of the fleet suit a pod, and why not the others
    #[command(after_long_help = matching::EXAMPLES)]
    Match(MatchSettings),
    /// Estimate how long a training takes, how fast a model writes, and what it costs
    #[command(subcommand, after_long_help = estimate::EXAMPLES)]
    Estimate(EstimateCommand),
    /// Say which measured hardware keeps what a service promises, the cheapest first
    #[command(after_long_help = slo::EXAMPLES)]
    Slo(SloSettings),
    /// Count what each namespace has of each type
    #[command(after_long_help = usage::EXAMPLES)]
    Usage(UsageSettings),
    /// Follow what changes in the fleet
    #[command(after_long_help = fleet::WATCH_EXAMPLES)]
    Watch(WatchSettings),
    /// Follow who uses what, pod by pod
    Top(TopSettings),
    /// Run a fleet of simulated machines on this one
    #[command(after_long_help = demo::EXAMPLES)]
    Demo(DemoSettings),
    /// Print a completion script
    Completion {
        /// The shell to complete in
        shell: Shell,
    },
}

/// Parsed command line.
#[derive(Debug, Clone)]
pub struct Invocation {
    /// The command.
    pub command: Command,
    /// Whether output is colored.
    pub colors: Colors,
    /// Whether printed output can be overwritten.
    pub screen: OutputMode,
}

/// Whether a table has more than its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Headers {
    /// A row of headers, and the text above and below the table.
    Shown,
    /// Only the rows.
    Hidden,
}

/// Whether output is colored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colors {
    /// ANSI colors.
    On,
    /// No colors.
    Off,
}

/// Whether printed output can be overwritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputMode {
    /// A terminal.
    Redraw,
    /// A file, a pipe or a dumb terminal: output is only appended.
    Append,
}

/// Shells that commands can be completed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// GNU Bash
    Bash,
    /// Z shell
    Zsh,
    /// fish
    Fish,
}

/// Capability of standard output, for the default of colors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Terminal {
    /// A terminal, without `NO_COLOR`.
    Colorful,
    /// A terminal, with `NO_COLOR` set.
    Monochrome,
    /// A file, a pipe, or a dumb terminal.
    Plain,
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

impl Invocation {
    /// Parses the arguments and the environment of this process.
    pub fn from_process() -> Result<Self, Answer> {
        invocation(env::args_os(), Terminal::of_process())
    }

    /// Parses `arguments`, program name first.
    pub fn from_arguments<A>(
        arguments: impl IntoIterator<Item = A>,
        terminal: Terminal,
    ) -> Result<Self, Answer>
    where
        A: Into<OsString> + Clone,
    {
        invocation(arguments, terminal)
    }
}

/// Parses a flag that hides headers.
fn headers() -> impl TypedValueParser<Value = Headers> {
    BoolValueParser::new().map(|hidden| {
        if hidden {
            Headers::Hidden
        } else {
            Headers::Shown
        }
    })
}

impl Terminal {
    #[expect(
        clippy::disallowed_methods,
        reason = "this module is the reader of the environment"
    )]
    fn of_process() -> Self {
        let set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        if !io::stdout().is_terminal() || dumb {
            Self::Plain
        } else if set("NO_COLOR") {
            Self::Monochrome
        } else {
            Self::Colorful
        }
    }
}

/// Parses `arguments`, program name first.
fn invocation<A>(
    arguments: impl IntoIterator<Item = A>,
    terminal: Terminal,
) -> Result<Invocation, Answer>
where
    A: Into<OsString> + Clone,
{
    let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
    let program = arguments.first().map(Path::new).and_then(Path::file_name);
    if program.is_some_and(|name| name == mig_parted::NAME) {
        let arguments = go_flags::with_two_dashes(arguments);
        let parsed = parse_as::<NvidiaMigPartedArgs, _>(NvidiaMigPartedArgs::command(), arguments);
        let parsed = parsed.map_err(|error| Answer::from(error).into_failure())?;
        return Ok(Invocation {
            command: Command::MigParted(parsed.settings),
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
        let arguments = go_flags::with_two_dashes(arguments);
        let parsed = parse_as::<OctavoArgs, _>(command, arguments).map_err(Answer::from);
        let parsed = parsed.map_err(Answer::into_failure)?;
        return parsed.resolve(terminal);
    }
    parse_as::<OctavoArgs, _>(command, arguments)?.resolve(terminal)
}

impl OctavoArgs {
    fn resolve(self, terminal: Terminal) -> Result<Invocation, Answer> {
        let refused = |message| Answer::usage(&mut Self::command(), message);
        self.command.check().map_err(refused)?;
        Ok(Invocation {
            command: self.command,
            colors: match (self.color, terminal) {
                (ColorArg::Always, _) | (ColorArg::Auto, Terminal::Colorful) => Colors::On,
                (ColorArg::Never, _) | (ColorArg::Auto, Terminal::Monochrome | Terminal::Plain) => {
                    Colors::Off
                }
            },
            screen: match terminal {
                Terminal::Colorful | Terminal::Monochrome => OutputMode::Redraw,
                Terminal::Plain => OutputMode::Append,
            },
        })
    }
}

impl Command {
    /// Returns an error for a combination of arguments that clap cannot detect.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the other commands have no such combination"
    )]
    fn check(&self) -> Result<(), &'static str> {
        match self {
            Self::Labels(settings) => settings.check(),
            Self::Doctor(settings) => settings.check(),
            Self::Plan(settings) => settings.request.check(),
            Self::Assert(request) => request.check(),
            Self::Layouts(command) => command.check(),
            Self::Sharing(command) => command.check(),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clap_command_is_valid() {
        OctavoArgs::command().debug_assert();
        NvidiaMigPartedArgs::command().debug_assert();
    }

    fn invocation(arguments: &[&str], terminal: Terminal) -> Invocation {
        let program = ["octavo"].iter();
        Invocation::from_arguments(program.chain(arguments), terminal).unwrap()
    }

    fn refusal(arguments: &[&str]) -> String {
        let program = ["octavo"].iter();
        Invocation::from_arguments(program.chain(arguments), Terminal::Plain)
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn colors_follow_flag_then_terminal() {
        for (flag, terminal, colors) in [
            ("--color=auto", Terminal::Colorful, Colors::On),
            ("--color=auto", Terminal::Plain, Colors::Off),
            ("--color=auto", Terminal::Monochrome, Colors::Off),
            ("--color=always", Terminal::Plain, Colors::On),
            ("--color=never", Terminal::Colorful, Colors::Off),
        ] {
            assert_eq!(invocation(&["inspect", flag], terminal).colors, colors);
        }
    }

    #[test]
    fn a_dash_is_standard_input_and_can_be_read_once() {
        let Command::Inspect(inspect) =
            invocation(&["inspect", "--from=-"], Terminal::Plain).command
        else {
            panic!("another command");
        };
        assert_eq!(inspect.source.inventory.from, Some(Input::Stdin));
        assert!(refusal(&["labels", "--from=-", "--diff=-"]).contains("only one of"));
    }

    #[test]
    fn kubectl_plugin_help_uses_kubectl_octavo() {
        let text = |program: &str, arguments: &[&str]| {
            let program = [program].into_iter();
            let arguments = program.chain(arguments.iter().copied());
            Invocation::from_arguments(arguments, Terminal::Plain)
                .unwrap_err()
                .to_string()
        };
        let help = text("/usr/local/bin/kubectl-octavo", &["nodes", "--help"]);
        assert!(
            help.contains("Usage: kubectl octavo nodes [OPTIONS]"),
            "{help}"
        );
        assert!(
            help.contains("\n  kubectl octavo nodes --sort-by free\n"),
            "{help}"
        );
        let own = text("/usr/local/bin/octavo", &["nodes", "--help"]);
        assert!(!own.contains("kubectl octavo"), "{own}");
    }

    #[test]
    fn node_filters_become_api_parameters() {
        let Command::Nodes(nodes) = invocation(
            &[
                "nodes",
                "--type=a,b",
                "--state=stale",
                "-l",
                "x in (y,z)",
                "--sort-by=free",
            ],
            Terminal::Plain,
        )
        .command
        else {
            panic!("another command");
        };
        assert_eq!(
            nodes.filter.parameters(),
            [
                ("type", "a"),
                ("type", "b"),
                ("state", "stale"),
                ("selector", "x in (y,z)")
            ]
        );
        assert_eq!(nodes.sort_by.parameter(), "-free");
        assert!(refusal(&["nodes", "--state=fine"]).contains("possible values: empty, ok"));
        assert!(refusal(&["nodes", "--limit=0"]).contains("invalid value '0'"));
        assert!(refusal(&["nodes", "--limit=5", "-w"]).contains("cannot be used with"));
    }

    #[test]
    fn diff_rejects_output_format() {
        assert!(refusal(&["labels", "--diff=x", "-o", "json"]).contains("cannot be used with"));
    }
}
