//! Settings of the `octavo` command line: each group of arguments is one struct, which the commands use as it is parsed.

pub mod apply;
pub mod audit;
pub mod catalog;
pub mod command_groups;
mod completion;
pub mod cost;
pub mod demo;
pub mod doctor;
pub mod estimate;
pub mod fleet;
pub mod generate;
mod go_flags;
mod help_all;
pub mod input;
pub mod inspect;
pub mod layouts;
pub mod matching;
pub mod mig_parted;
pub mod migration;
mod plugin;
pub mod policy;
pub mod prices;
pub mod profiles;
pub mod quota_check;
pub mod sharing;
pub mod simulate;
pub mod slo;
pub mod source;
pub mod support_bundle;
pub mod top;
pub mod usage;
pub mod validate;
pub mod version;

use std::env;
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::Path;

use clap::builder::{BoolValueParser, TypedValueParser};
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use octavo_settings::{EarlyExit, parse_as};
pub use octavo_terminal::style::Colors;
pub use octavo_terminal::text::Headers;
use octavo_toolkit::choice::{Choice, choice};

use self::apply::{ApplySettings, CheckpointSettings, HistorySettings, RestoreSettings};
use self::audit::AuditCommand;
use self::catalog::CatalogCommand;
use self::command_groups::group_subcommands;
pub use self::completion::{
    answer_completion, answer_limit, completion_script, flag_value, mig_parted_completion_script,
    server_of,
};
use self::cost::CostSettings;
use self::demo::DemoSettings;
use self::doctor::DoctorSettings;
use self::estimate::EstimateCommand;
use self::fleet::{
    AvailabilitySettings, DemandSettings, NodeSettings, NodesSettings, TypesSettings, WatchSettings,
};
use self::generate::GenerateCommand;
pub use self::input::Input;
use self::inspect::{InspectSettings, LabelsSettings};
use self::layouts::{ExportSettings, LayoutRequest, LayoutsCommand, PlanSettings};
use self::matching::MatchSettings;
use self::mig_parted::{MigPartedSettings, NvidiaMigPartedArgs};
use self::migration::MigrateCommand;
use self::plugin::{PLUGIN_NAME, as_plugin};
use self::policy::PolicyCommand;
use self::prices::PricesCommand;
use self::profiles::ProfilesCommand;
use self::quota_check::QuotaCheckSettings;
use self::sharing::SharingCommand;
use self::simulate::SimulateSettings;
use self::slo::SloSettings;
use self::support_bundle::SupportBundleSettings;
use self::top::TopSettings;
use self::usage::UsageSettings;
use self::validate::{PodDevicesSettings, ValidateSettings};
use self::version::VersionSettings;

/// Manage the accelerators of Kubernetes nodes, and query the fleet
#[derive(Debug, Clone, Parser)]
#[command(
    name = "octavo",
    version,
    after_long_help = include_str!("../help/octavo.txt"),
    subcommand_required = true,
    arg_required_else_help = true
)]
struct OctavoArgs {
    #[command(subcommand)]
    command: Command,

    /// When to use colors; `auto` respects `NO_COLOR` and `TERM=dumb`
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    color: ColorArg,
}

