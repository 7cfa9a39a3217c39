//! Settings of labels: the flags of the agent and of `octavo labels`, so that both produce the same labels for a
//! machine.

use clap::Args;
use jiff::Timestamp;
use octavo_node::labels::{KeyPolicy, Options};
use octavo_node::mig_strategy::MigStrategy;

use octavo_toolkit::choice::{Choice, choice};

/// How NVIDIA's labels present partitions.
const MIG_STRATEGIES: &[Choice<MigStrategy>] = &[
    (
        "none",
        "Ignore partitions; with --sharing embedded, GPUs with MIG mode enabled are not offered",
        MigStrategy::None,
    ),
    ("single", "Present partitions as whole GPUs, if all are identical", MigStrategy::Single),
    ("mixed", "Present each profile as a separate resource", MigStrategy::Mixed),
];

/// Whether labels are written. A word instead of a bare flag, so that `--flag=off` can undo what a variable set.
const SWITCH: &[Choice<KeyPolicy>] =
    &[("on", "Enable", KeyPolicy::Publish), ("off", "Disable", KeyPolicy::Withhold)];

/// Settings of labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Args)]
#[command(next_help_heading = "Labels")]
pub struct LabelSettings {
    /// Presentation of partitions in NVIDIA's labels and resources, as in NVIDIA's device plugin [default: none; for
    /// an agent with --sharing embedded: mixed]
    #[arg(
        long,
        value_name = "STRATEGY",
        env = "OCTAVO_MIG_STRATEGY",
        value_parser = choice(MIG_STRATEGIES)
    )]
    pub mig_strategy: Option<MigStrategy>,

    /// Also write NVIDIA's labels (nvidia.com/*)
    ///
    /// Turn this off if gpu-feature-discovery runs, because a label must have only one writer.
    #[arg(
        long,
        value_name = "on|off",
        env = "OCTAVO_NVIDIA_LABELS",
        hide_possible_values = true,
        default_value = "on",
        value_parser = choice(SWITCH)
    )]
    pub nvidia_labels: KeyPolicy,

    /// Write nvidia.com/gfd.timestamp
    ///
    /// Off by default, because this label changes at every start even if the hardware is the same.
    #[arg(
        long,
        value_name = "on|off",
        env = "OCTAVO_TIMESTAMP",
        hide_possible_values = true,
        default_value = "off",
        value_parser = choice(SWITCH)
    )]
    pub timestamp: KeyPolicy,

    /// Write nvidia.com/gpu.machine
    #[arg(
        long,
        value_name = "on|off",
        env = "OCTAVO_MACHINE_TYPE",
        hide_possible_values = true,
        default_value = "on",
        value_parser = choice(SWITCH)
    )]
    pub machine_type: KeyPolicy,
}

impl LabelSettings {
    /// Returns the options of the label compiler; `started` is the program's start time.
    pub fn options(self, started: Timestamp) -> Options {
        Options {
            mig_strategy: self.mig_strategy.unwrap_or_default(),
            timestamp: (self.timestamp == KeyPolicy::Publish).then(|| started.as_second()),
            machine_type: self.machine_type,
            nvidia: self.nvidia_labels,
            layout: None,
        }
    }
}
