//! Settings of `nvidia-mig-parted`, which is also `octavo mig-parted`.
//!
//! Names, short names and variables are those of mig-parted v0.15.0, `cmd/nvidia-mig-parted`; additional ones are below
//! the headings of Octavo's own commands.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueHint};
use octavo_settings::duration;
use octavo_settings::engine::EngineSettings;
use octavo_settings::hardware::HardwareSettings;

use super::Shell;
use super::choice::{Choice, choice};
use super::go_flags::boolean;
use super::input::Input;
use super::layouts::DocumentFormat;

/// Name under which this program behaves as NVIDIA's.
pub(super) const NAME: &str = "nvidia-mig-parted";

pub(super) const EXAMPLES: &str = "\
Examples:
  # Give the GPUs of this node a configuration, and run hooks around it
  nvidia-mig-parted apply -f config.yaml -c all-balanced -k hooks.yaml

  # Do they have it?
  nvidia-mig-parted assert -f config.yaml -c all-balanced

  # What they have, as a configuration
  nvidia-mig-parted export

  # What would `apply` change? Nothing is touched
  octavo plan all-balanced -f config.yaml

Exit codes: 0 done, 1 anything else. docs/migration.md says what differs from NVIDIA's program.";

const APPLY_EXAMPLES: &str = "\
Examples:
  # A configuration from a file, by its name
  nvidia-mig-parted apply -f config.yaml -c all-1g.5gb

  # The only one of a file that comes from somewhere else
  generate | nvidia-mig-parted apply -f -

  # MIG modes alone, and no reset where one is needed
  nvidia-mig-parted apply -f config.yaml -c all-enabled --mode-only --skip-reset

An instance in use is never destroyed: its GPU stays as it is, the others are changed, and the exit code is 1.";

/// Output formats, in the order of mig-parted.
const FORMATS: &[Choice<DocumentFormat>] = &[
    ("json", "JSON", DocumentFormat::Json),
    ("yaml", "YAML", DocumentFormat::Yaml),
];

/// Manage MIG partitions across all NVIDIA GPUs of a node
#[derive(Debug, Clone, Parser)]
#[command(
    name = "nvidia-mig-parted",
    version,
    after_long_help = EXAMPLES,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct NvidiaMigPartedArgs {
    /// Arguments after the program name.
    #[command(flatten)]
    pub settings: MigPartedSettings,
}

/// Command line of mig-parted.
#[derive(Debug, Clone, Args)]
pub struct MigPartedSettings {
    /// The command.
    #[command(subcommand)]
    pub command: MigPartedCommand,

    /// Say what is being done, and show what hooks print
    #[arg(
        short = 'd',
        long = "debug",
        global = true,
        env = "MIG_PARTED_DEBUG",
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true",
        value_parser = boolean(Verbosity::Normal, Verbosity::Debug),
        hide_default_value = true,
        value_name = "BOOL"
    )]
    pub verbosity: Verbosity,

    /// Keep the harmless oddities of mig-parted, which docs/migration.md lists
    #[arg(
        long = "strict-compat",
        global = true,
        env = "OCTAVO_STRICT_COMPAT",
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true",
        value_parser = boolean(Compat::Lenient, Compat::Strict),
        hide_default_value = true,
        value_name = "BOOL"
    )]
    pub compat: Compat,
}

/// The commands.
#[derive(Debug, Clone, Subcommand)]
pub enum MigPartedCommand {
    /// Give the GPUs of this node a configuration
    #[command(after_long_help = APPLY_EXAMPLES)]
    Apply(Box<ApplySettings>),
    /// Tell whether the GPUs of this node have a configuration
    Assert(AssertSettings),
    /// Print what the GPUs of this node have as a configuration
    Export(ExportSettings),
    /// Write down what the GPUs of this node have, each instance in its place
    Checkpoint(CheckpointSettings),
    /// Bring back what a checkpoint has
    Restore(Box<RestoreSettings>),
    /// Print configurations that the GPUs of this node can have
    GenerateConfig(GenerateSettings),
    /// Print a completion script
    Completion {
        /// The shell to complete in
        shell: Shell,
    },
}

/// A configuration.
#[derive(Debug, Clone, Args)]
pub struct ConfigSettings {
    /// The file of configurations; - for standard input
    #[arg(
        short = 'f',
        long,
        value_name = "FILE",
        value_hint = ValueHint::AnyPath,
        env = "MIG_PARTED_CONFIG_FILE",
    )]
    pub config_file: Input,

    /// The configuration's name; not needed where the file has one only
    #[arg(
        short = 'c',
        long,
        value_name = "NAME",
        env = "MIG_PARTED_SELECTED_CONFIG"
    )]
    pub selected_config: Option<String>,
}