/// The commands.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Show the accelerators of this node
    #[command(after_long_help = include_str!("../help/inspect.txt"))]
    Inspect(InspectSettings),
    /// Show the labels of this node's accelerators
    #[command(after_long_help = include_str!("../help/labels.txt"))]
    Labels(LabelsSettings),
    /// Diagnose why accelerators of a node are not available to pods
    #[command(after_long_help = include_str!("../help/doctor.txt"))]
    Doctor(DoctorSettings),
    /// Collect status, diagnosis and logs in an archive
    #[command(after_long_help = include_str!("../help/support-bundle.txt"))]
    SupportBundle(SupportBundleSettings),
    /// Preview the changes that a layout would make on this node
    #[command(after_long_help = include_str!("../help/plan.txt"))]
    Plan(PlanSettings),
    /// Apply a layout to this node
    #[command(after_long_help = include_str!("../help/apply.txt"))]
    Apply(ApplySettings),
    /// Show past changes of this node's partitions, with errors
    #[command(after_long_help = include_str!("../help/history.txt"))]
    History(HistorySettings),
    /// Save the partitions of this node, with their placements
    #[command(after_long_help = include_str!("../help/checkpoint.txt"))]
    Checkpoint(CheckpointSettings),
    /// Restore the partitions saved in a checkpoint
    #[command(after_long_help = include_str!("../help/checkpoint.txt"))]
    Restore(RestoreSettings),
    /// Check whether this node matches a layout
    #[command(after_long_help = include_str!("../help/assert.txt"))]
    Assert(LayoutRequest),
    /// Print the partitions of this node as a layout
    #[command(after_long_help = include_str!("../help/export.txt"))]
    Export(ExportSettings),
    /// Check, show and generate layout files
    #[command(subcommand, after_long_help = include_str!("../help/layouts.txt"))]
    Layouts(LayoutsCommand),
    /// Show the resources that a layout offers to pods
    #[command(subcommand, after_long_help = include_str!("../help/sharing.txt"))]
    Sharing(SharingCommand),
    /// Compare placements of MIG instances for a trace of requests
    #[command(after_long_help = include_str!("../help/simulate.txt"))]
    Simulate(SimulateSettings),
    /// Look up accelerator products by name
    #[command(subcommand, after_long_help = include_str!("../help/catalog.txt"))]
    Catalog(CatalogCommand),
    /// Check price books, and exchange prices with other programs
    #[command(subcommand, after_long_help = include_str!("../help/prices.txt"))]
    Prices(PricesCommand),
    /// Run as NVIDIA's mig-parted, with the same commands and flags
    #[command(after_long_help = include_str!("../help/mig-parted.txt"))]
    MigParted(MigPartedSettings),
    /// List the nodes of the fleet
    #[command(after_long_help = include_str!("../help/nodes.txt"))]
    Nodes(NodesSettings),
    /// List the accelerator types of the fleet
    #[command(after_long_help = include_str!("../help/types.txt"))]
    Types(TypesSettings),
    /// Show free capacity per type, and why the rest is unavailable
    #[command(after_long_help = include_str!("../help/availability.txt"))]
    Availability(AvailabilitySettings),
    /// Show MIG instances that would place pending pods
    #[command(after_long_help = include_str!("../help/demand.txt"))]
    Demand(DemandSettings),
    /// Show one node of the fleet
    #[command(after_long_help = include_str!("../help/node.txt"))]
    Node(NodeSettings),
    /// List, check and create hardware profiles
    #[command(subcommand, after_long_help = include_str!("../help/profiles.txt"))]
    Profiles(ProfilesCommand),
    /// Roll out layouts, labels and taints to nodes
    #[command(subcommand, after_long_help = include_str!("../help/policy.txt"))]
    Policy(PolicyCommand),
    /// Find accelerators that meet a pod's requirements
    #[command(after_long_help = include_str!("../help/match.txt"))]
    Match(MatchSettings),
    /// Estimate training time, decoding speed and cost
    #[command(subcommand, after_long_help = include_str!("../help/estimate.txt"))]
    Estimate(EstimateCommand),
    /// Find the cheapest measured hardware that meets objectives
    #[command(after_long_help = include_str!("../help/slo.txt"))]
    Slo(SloSettings),
    /// Generate queues, quotas and machine pools from the nodes
    #[command(subcommand, after_long_help = include_str!("../help/generate.txt"))]
    Generate(GenerateCommand),
    /// Check EC2 quotas for instances of the fleet and new ones
    #[command(after_long_help = include_str!("../help/quota-check.txt"))]
    QuotaCheck(QuotaCheckSettings),
    /// Migrate from another program to layouts and policies
    #[command(subcommand, after_long_help = include_str!("../help/migrate.txt"))]
    Migrate(MigrateCommand),
    /// Count allocated devices by namespace and type
    #[command(after_long_help = include_str!("../help/usage.txt"))]
    Usage(UsageSettings),
    /// Report device hours and cost over a time
    #[command(after_long_help = include_str!("../help/cost.txt"))]
    Cost(CostSettings),
    /// Export and verify the audit trail of usage and changes
    #[command(subcommand, after_long_help = include_str!("../help/audit.txt"))]
    Audit(AuditCommand),
    /// Validate with pods that accelerators of nodes can be allocated
    #[command(after_long_help = include_str!("../help/validate.txt"))]
    Validate(ValidateSettings),
    /// Show the accelerators that this container sees
    #[command(after_long_help = include_str!("../help/pod-devices.txt"))]
    PodDevices(PodDevicesSettings),
    /// Watch the fleet for changes
    #[command(after_long_help = include_str!("../help/watch.txt"))]
    Watch(WatchSettings),
    /// Show live usage by pod
    Top(TopSettings),
    /// Show the versions of command, aggregator and agents
    #[command(after_long_help = include_str!("../help/version.txt"))]
    Version(VersionSettings),
    /// Run a simulated fleet on this machine
    #[command(after_long_help = include_str!("../help/demo.txt"))]
    Demo(DemoSettings),
    /// Print a completion script
    Completion {
        /// Shell to generate the script for
        #[arg(value_parser = choice(SHELLS))]
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
    /// Characters that the user's locale has.
    pub charset: Charset,
}

