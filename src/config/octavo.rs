//! Settings of the `octavo` command line.

mod args;

use std::env;
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::PathBuf;

use clap::ValueEnum;

use self::args::OctavoArgs;
pub use self::args::completion_script;
use super::hardware::HardwareSettings;
use super::labels::LabelSettings;
use super::{Answer, parse};

/// What is asked of the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation {
    command: Command,
    colors: Colors,
}

/// The commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// `octavo inspect`.
    Inspect(InspectSettings),
    /// `octavo labels`.
    Labels(LabelsSettings),
    /// `octavo completion`.
    Completion(Shell),
}

/// What `octavo inspect` runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectSettings {
    source: Source,
    format: InspectFormat,
    headers: Headers,
}

/// What `octavo labels` runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelsSettings {
    source: Source,
    labels: LabelSettings,
    purpose: LabelsPurpose,
}

/// What to do with the labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelsPurpose {
    /// Print them.
    Print(LabelsFormat),
    /// Compare them with those in a file.
    Diff(Input),
}

/// Where an inventory comes from.
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
    /// A row of headers, and what stands above and below the table.
    Shown,
    /// The rows alone.
    Hidden,
}

/// Whether output is coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colors {
    /// ANSI colours.
    On,
    /// None.
    Off,
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

/// Whether standard output is a place for colours, when nobody said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Terminal {
    /// A terminal that shows colours to somebody who did not ask for none.
    Colorful,
    /// A file, a pipe, a dumb terminal, or one whose owner set `NO_COLOR`.
    Plain,
}

impl Invocation {
    /// What the arguments and the environment of this process ask for.
    pub fn from_process() -> Result<Self, Answer> {
        parse::<OctavoArgs, _>(env::args_os())?.resolve(Terminal::of_process())
    }

    /// What `arguments` ask for, program name first.
    pub fn from_arguments<A>(
        arguments: impl IntoIterator<Item = A>,
        terminal: Terminal,
    ) -> Result<Self, Answer>
    where
        A: Into<OsString> + Clone,
    {
        parse::<OctavoArgs, _>(arguments)?.resolve(terminal)
    }

    /// The command.
    pub fn command(&self) -> &Command {
        &self.command
    }

    /// Whether output is coloured.
    pub fn colors(&self) -> Colors {
        self.colors
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
        if io::stdout().is_terminal() && !set("NO_COLOR") && !dumb {
            Self::Colorful
        } else {
            Self::Plain
        }
    }
}

impl InspectSettings {
    /// Where the inventory comes from.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// How it is printed.
    pub fn format(&self) -> InspectFormat {
        self.format
    }

    /// Whether more than rows is printed.
    pub fn headers(&self) -> Headers {
        self.headers
    }
}

impl LabelsSettings {
    /// Where the inventory comes from.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// How labels are made.
    pub fn labels(&self) -> LabelSettings {
        self.labels
    }

    /// What to do with them.
    pub fn purpose(&self) -> &LabelsPurpose {
        &self.purpose
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
    fn colours_follow_the_flag_and_then_the_terminal() {
        for (flag, terminal, colors) in [
            ("--color=auto", Terminal::Colorful, Colors::On),
            ("--color=auto", Terminal::Plain, Colors::Off),
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
    fn a_difference_has_one_form() {
        assert!(refusal(&["labels", "--diff=x", "-o", "json"]).contains("cannot be used with"));
    }
}
