//! Settings of the commands that change this node: `apply`, `checkpoint`, `restore`, and of `history`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::Input;
use crate::config::duration;
use crate::config::engine::{EngineArgs, EngineSettings};
use crate::config::hardware::{HardwareArgs, HardwareSettings};

pub(super) const APPLY_EXAMPLES: &str = "\
Examples:
  # Give this node the layout `serving`
  octavo apply serving -f layouts.yaml

  # What would it change? Nothing is touched
  octavo plan serving -f layouts.yaml

  # Wait for up to an hour until nobody uses what is in the way
  octavo apply serving -f layouts.yaml --wait --timeout 1h

  # Where an agent runs: go back to the layout that its settings name
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

#[derive(Debug, Args)]
pub(super) struct ApplyArgs {
    /// The layout's name
    #[arg(required_unless_present = "forget")]
    layout: Option<String>,

    /// The file it is in; - for standard input
    ///
    /// Without it those of the agent, or those that are generated for this node.
    #[arg(short = 'f', long, value_name = "FILE")]
    layouts: Option<PathBuf>,

    /// Wait until every GPU has it, whoever is in the way
    #[arg(long)]
    wait: bool,

    /// Wait no longer than this
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "5m",
        value_parser = duration::positive
    )]
    timeout: Duration,

    /// Forget what was chosen by hand: the agent goes back to the layout of its settings
    #[arg(long, conflicts_with_all = ["layout", "layouts"])]
    forget: bool,

    /// Ask the agent of this node; an error where none listens
    #[arg(long)]
    agent: bool,

    /// How to print where the node then stands
    #[arg(
        short,
        long,
        value_enum,
        value_name = "FORMAT",
        default_value = "table"
    )]
    output: ApplyFormat,

    #[command(flatten)]
    engine: EngineArgs,

    #[command(flatten)]
    hardware: HardwareArgs,
}

#[derive(Debug, Args)]
pub(super) struct HistoryArgs {
    /// How many
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 20)]
    count: usize,

    /// How to print it
    #[arg(
        short,
        long,
        value_enum,
        value_name = "FORMAT",
        default_value = "table"
    )]
    output: ApplyFormat,

    /// Where the history is
    #[arg(
        long,
        value_name = "DIR",
        env = "OCTAVO_STATE_DIR",
        hide_env_values = true,
        default_value = "/var/lib/octavo"
    )]
    state_dir: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct CheckpointArgs {
    /// Where to write it; - for standard output
    #[arg(default_value = "-")]
    file: PathBuf,

    #[command(flatten)]
    hardware: HardwareArgs,
}

#[derive(Debug, Args)]
pub(super) struct RestoreArgs {
    /// The checkpoint; - for standard input
    file: PathBuf,

    /// Wait until every GPU has it, whoever is in the way
    #[arg(long)]
    wait: bool,

    /// Wait no longer than this
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "5m",
        value_parser = duration::positive
    )]
    timeout: Duration,

    /// How to print where the node then stands
    #[arg(
        short,
        long,
        value_enum,
        value_name = "FORMAT",
        default_value = "table"
    )]
    output: ApplyFormat,

    #[command(flatten)]
    engine: EngineArgs,

    #[command(flatten)]
    hardware: HardwareArgs,
}

/// How it is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ApplyFormat {
    /// For people
    Table,
    /// JSON
    Json,
}

/// What `octavo apply` runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplySettings {
    choice: ChoiceSettings,
    doer: Doer,
    run: RunSettings,
}

/// Who may do it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doer {
    /// The agent of this node, and nobody else.
    Agent,
    /// The agent, or this command where none runs.
    Either,
}

/// What is chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChoiceSettings {
    /// A layout.
    Layout {
        /// Its name.
        name: String,
        /// The file it is in.
        layouts: Option<Input>,
    },
    /// Nothing by hand any more.
    Forget,
}