/// Characters that can be printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charset {
    /// ASCII.
    Ascii,
    /// All characters.
    Utf8,
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
const SHELLS: &[Choice<Shell>] = &[
    ("bash", "GNU Bash", Shell::Bash),
    ("zsh", "Z shell", Shell::Zsh),
    ("fish", "fish", Shell::Fish),
];

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

/// Parses a flag that hides headers.
fn headers() -> impl TypedValueParser<Value = Headers> {
    BoolValueParser::new().map(|hidden| if hidden { Headers::Hidden } else { Headers::Shown })
}

impl Terminal {
    #[expect(clippy::disallowed_methods, reason = "this module is the reader of the environment")]
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

impl Charset {
    #[expect(clippy::disallowed_methods, reason = "this module is the reader of the environment")]
    fn of_process() -> Self {
        let variables = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter();
        let mut values = variables.filter_map(|name| env::var(name).ok());
        Self::of_locale(&values.find(|value| !value.is_empty()).unwrap_or_default())
    }

    /// Returns the character set of a locale such as `en_US.UTF-8`.
    fn of_locale(locale: &str) -> Self {
        let locale = locale.to_ascii_lowercase();
        let is_utf8 = locale.contains("utf-8") || locale.contains("utf8");
        if is_utf8 { Self::Utf8 } else { Self::Ascii }
    }
}

impl Invocation {
    /// Parses the arguments and the environment of this process.
    pub fn from_process() -> Result<Self, EarlyExit> {
        Self::from_arguments(env::args_os(), Terminal::of_process())
    }

    /// Parses `arguments`, program name first.
    pub fn from_arguments<A>(
        arguments: impl IntoIterator<Item = A>,
        terminal: Terminal,
    ) -> Result<Self, EarlyExit>
    where
        A: Into<OsString>,
    {
        let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
        let program = arguments.first().map(Path::new).and_then(Path::file_name);
        if program.is_some_and(|name| name == mig_parted::NAME) {
            let arguments = go_flags::with_two_dashes(arguments);
            let parsed =
                parse_as::<NvidiaMigPartedArgs, _>(NvidiaMigPartedArgs::command(), arguments);
            let parsed = parsed.map_err(|error| EarlyExit::from(error).into_failure())?;
            return Ok(Self {
                command: Command::MigParted(parsed.settings),
                colors: Colors::Off,
                screen: OutputMode::Append,
                charset: Charset::Ascii,
            });
        }
        let command = if program.is_some_and(|name| name == PLUGIN_NAME) {
            as_plugin(octavo_command())
        } else {
            octavo_command()
        };
        let (command, arguments) = help_all::collapse(command, arguments);
        if mig_parted::is_mig_parted(&arguments) {
            let arguments = go_flags::with_two_dashes(arguments);
            let parsed = parse_as::<OctavoArgs, _>(command, arguments).map_err(EarlyExit::from);
            let parsed = parsed.map_err(EarlyExit::into_failure)?;
            return parsed.resolve(terminal);
        }
        parse_as::<OctavoArgs, _>(command, arguments)?.resolve(terminal)
    }
}

/// Returns the description of `octavo`: its subcommands and options with their help.
pub fn octavo_command() -> clap::Command {
    help_all::add_flag(group_subcommands(OctavoArgs::command()))
}

/// Returns the description of `nvidia-mig-parted`.
pub fn mig_parted_command() -> clap::Command {
    NvidiaMigPartedArgs::command()
}

impl OctavoArgs {
    fn resolve(self, terminal: Terminal) -> Result<Invocation, EarlyExit> {
        let refused = |message| EarlyExit::usage(&mut Self::command(), message);
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
            charset: Charset::of_process(),
        })
    }
}

