//! Settings of the commands that change this node, `apply`, `checkpoint` and `restore`, and of `history`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum, ValueHint};
use octavo_settings::duration;
use octavo_settings::engine::EngineSettings;
use octavo_settings::hardware::HardwareSettings;

use super::input::Input;

pub(super) const APPLY_EXAMPLES: &str = "\
Examples:
  # Give this node the layout `serving`
  octavo apply serving -f layouts.yaml

  # What would it change? Nothing is touched
  octavo plan serving -f layouts.yaml

  # Wait for up to an hour until nobody uses what is in the way
  octavo apply serving -f layouts.yaml --wait --timeout 1h

  # Where an agent runs: go back to the layout that its settings name. Discards interrupted changes that cannot be finished
  octavo apply --forget

Where an agent runs it does the work, and keeps the node so; else this command does it itself, once. What is in use is not
touched: only the GPUs concerned stay as they are.

Exit codes: 0 done or nothing to do, 1 failed, 2 wrong usage, 4 blocked by somebody or by --allow, 5 impossible on this
hardware. Of several GPUs the gravest counts.";

pub(super) const HISTORY_EXAMPLES: &str = "\
Examples:
  # The last applies on this node, the newest last
  octavo history

  # For a program
  octavo history -n 100 -o json";

pub(super) const CHECKPOINT_EXAMPLES: &str = "\
Examples:
  # Keep what this node has, each instance in its place
  octavo checkpoint before.json

  # And bring it back, whatever happened since
  octavo restore before.json

The file has the form of NVIDIA's mig-parted, which can restore it too.";

/// Settings of `octavo apply`.
#[derive(Debug, Clone, Args)]
pub struct ApplySettings {
    /// The layout's name
    #[arg(required_unless_present = "forget")]
    pub layout: Option<String>,

    /// The file it is in; - for standard input
    ///
    /// Without it those of the agent, or those that are generated for this node.
    #[arg(short = 'f', long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub layouts: Option<Input>,

    /// Go back to the layout of the agent's settings, and discard interrupted changes that cannot be finished
    ///
    /// Discards journals that could not be read, and changes of GPUs that this node does not have. Where no agent runs, discards the
    /// whole journal: GPUs stay as they are.
    #[arg(long, conflicts_with_all = ["layout", "layouts"])]
    pub forget: bool,

    /// Ask the agent of this node; an error where none listens
    #[arg(long)]
    pub agent: bool,

    /// Settings of the change.
    #[command(flatten)]
    pub run: RunSettings,
}

/// How a node is changed, be it by a layout or by a checkpoint.
#[derive(Debug, Clone, Args)]
pub struct RunSettings {
    /// Wait until every GPU has it, whoever is in the way
    #[arg(long)]
    pub wait: bool,

    /// Wait no longer than this
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "5m",
        value_parser = duration::positive
    )]
    pub timeout: Duration,

    /// How to print where the node then stands
    #[arg(
        short = 'o',
        long = "output",
        value_name = "FORMAT",
        default_value = "table"
    )]
    pub format: ApplyFormat,

    /// How devices are changed.
    #[command(flatten)]
    pub engine: EngineSettings,

    /// Paths of the hardware.
    #[command(flatten)]
    pub hardware: HardwareSettings,
}

/// Settings of `octavo history`.
#[derive(Debug, Clone, Args)]
pub struct HistorySettings {
    /// How many
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 20)]
    pub count: usize,

    /// How to print it
    #[arg(
        short = 'o',
        long = "output",
        value_name = "FORMAT",
        default_value = "table"
    )]
    pub format: ApplyFormat,

    /// Where the history is
    #[arg(
        long,
        value_name = "DIR",
        env = "OCTAVO_STATE_DIR",
        default_value = "/var/lib/octavo"
    )]
    pub state_dir: PathBuf,
}

/// Settings of `octavo checkpoint`.
#[derive(Debug, Clone, Args)]
pub struct CheckpointSettings {
    /// Where to write it; - for standard output
    #[arg(default_value = "-", value_hint = ValueHint::AnyPath)]
    pub file: Input,

    /// Paths of the hardware.
    #[command(flatten)]
    pub hardware: HardwareSettings,
}

/// Settings of `octavo restore`.
#[derive(Debug, Clone, Args)]
pub struct RestoreSettings {
    /// The checkpoint; - for standard input
    #[arg(value_hint = ValueHint::AnyPath)]
    pub file: Input,

    /// Settings of the change.
    #[command(flatten)]
    pub run: RunSettings,
}

impl RunSettings {
    /// Returns how long to wait.
    pub fn wait_policy(&self) -> WaitPolicy {
        if self.wait {
            WaitPolicy::UntilDone(self.timeout)
        } else {
            WaitPolicy::Once(self.timeout)
        }
    }
}

/// How it is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ApplyFormat {
    /// For people
    Table,
    /// JSON
    Json,
}

/// Wait of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitPolicy {
    /// Until everything was tried once, within this limit.
    Once(Duration),
    /// Until everything is done, within this limit.
    UntilDone(Duration),
}

impl WaitPolicy {
    /// Returns the maximum wait.
    pub fn limit(self) -> Duration {
        match self {
            Self::Once(limit) | Self::UntilDone(limit) => limit,
        }
    }
}
