//! Command-line arguments of `nvidia-mig-parted`. Names, short names and variables are those of mig-parted v0.15.0,
//! `cmd/nvidia-mig-parted`; additional ones are below the headings of Octavo's own commands.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use octavo_settings::duration;
use octavo_settings::engine::EngineSettings;
use octavo_settings::hardware::HardwareSettings;

use crate::settings::Shell;

pub(in crate::settings) const EXAMPLES: &str = "\
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

/// Manage MIG partitions across all NVIDIA GPUs of a node
#[derive(Debug, Parser)]
#[command(
    name = "nvidia-mig-parted",
    version,
    after_long_help = EXAMPLES,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(in crate::settings) struct NvidiaMigPartedArgs {
    #[command(flatten)]
    pub(super) args: MigPartedArgs,
}

#[derive(Debug, Args)]
pub(in crate::settings) struct MigPartedArgs {
    #[command(subcommand)]
    pub(super) verb: MigPartedCommandArgs,

    /// Say what is being done, and show what hooks print
    #[arg(
        short,
        long,
        global = true,
        env = "MIG_PARTED_DEBUG",
        hide_env_values = true,
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true",
        value_parser = boolean,
        hide_default_value = true,
        value_name = "BOOL"
    )]
    pub(super) debug: bool,

    /// Keep the harmless oddities of mig-parted, which docs/migration.md lists
    #[arg(
        long,
        global = true,
        env = "OCTAVO_STRICT_COMPAT",
        hide_env_values = true,
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true",
        value_parser = boolean,
        hide_default_value = true,
        value_name = "BOOL"
    )]
    pub(super) strict_compat: bool,
}

#[derive(Debug, Subcommand)]
pub(super) enum MigPartedCommandArgs {
    /// Give the GPUs of this node a configuration
    #[command(after_long_help = APPLY_EXAMPLES)]
    Apply(Box<ApplyArgs>),
    /// Tell whether the GPUs of this node have a configuration
    Assert(AssertArgs),
    /// Print what the GPUs of this node have as a configuration
    Export(ExportArgs),
    /// Write down what the GPUs of this node have, each instance in its place
    Checkpoint(CheckpointArgs),
    /// Bring back what a checkpoint has
    Restore(Box<RestoreArgs>),
    /// Print configurations that the GPUs of this node can have
    GenerateConfig(GenerateArgs),
    /// Print a completion script
    Completion {
        /// The shell to complete in
        shell: Shell,
    },
}

#[derive(Debug, Args)]
pub(super) struct ConfigArgs {
    /// The file of configurations; - for standard input
    #[arg(
        short = 'f',
        long,
        value_name = "FILE",
        env = "MIG_PARTED_CONFIG_FILE",
        hide_env_values = true
    )]
    pub(super) config_file: PathBuf,

    /// The configuration's name; not needed where the file has one only
    #[arg(
        short = 'c',
        long,
        value_name = "NAME",
        env = "MIG_PARTED_SELECTED_CONFIG",
        hide_env_values = true
    )]
    pub(super) selected_config: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct ModeArgs {
    /// MIG modes alone, no partitions
    #[arg(
        short,
        long,
        env = "MIG_PARTED_MODE_CHANGE_ONLY",
        hide_env_values = true,
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true",
        value_parser = boolean,
        hide_default_value = true,
        value_name = "BOOL"
    )]
    pub(super) mode_only: bool,
}

#[derive(Debug, Args)]
pub(super) struct HooksArgs {
    /// The file of hooks
    #[arg(
        short = 'k',
        long,
        value_name = "FILE",
        env = "MIG_PARTED_HOOKS_FILE",
        hide_env_values = true
    )]
    pub(super) hooks_file: Option<PathBuf>,

    /// The longest that one hook may take
    #[arg(
        long,
        value_name = "DURATION",
        env = "OCTAVO_HOOK_TIMEOUT",
        hide_env_values = true,
        default_value = "5m",
        value_parser = duration::positive
    )]
    pub(super) hook_timeout: Duration,
}