impl Command {
    /// Returns an error for a combination of arguments that clap cannot detect.
    fn check(&self) -> Result<(), &'static str> {
        match self {
            Self::Labels(settings) => settings.check(),
            Self::Doctor(settings) => settings.sources.check(),
            Self::SupportBundle(settings) => settings.sources.check(),
            Self::Plan(PlanSettings { request, .. }) | Self::Assert(request) => request.check(),
            Self::Layouts(command) => command.check(),
            Self::Sharing(command) => command.check(),
            Self::Simulate(settings) => settings.check(),
            Self::Generate(command) => command.check(),
            Self::Migrate(MigrateCommand::GpuOperator(settings)) => settings.check(),
            Self::Inspect(_)
            | Self::Apply(_)
            | Self::History(_)
            | Self::Checkpoint(_)
            | Self::Restore(_)
            | Self::Export(_)
            | Self::Catalog(_)
            | Self::Prices(_)
            | Self::MigParted(_)
            | Self::Nodes(_)
            | Self::Types(_)
            | Self::Availability(_)
            | Self::Demand(_)
            | Self::Node(_)
            | Self::Profiles(_)
            | Self::Policy(_)
            | Self::Match(_)
            | Self::Estimate(_)
            | Self::Slo(_)
            | Self::QuotaCheck(_)
            | Self::Usage(_)
            | Self::Cost(_)
            | Self::Audit(_)
            | Self::Validate(_)
            | Self::PodDevices(_)
            | Self::Watch(_)
            | Self::Top(_)
            | Self::Version(_)
            | Self::Demo(_)
            | Self::Completion { .. } => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fleet::NodeOrder;
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
    fn dash_is_standard_input_and_can_be_read_once() {
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
            Invocation::from_arguments(arguments, Terminal::Plain).unwrap_err().to_string()
        };
        let help = text("/usr/local/bin/kubectl-octavo", &["nodes", "--help"]);
        assert!(help.contains("Usage: kubectl octavo nodes [OPTIONS]"), "{help}");
        assert!(help.contains("\n  kubectl octavo nodes --sort-by free\n"), "{help}");
        let own = text("/usr/local/bin/octavo", &["nodes", "--help"]);
        assert!(!own.contains("kubectl octavo"), "{own}");
    }

    #[test]
    fn node_filters_become_api_parameters() {
        let Command::Nodes(nodes) = invocation(
            &["nodes", "--type=a,b", "--state=stale", "-l", "x in (y,z)", "--sort-by=free"],
            Terminal::Plain,
        )
        .command
        else {
            panic!("another command");
        };
        assert_eq!(
            nodes.filter.parameters(),
            [("type", "a"), ("type", "b"), ("state", "stale"), ("selector", "x in (y,z)")]
        );
        assert_eq!(nodes.order.parameter(), "-free");
        assert_eq!(NodeOrder { reverse: true, ..nodes.order }.parameter(), "free");
        assert!(
            refusal(&["nodes", "--state=fine"]).contains("possible values: empty, passthrough, ok")
        );
        assert!(refusal(&["nodes", "--limit=0"]).contains("invalid value '0'"));
        assert!(refusal(&["nodes", "--limit=5", "-w"]).contains("cannot be used with"));
    }

    #[test]
    fn charset_follows_the_locale() {
        for (locale, charset) in [
            ("en_US.UTF-8", Charset::Utf8),
            ("C.utf8", Charset::Utf8),
            ("C", Charset::Ascii),
            ("de_DE.ISO-8859-1", Charset::Ascii),
            ("", Charset::Ascii),
        ] {
            assert_eq!(Charset::of_locale(locale), charset, "{locale}");
        }
    }

    #[test]
    fn diff_rejects_output_format() {
        assert!(refusal(&["labels", "--diff=x", "-o", "json"]).contains("cannot be used with"));
    }
}