/// Part of a configuration to use.
#[derive(Debug, Clone, Args)]
pub struct ModeSettings {
    /// MIG modes alone, no partitions
    #[arg(
        short = 'm',
        long = "mode-only",
        env = "MIG_PARTED_MODE_CHANGE_ONLY",
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true",
        value_parser = boolean(ConfigScope::Full, ConfigScope::ModeOnly),
        hide_default_value = true,
        value_name = "BOOL"
    )]
    pub scope: ConfigScope,
}

/// Programs that run around a change.
#[derive(Debug, Clone, Args)]
pub struct HooksSettings {
    /// The file of hooks
    #[arg(short = 'k', long, value_name = "FILE", env = "MIG_PARTED_HOOKS_FILE")]
    pub hooks_file: Option<PathBuf>,

    /// The longest that one hook may take
    #[arg(
        long = "hook-timeout",
        value_name = "DURATION",
        env = "OCTAVO_HOOK_TIMEOUT",
        default_value = "5m",
        value_parser = duration::positive
    )]
    pub timeout: Duration,
}

/// Settings of a change of the node.
#[derive(Debug, Clone, Args)]
pub struct RunSettings {
    /// Part of the configuration.
    #[command(flatten)]
    pub mode: ModeSettings,

    /// How devices are changed.
    #[command(flatten)]
    pub engine: EngineSettings,

    /// Paths of the hardware.
    #[command(flatten)]
    pub hardware: HardwareSettings,
}

/// Settings of `apply`.
#[derive(Debug, Clone, Args)]
pub struct ApplySettings {
    /// The configuration.
    #[command(flatten)]
    pub config: ConfigSettings,

    /// The hooks.
    #[command(flatten)]
    pub hooks: HooksSettings,

    /// Leave a GPU alone that needs a reset: its new MIG mode waits for one
    #[arg(
        short = 's',
        long = "skip-reset",
        env = "MIG_PARTED_SKIP_RESET",
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true",
        value_parser = boolean(ResetPolicy::IfNeeded, ResetPolicy::Skipped),
        hide_default_value = true,
        value_name = "BOOL"
    )]
    pub reset: ResetPolicy,

    /// Settings of the change.
    #[command(flatten)]
    pub run: RunSettings,
}

/// Settings of `assert`.
#[derive(Debug, Clone, Args)]
pub struct AssertSettings {
    /// The configuration.
    #[command(flatten)]
    pub config: ConfigSettings,

    /// Part of the configuration.
    #[command(flatten)]
    pub mode: ModeSettings,

    /// Only whether the file can be read and has the configuration; no GPU is looked at
    #[arg(
        short = 'a',
        long = "valid-config",
        env = "MIG_PARTED_VALID_CONFIG",
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true",
        value_parser = boolean(AssertScope::Node, AssertScope::FileOnly),
        hide_default_value = true,
        value_name = "BOOL"
    )]
    pub validity: AssertScope,

    /// Paths of the hardware.
    #[command(flatten)]
    pub hardware: HardwareSettings,
}

/// Output format.
#[derive(Debug, Clone, Args)]
pub struct FormatSettings {
    /// In which form
    #[arg(
        short = 'o',
        long = "output-format",
        value_name = "FORMAT",
        env = "MIG_PARTED_OUTPUT_FORMAT",
        default_value = "yaml",
        value_parser = choice(FORMATS)
    )]
    pub format: DocumentFormat,
}

/// Settings of `export`.
#[derive(Debug, Clone, Args)]
pub struct ExportSettings {
    /// Output format.
    #[command(flatten)]
    pub output: FormatSettings,

    /// What the configuration is called
    #[arg(
        short = 'l',
        long = "config-label",
        value_name = "NAME",
        env = "MIG_PARTED_CONFIG_LABEL",
        default_value = "current"
    )]
    pub label: String,

    /// Paths of the hardware.
    #[command(flatten)]
    pub hardware: HardwareSettings,
}

/// A checkpoint.
#[derive(Debug, Clone, Args)]
pub struct CheckpointFile {
    /// The checkpoint; - for standard output or input
    #[arg(
        short = 'f',
        long,
        value_name = "FILE",
        value_hint = ValueHint::AnyPath,
        env = "MIG_PARTED_CHECKPOINT_FILE",
    )]
    pub checkpoint_file: Input,
}

/// Settings of `checkpoint`.
#[derive(Debug, Clone, Args)]
pub struct CheckpointSettings {
    /// The checkpoint.
    #[command(flatten)]
    pub checkpoint: CheckpointFile,

    /// Paths of the hardware.
    #[command(flatten)]
    pub hardware: HardwareSettings,
}

/// Settings of `restore`.
#[derive(Debug, Clone, Args)]
pub struct RestoreSettings {
    /// The checkpoint.
    #[command(flatten)]
    pub checkpoint: CheckpointFile,

    /// The hooks.
    #[command(flatten)]
    pub hooks: HooksSettings,