/// How something is done to this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSettings {
    patience: Patience,
    format: ApplyFormat,
    engine: EngineSettings,
    hardware: HardwareSettings,
}

/// How long a command waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Until everything was tried once, and at most so long.
    Once(Duration),
    /// Until everything is done, and at most so long.
    UntilDone(Duration),
}

/// What `octavo history` runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistorySettings {
    count: usize,
    format: ApplyFormat,
    state_dir: PathBuf,
}

/// What `octavo checkpoint` runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointSettings {
    file: Input,
    hardware: HardwareSettings,
}

/// What `octavo restore` runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreSettings {
    file: Input,
    run: RunSettings,
}

impl ApplySettings {
    /// What is chosen.
    pub fn choice(&self) -> &ChoiceSettings {
        &self.choice
    }

    /// Who may do it.
    pub fn doer(&self) -> Doer {
        self.doer
    }

    /// How it is done.
    pub fn run(&self) -> &RunSettings {
        &self.run
    }
}

impl RunSettings {
    /// How long to wait.
    pub fn patience(&self) -> Patience {
        self.patience
    }

    /// How the end is printed.
    pub fn format(&self) -> ApplyFormat {
        self.format
    }

    /// How devices are changed.
    pub fn engine(&self) -> &EngineSettings {
        &self.engine
    }

    /// Where the hardware is found.
    pub fn hardware(&self) -> &HardwareSettings {
        &self.hardware
    }
}

impl Patience {
    /// The longest wait.
    pub fn limit(self) -> Duration {
        match self {
            Self::Once(limit) | Self::UntilDone(limit) => limit,
        }
    }
}

impl HistorySettings {
    /// How many are shown.
    pub fn count(&self) -> usize {
        self.count
    }

    /// How they are printed.
    pub fn format(&self) -> ApplyFormat {
        self.format
    }

    /// Where they are.
    pub fn state_dir(&self) -> &Path {
        &self.state_dir
    }
}

impl CheckpointSettings {
    /// Where it goes.
    pub fn file(&self) -> &Input {
        &self.file
    }

    /// Where the hardware is found.
    pub fn hardware(&self) -> &HardwareSettings {
        &self.hardware
    }
}

impl RestoreSettings {
    /// Where it is.
    pub fn file(&self) -> &Input {
        &self.file
    }

    /// How it is done.
    pub fn run(&self) -> &RunSettings {
        &self.run
    }
}

fn patience(wait: bool, timeout: Duration) -> Patience {
    if wait {
        Patience::UntilDone(timeout)
    } else {
        Patience::Once(timeout)
    }
}

impl From<ApplyArgs> for ApplySettings {
    fn from(args: ApplyArgs) -> Self {
        let layouts = args.layouts.map(Input::from);
        Self {
            choice: args
                .layout
                .map_or(ChoiceSettings::Forget, |name| ChoiceSettings::Layout {
                    name,
                    layouts,
                }),
            doer: if args.agent {
                Doer::Agent
            } else {
                Doer::Either
            },
            run: RunSettings {
                patience: patience(args.wait, args.timeout),
                format: args.output,
                engine: args.engine.into(),
                hardware: args.hardware.into(),
            },
        }
    }
}

impl From<HistoryArgs> for HistorySettings {
    fn from(args: HistoryArgs) -> Self {
        Self {
            count: args.count,
            format: args.output,
            state_dir: args.state_dir,
        }
    }
}

impl From<CheckpointArgs> for CheckpointSettings {
    fn from(args: CheckpointArgs) -> Self {
        Self {
            file: args.file.into(),
            hardware: args.hardware.into(),
        }
    }
}

impl From<RestoreArgs> for RestoreSettings {
    fn from(args: RestoreArgs) -> Self {
        Self {
            file: args.file.into(),
            run: RunSettings {
                patience: patience(args.wait, args.timeout),
                format: args.output,
                engine: args.engine.into(),
                hardware: args.hardware.into(),
            },
        }
    }
}
