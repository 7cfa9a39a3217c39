//! Settings of the commands that change this node, `apply`, `checkpoint` and `restore`, and of `history`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum, ValueHint};
use octavo_settings::duration;
use octavo_settings::engine::EngineSettings;
use octavo_settings::hardware::HardwareSettings;

use super::input::{Input, WantedFile};

/// Settings of `octavo apply`.
#[derive(Debug, Clone, Args)]
pub struct ApplySettings {
    /// Name of the layout
    #[arg(required_unless_present = "forget")]
    pub layout: Option<String>,

    /// Layout file; - for standard input
    ///
    /// Default: the agent's layouts, or the layouts generated for this node.
    #[arg(short = 'f', long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub layouts: Option<Input>,

    /// Return to the layout in the agent's settings, and discard interrupted changes that cannot be completed
    ///
    /// Discards unreadable journals, and changes of GPUs that are no longer in this node. If no agent runs, discards
    /// the whole journal. GPUs are not changed.
    #[arg(long, conflicts_with_all = ["layout", "layouts"])]
    pub forget: bool,

    /// Require the agent of this node; fail if it is not running
    #[arg(long)]
    pub agent: bool,

    /// Settings of the change.
    #[command(flatten)]
    pub run: RunSettings,
}

/// How a node is changed, be it by a layout or by a checkpoint.
#[derive(Debug, Clone, Args)]
pub struct RunSettings {
    /// Wait until every GPU has the layout, even while some are blocked
    #[arg(long)]
    pub wait: bool,

    /// Maximum time to wait
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::positive)]
    pub timeout: Duration,

    /// Output format of the result
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "table")]
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
    /// Number of changes to show
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 20)]
    pub count: usize,

    /// Output format
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "table")]
    pub format: ApplyFormat,

    /// Directory of the history
    #[arg(long, value_name = "DIR", env = "OCTAVO_STATE_DIR", default_value = "/var/lib/octavo")]
    pub state_dir: PathBuf,
}

/// Settings of `octavo checkpoint`.
#[derive(Debug, Clone, Args)]
pub struct CheckpointSettings {
    /// Checkpoint file to write; - for standard output
    #[arg(default_value = "-", value_hint = ValueHint::AnyPath)]
    pub file: Input,

    /// Paths of the hardware.
    #[command(flatten)]
    pub hardware: HardwareSettings,
}

/// Settings of `octavo restore`.
#[derive(Debug, Clone, Args)]
pub struct RestoreSettings {
    /// Checkpoint file.
    #[command(flatten)]
    pub file: WantedFile,

    /// Settings of the change.
    #[command(flatten)]
    pub run: RunSettings,
}

impl RunSettings {
    /// Returns how long to wait.
    pub fn wait_policy(&self) -> WaitPolicy {
        if self.wait { WaitPolicy::UntilDone(self.timeout) } else { WaitPolicy::Once(self.timeout) }
    }
}

/// How it is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ApplyFormat {
    /// Human-readable text
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