#[derive(Debug, Args)]
pub(super) struct ApplyArgs {
    #[command(flatten)]
    pub(super) config: ConfigArgs,

    #[command(flatten)]
    pub(super) hooks: HooksArgs,

    /// Leave a GPU alone that needs a reset: its new MIG mode waits for one
    #[arg(
        short,
        long,
        env = "MIG_PARTED_SKIP_RESET",
        hide_env_values = true,
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true",
        value_parser = boolean,
        hide_default_value = true,
        value_name = "BOOL"
    )]
    pub(super) skip_reset: bool,

    #[command(flatten)]
    pub(super) mode: ModeArgs,

    #[command(flatten)]
    pub(super) engine: EngineSettings,

    #[command(flatten)]
    pub(super) hardware: HardwareSettings,
}

#[derive(Debug, Args)]
pub(super) struct AssertArgs {
    #[command(flatten)]
    pub(super) config: ConfigArgs,

    #[command(flatten)]
    pub(super) mode: ModeArgs,

    /// Only whether the file can be read and has the configuration; no GPU is looked at
    #[arg(
        short = 'a',
        long,
        env = "MIG_PARTED_VALID_CONFIG",
        hide_env_values = true,
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true",
        value_parser = boolean,
        hide_default_value = true,
        value_name = "BOOL"
    )]
    pub(super) valid_config: bool,

    #[command(flatten)]
    pub(super) hardware: HardwareSettings,
}

#[derive(Debug, Args)]
pub(super) struct FormatArgs {
    /// In which form
    #[arg(
        short,
        long,
        value_enum,
        value_name = "FORMAT",
        env = "MIG_PARTED_OUTPUT_FORMAT",
        hide_env_values = true,
        default_value = "yaml"
    )]
    pub(super) output_format: Format,
}

#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    #[command(flatten)]
    pub(super) format: FormatArgs,

    /// What the configuration is called
    #[arg(
        short = 'l',
        long,
        value_name = "NAME",
        env = "MIG_PARTED_CONFIG_LABEL",
        hide_env_values = true,
        default_value = "current"
    )]
    pub(super) config_label: String,

    #[command(flatten)]
    pub(super) hardware: HardwareSettings,
}

#[derive(Debug, Args)]
pub(super) struct FileArgs {
    /// The checkpoint; - for standard output or input
    #[arg(
        short = 'f',
        long,
        value_name = "FILE",
        env = "MIG_PARTED_CHECKPOINT_FILE",
        hide_env_values = true
    )]
    pub(super) checkpoint_file: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct CheckpointArgs {
    #[command(flatten)]
    pub(super) file: FileArgs,

    #[command(flatten)]
    pub(super) hardware: HardwareSettings,
}

#[derive(Debug, Args)]
pub(super) struct RestoreArgs {
    #[command(flatten)]
    pub(super) file: FileArgs,

    #[command(flatten)]
    pub(super) hooks: HooksArgs,

    #[command(flatten)]
    pub(super) mode: ModeArgs,

    #[command(flatten)]
    pub(super) engine: EngineSettings,

    #[command(flatten)]
    pub(super) hardware: HardwareSettings,
}

#[derive(Debug, Args)]
pub(super) struct GenerateArgs {
    /// Where to write them; standard output unless given
    #[arg(
        short = 'f',
        long,
        value_name = "FILE",
        env = "MIG_PARTED_OUTPUT_FILE",
        hide_env_values = true
    )]
    pub(super) output_file: Option<PathBuf>,

    #[command(flatten)]
    pub(super) format: FormatArgs,

    #[command(flatten)]
    pub(super) hardware: HardwareSettings,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// JSON
    Json,
    /// YAML
    Yaml,
}

/// Parses a boolean like Go's `strconv.ParseBool`.
fn boolean(text: &str) -> Result<bool, &'static str> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err("not true or false"),
    }
}
