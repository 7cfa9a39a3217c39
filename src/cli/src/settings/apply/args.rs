//! Command-line arguments of the commands that change this node.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use octavo_settings::duration;
use octavo_settings::engine::EngineSettings;
use octavo_settings::hardware::HardwareSettings;

use super::{
    ApplyFormat, ApplySettings, ChangeExecutor, CheckpointSettings, ChoiceSettings,
    HistorySettings, RestoreSettings, RunSettings, WaitPolicy,
};
use crate::settings::Input;

pub(in crate::settings) const APPLY_EXAMPLES: &str = "\
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

pub(in crate::settings) const HISTORY_EXAMPLES: &str = "\
Examples:
  # The last applies on this node, the newest last
  octavo history

  # For a program
  octavo history -n 100 -o json";

pub(in crate::settings) const CHECKPOINT_EXAMPLES: &str = "\
Examples:
  # Keep what this node has, each instance in its place
  octavo checkpoint before.json

  # And bring it back, whatever happened since
  octavo restore before.json

The file has the form of NVIDIA's mig-parted, which can restore it too.";

#[derive(Debug, Args)]
pub(in crate::settings) struct ApplyArgs {
    /// The layout's name
    #[arg(required_unless_present = "forget")]
    layout: Option<String>,

    /// The file it is in; - for standard input
    ///
    /// Without it those of the agent, or those that are generated for this node.
    #[arg(short = 'f', long, value_name = "FILE")]
    layouts: Option<PathBuf>,

    /// Go back to the layout of the agent's settings, and discard interrupted changes that cannot be finished
    ///
    /// Discards journals that could not be read, and changes of GPUs that this node does not have. Where no agent runs, discards the
    /// whole journal: GPUs stay as they are.
    #[arg(long, conflicts_with_all = ["layout", "layouts"])]
    forget: bool,

    /// Ask the agent of this node; an error where none listens
    #[arg(long)]
    agent: bool,

    #[command(flatten)]
    run: RunArgs,
}

/// How a node is changed, be it by a layout or by a checkpoint.
#[derive(Debug, Args)]
struct RunArgs {
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
    engine: EngineSettings,

    #[command(flatten)]
    hardware: HardwareSettings,
}

#[derive(Debug, Args)]
pub(in crate::settings) struct HistoryArgs {
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
pub(in crate::settings) struct CheckpointArgs {
    /// Where to write it; - for standard output
    #[arg(default_value = "-")]
    file: PathBuf,

    #[command(flatten)]
    hardware: HardwareSettings,
}

#[derive(Debug, Args)]
pub(in crate::settings) struct RestoreArgs {
    /// The checkpoint; - for standard input
    file: PathBuf,

    #[command(flatten)]
    run: RunArgs,
}

impl From<RunArgs> for RunSettings {
    fn from(args: RunArgs) -> Self {
        Self {
            patience: if args.wait {
                WaitPolicy::UntilDone(args.timeout)
            } else {
                WaitPolicy::Once(args.timeout)
            },
            format: args.output,
            engine: args.engine,
            hardware: args.hardware,
        }
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
                ChangeExecutor::Agent
            } else {
                ChangeExecutor::AgentOrSelf
            },
            run: args.run.into(),
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
            hardware: args.hardware,
        }
    }
}

impl From<RestoreArgs> for RestoreSettings {
    fn from(args: RestoreArgs) -> Self {
        Self {
            file: args.file.into(),
            run: args.run.into(),
        }
    }
}