    /// Settings of the change.
    #[command(flatten)]
    pub run: RunSettings,
}

/// Settings of `generate-config`.
#[derive(Debug, Clone, Args)]
pub struct GenerateSettings {
    /// Where to write them; standard output unless given
    #[arg(short = 'f', long, value_name = "FILE", env = "MIG_PARTED_OUTPUT_FILE")]
    pub output_file: Option<PathBuf>,

    /// Output format.
    #[command(flatten)]
    pub output: FormatSettings,

    /// Paths of the hardware.
    #[command(flatten)]
    pub hardware: HardwareSettings,
}

/// Whether harmless deviations of the original are reproduced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compat {
    /// They are fixed.
    Lenient,
    /// They are reproduced.
    Strict,
}

/// Amount of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verbosity {
    /// Results only.
    Normal,
    /// Actions and the output of hooks, too.
    Debug,
}

/// Part of a configuration to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigScope {
    /// MIG modes.
    ModeOnly,
    /// All of it.
    Full,
}

/// Handling of a GPU that needs a reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetPolicy {
    /// It is reset, if it is not in use.
    IfNeeded,
    /// It is not reset, and the mode remains pending.
    Skipped,
}

/// Assertion to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AssertScope {
    /// The file is valid.
    FileOnly,
    /// The node has the configuration.
    Node,
}

impl ConfigSettings {
    /// Returns the configuration's name; `None` for the only one.
    pub fn selected(&self) -> Option<&str> {
        let name = self.selected_config.as_deref();
        name.filter(|name| !name.is_empty())
    }
}

impl HooksSettings {
    /// Returns the directories that are searched for a command without one: this process's `PATH`, except directories
    /// that depend on the working directory.
    #[expect(
        clippy::disallowed_methods,
        reason = "settings are what the environment is read for"
    )]
    pub fn search_path(&self) -> Vec<PathBuf> {
        let path = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&path)
            .filter(|folder| folder.is_absolute())
            .collect()
    }
}

/// Returns whether these arguments are for `octavo mig-parted`.
pub(super) fn is_mig_parted(arguments: &[OsString]) -> bool {
    let mut words = arguments.iter().skip(1);
    words.find(|word| !word.to_string_lossy().starts_with('-'))
        == Some(&OsString::from("mig-parted"))
}

#[cfg(test)]
mod tests {
    use octavo_settings::EarlyExitKind;

    use super::*;
    use crate::settings::{Command, Invocation, Terminal};

    fn parsed(arguments: &[&str]) -> MigPartedSettings {
        let invocation = Invocation::from_arguments(arguments, Terminal::Plain).unwrap();
        let Command::MigParted(settings) = invocation.command else {
            panic!("another command");
        };
        settings
    }

    #[test]
    fn program_name_and_subcommand_are_equivalent() {
        let rest = ["apply", "-f", "x.yaml", "-ms", "-c=y"];
        let one = parsed(&[&["/opt/bin/nvidia-mig-parted"], &rest[..]].concat());
        let other = parsed(&[&["octavo", "mig-parted"], &rest[..]].concat());
        assert_eq!(format!("{one:?}"), format!("{other:?}"));
        let MigPartedCommand::Apply(apply) = &one.command else {
            panic!("{one:?}");
        };
        assert_eq!(apply.config.selected(), Some("y"));
        assert_eq!(apply.run.mode.scope, ConfigScope::ModeOnly);
        assert_eq!(apply.reset, ResetPolicy::Skipped);
    }

    #[test]
    fn go_style_flags_are_accepted() {
        let settings = parsed(&[
            "nvidia-mig-parted",
            "-debug=T",
            "assert",
            "-config-file",
            "-",
            "-selected-config=",
            "-valid-config=0",
        ]);
        assert_eq!(settings.verbosity, Verbosity::Debug);
        let MigPartedCommand::Assert(assert) = &settings.command else {
            panic!("{settings:?}");
        };
        assert_eq!(assert.config.config_file, Input::Stdin);
        assert_eq!(assert.config.selected(), None);
        assert_eq!(assert.validity, AssertScope::Node);
    }

    #[test]
    fn usage_error_has_the_general_failure_code() {
        for (arguments, kind) in [
            (&["nvidia-mig-parted", "apply"][..], EarlyExitKind::Failure),
            (
                &["octavo", "--color=never", "mig-parted", "frob"],
                EarlyExitKind::Failure,
            ),
            (
                &["octavo", "mig-parted", "apply", "--help"],
                EarlyExitKind::Requested,
            ),
            (
                &["octavo", "apply", "mig-parted", "--frob"],
                EarlyExitKind::UsageError,
            ),
        ] {
            let answer = Invocation::from_arguments(arguments, Terminal::Plain).unwrap_err();
            assert_eq!(answer.kind(), kind, "{arguments:?}");
        }
    }
}
