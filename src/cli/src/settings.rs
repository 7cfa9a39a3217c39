//! Settings of the `octavo` command line.

pub mod apply;
mod args;
pub mod catalog;
pub mod demo;
pub mod doctor;
pub mod estimate;
pub mod fleet;
pub mod layouts;
pub mod matching;
pub mod mig_parted;
mod naming;
pub mod profiles;
pub mod server;
pub mod sharing;
pub mod slo;
pub mod top;
pub mod usage;

use std::env;
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::PathBuf;

use clap::ValueEnum;
use octavo_settings::Answer;
use octavo_settings::hardware::HardwareSettings;
use octavo_settings::labels::LabelSettings;

use self::apply::{ApplySettings, CheckpointSettings, HistorySettings, RestoreSettings};
pub use self::args::{completion_script, mig_parted_completion_script};
use self::catalog::CatalogCommand;
use self::demo::DemoSettings;
use self::doctor::DoctorSettings;
use self::estimate::EstimateSettings;
use self::fleet::{AvailabilitySettings, NodeSettings, NodesSettings, TypesSettings};
use self::layouts::{AssertSettings, ExportSettings, LayoutsCommand, PlanSettings};
use self::matching::MatchSettings;
use self::mig_parted::MigPartedSettings;
pub use self::naming::NamingSettings;
use self::profiles::ProfilesCommand;
use self::sharing::SharingCommand;
use self::slo::SloSettings;
use self::top::TopSettings;
use self::usage::UsageSettings;

/// Parsed command line.
#[derive(Debug, Clone, PartialEq)]
pub struct Invocation {
    command: Command,
    colors: Colors,
    screen: OutputMode,
}

/// The commands.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// `octavo inspect`.
    Inspect(InspectSettings),
    /// `octavo labels`.
    Labels(LabelsSettings),
    /// `octavo doctor`.
    Doctor(DoctorSettings),
    /// `octavo plan`.
    Plan(PlanSettings),
    /// `octavo apply`.
    Apply(ApplySettings),
    /// `octavo history`.
    History(HistorySettings),
    /// `octavo checkpoint`.
    Checkpoint(CheckpointSettings),
    /// `octavo restore`.
    Restore(RestoreSettings),
    /// `octavo assert`.
    Assert(AssertSettings),
    /// `octavo export`.
    Export(ExportSettings),
    /// `octavo layouts`.
    Layouts(LayoutsCommand),
    /// `octavo sharing`.
    Sharing(SharingCommand),
    /// `octavo catalog`.
    Catalogue(CatalogCommand),
    /// `octavo mig-parted`, and `nvidia-mig-parted`.
    MigParted(MigPartedSettings),
    /// `octavo nodes`.
    Nodes(NodesSettings),
    /// `octavo types`.
    Types(TypesSettings),
    /// `octavo availability`.
    Availability(AvailabilitySettings),
    /// `octavo node`.
    Node(NodeSettings),
    /// `octavo profiles`.
    Profiles(ProfilesCommand),
    /// `octavo match`.
    Match(MatchSettings),
    /// `octavo estimate`.
    Estimate(Box<EstimateSettings>),
    /// `octavo slo`.
    Slo(SloSettings),
    /// `octavo usage`.
    Usage(UsageSettings),
    /// `octavo watch`, and `octavo nodes --watch`.
    Watch(NodesSettings),
    /// `octavo top`.
    Top(TopSettings),
    /// `octavo demo`.
    Demo(DemoSettings),
    /// `octavo completion`.
    Completion(Shell),
}

/// Settings of `octavo inspect`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectSettings {
    source: Source,
    format: InspectFormat,
    headers: Headers,
    naming: NamingSettings,
}

/// Settings of `octavo labels`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelsSettings {
    source: Source,
    labels: LabelSettings,
    purpose: LabelsPurpose,
    naming: NamingSettings,
}

/// Use of the labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelsPurpose {
    /// Print them.
    Print(LabelsFormat),
    /// Compare them with those in a file.
    Diff(Input),
}

/// Source of an inventory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// This machine.
    Machine(HardwareSettings),
    /// A recording.
    Recording(Input),
}

/// A file to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Standard input.
    Stdin,
    /// A file.
    File(PathBuf),
}

/// How an inventory is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum InspectFormat {
    /// A table, then a picture of each GPU's slices
    Table,
    /// The same with more columns
    Wide,
    /// The inventory as JSON, which --from reads
    Json,
    /// The inventory as YAML, which --from reads
    Yaml,
    /// The name of each device and nothing else
    Name,
}

/// How labels are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LabelsFormat {
    /// Lines of key=value
    Table,
    /// An object of labels
    Json,
    /// The same as YAML
    Yaml,
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

impl Invocation {
    /// Parses the arguments and the environment of this process.
    pub fn from_process() -> Result<Self, Answer> {
        args::invocation(env::args_os(), Terminal::of_process())
    }

    /// Parses `arguments`, program name first.
    pub fn from_arguments<A>(
        arguments: impl IntoIterator<Item = A>,
        terminal: Terminal,
    ) -> Result<Self, Answer>
    where
        A: Into<OsString> + Clone,
    {
        args::invocation(arguments, terminal)
    }

    /// Returns the command.
    pub fn command(&self) -> &Command {
        &self.command
    }

    /// Returns whether output is colored.
    pub fn colors(&self) -> Colors {
        self.colors
    }

    /// Returns whether printed output can be overwritten.
    pub fn screen(&self) -> OutputMode {
        self.screen
    }
}

impl Headers {
    fn hidden_if(hidden: bool) -> Self {
        if hidden { Self::Hidden } else { Self::Shown }
    }
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

impl InspectSettings {
    /// Returns the source of the inventory.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Returns the output format.
    pub fn format(&self) -> InspectFormat {
        self.format
    }

    /// Returns whether more than rows is printed.
    pub fn headers(&self) -> Headers {
        self.headers
    }

    /// Returns the settings of device names.
    pub fn naming(&self) -> &NamingSettings {
        &self.naming
    }
}

impl LabelsSettings {
    /// Returns the source of the inventory.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Returns the settings of labels.
    pub fn labels(&self) -> LabelSettings {
        self.labels
    }

    /// Returns the use of the labels.
    pub fn purpose(&self) -> &LabelsPurpose {
        &self.purpose
    }

    /// Returns the settings of device names.
    pub fn naming(&self) -> &NamingSettings {
        &self.naming
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(invocation(&["inspect", flag], terminal).colors(), colors);
        }
    }

    #[test]
    fn a_dash_is_standard_input_and_can_be_read_once() {
        let Command::Inspect(inspect) =
            invocation(&["inspect", "--from=-"], Terminal::Plain).command
        else {
            panic!("another command");
        };
        assert_eq!(inspect.source(), &Source::Recording(Input::Stdin));
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
            nodes.filter().parameters(),
            [
                ("type", "a"),
                ("type", "b"),
                ("state", "stale"),
                ("selector", "x in (y,z)"),
                ("sort", "-free")
            ]
        );
        assert!(refusal(&["nodes", "--state=fine"]).contains("possible values: empty, ok"));
        assert!(refusal(&["nodes", "--limit=0"]).contains("invalid value '0'"));
        assert!(refusal(&["nodes", "--limit=5", "-w"]).contains("cannot be used with"));
    }

    #[test]
    fn diff_rejects_output_format() {
        assert!(refusal(&["labels", "--diff=x", "-o", "json"]).contains("cannot be used with"));
    }
}
