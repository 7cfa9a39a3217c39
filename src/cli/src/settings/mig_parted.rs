//! Settings of `nvidia-mig-parted`, which is also `octavo mig-parted`.
//!
//! Names, short names and variables are those of mig-parted v0.15.0, `cmd/nvidia-mig-parted`; additional ones are below
//! the headings of Octavo's own commands.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand, ValueHint};
use clap_complete::Shell;
use octavo_settings::duration;
use octavo_settings::engine::EngineSettings;
use octavo_settings::hardware::HardwareSettings;
use octavo_toolkit::choice::{Choice, choice};

use super::SHELLS;
use super::go_flags::boolean;
use super::input::Input;
use super::layouts::DocumentFormat;

/// Name under which this program behaves as NVIDIA's.
pub(super) const NAME: &str = "nvidia-mig-parted";

/// Output formats, in the order of mig-parted.
const FORMATS: &[Choice<DocumentFormat>] =
    &[("json", "JSON", DocumentFormat::Json), ("yaml", "YAML", DocumentFormat::Yaml)];

/// Manage MIG partitions across all NVIDIA GPUs of a node
#[derive(Debug, Clone, Parser)]
#[command(
    name = "nvidia-mig-parted",
    version,
    after_long_help = include_str!("../../help/mig-parted.txt"),
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

    /// Log each step, and show the output of hooks
    #[arg(
        short = 'd',
        long,
        global = true,
        env = "MIG_PARTED_DEBUG",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true",
        value_parser = boolean,
        hide_default_value = true,
        value_name = "BOOL"
    )]
    pub debug: bool,

    /// Reproduce mig-parted's harmless quirks, listed in docs/tasks/migrate-from-mig-parted.md
    #[arg(
        long,
        global = true,
        env = "OCTAVO_STRICT_COMPAT",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true",
        value_parser = boolean,
        hide_default_value = true,
        value_name = "BOOL"
    )]
    pub strict_compat: bool,
}

/// The commands.
#[derive(Debug, Clone, Subcommand)]
pub enum MigPartedCommand {
    /// Apply a configuration to the GPUs of this node
    #[command(after_long_help = include_str!("../../help/mig-parted-apply.txt"))]
    Apply(Box<ApplySettings>),
    /// Check whether the GPUs of this node match a configuration
    Assert(AssertSettings),
    /// Print the partitions of this node's GPUs as a configuration
    Export(ExportSettings),
    /// Save the partitions of this node's GPUs, with their placements
    Checkpoint(CheckpointSettings),
    /// Restore the partitions saved in a checkpoint
    Restore(Box<RestoreSettings>),
    /// Generate configurations that the GPUs of this node support
    GenerateConfig(GenerateSettings),
    /// Print a completion script
    Completion {
        /// The shell to complete in
        #[arg(value_parser = choice(SHELLS))]
        shell: Shell,
    },
}

/// A configuration.
#[derive(Debug, Clone, Args)]
pub struct ConfigSettings {
    /// Configuration file; - for standard input
    #[arg(
        short = 'f',
        long,
        value_name = "FILE",
        value_hint = ValueHint::AnyPath,
        env = "MIG_PARTED_CONFIG_FILE",
    )]
    pub config_file: Input,

    /// Name of the configuration; optional if the file has only one
    #[arg(short = 'c', long, value_name = "NAME", env = "MIG_PARTED_SELECTED_CONFIG")]
    pub selected_config: Option<String>,
}

/// Part of a configuration to use.
#[derive(Debug, Clone, Args)]
pub struct ModeSettings {
    /// Use only MIG modes, not partitions
    #[arg(
        short = 'm',
        long,
        env = "MIG_PARTED_MODE_CHANGE_ONLY",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true",
        value_parser = boolean,
        hide_default_value = true,
        value_name = "BOOL"
    )]
    pub mode_only: bool,
}

/// Programs that run around a change.
#[derive(Debug, Clone, Args)]
pub struct HooksSettings {
    /// Hooks file
    #[arg(short = 'k', long, value_name = "FILE", env = "MIG_PARTED_HOOKS_FILE")]
    pub hooks_file: Option<PathBuf>,

    /// Maximum duration of one hook
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

    /// Skip required GPU resets; the new MIG mode stays pending until a reset
    #[arg(
        short = 's',
        long,
        env = "MIG_PARTED_SKIP_RESET",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true",
        value_parser = boolean,
        hide_default_value = true,
        value_name = "BOOL"
    )]
    pub skip_reset: bool,

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

    /// Only validate the file and check that it has the configuration; inspect no GPU
    #[arg(
        short = 'a',
        long,
        env = "MIG_PARTED_VALID_CONFIG",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true",
        value_parser = boolean,
        hide_default_value = true,
        value_name = "BOOL"
    )]
    pub valid_config: bool,

    /// Paths of the hardware.
    #[command(flatten)]
    pub hardware: HardwareSettings,
}

/// Output format.
#[derive(Debug, Clone, Args)]
pub struct FormatSettings {
    /// Output format
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

    /// Name of the configuration
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
    /// Checkpoint file; - for standard output or input
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
    /// File to write [default: standard output]
    #[arg(short = 'f', long, value_name = "FILE", env = "MIG_PARTED_OUTPUT_FILE")]
    pub output_file: Option<PathBuf>,

    /// Output format.
    #[command(flatten)]
    pub output: FormatSettings,

    /// Paths of the hardware.
    #[command(flatten)]
    pub hardware: HardwareSettings,
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
    #[expect(clippy::disallowed_methods, reason = "settings read the environment")]
    pub fn search_path(&self) -> Vec<PathBuf> {
        let path = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&path).filter(|directory| directory.is_absolute()).collect()
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
        assert!(apply.run.mode.mode_only && apply.skip_reset);
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
        assert!(settings.debug);
        let MigPartedCommand::Assert(assert) = &settings.command else {
            panic!("{settings:?}");
        };
        assert_eq!(assert.config.config_file, Input::Stdin);
        assert_eq!(assert.config.selected(), None);
        assert!(!assert.valid_config);
    }

    #[test]
    fn usage_error_has_the_general_failure_code() {
        for (arguments, kind) in [
            (&["nvidia-mig-parted", "apply"][..], EarlyExitKind::Failure),
            (&["octavo", "--color=never", "mig-parted", "frob"], EarlyExitKind::Failure),
            (&["octavo", "mig-parted", "apply", "--help"], EarlyExitKind::Requested),
            (&["octavo", "apply", "mig-parted", "--frob"], EarlyExitKind::UsageError),
        ] {
            let answer = Invocation::from_arguments(arguments, Terminal::Plain).unwrap_err();
            assert_eq!(answer.kind(), kind, "{arguments:?}");
        }
    }
}
