//! Settings of labels: the flags of the agent and of `octavo labels`, so that both produce the same labels for a
//! machine.

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use octavo_node::labels::{Options, Publication};
use octavo_node::mig_strategy;

use super::Switch;

/// Settings of labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Args)]
#[command(next_help_heading = "Labels")]
pub struct LabelSettings {
    /// How NVIDIA's labels and resources present partitions, as in NVIDIA's device plugin [default: none; of an agent with --sharing
    /// embedded: mixed]
    #[arg(long, value_name = "STRATEGY", env = "OCTAVO_MIG_STRATEGY")]
    pub mig_strategy: Option<MigStrategy>,

    /// Write NVIDIA's labels (nvidia.com/*) beside our own
    ///
    /// Turn it off where gpu-feature-discovery runs: a label has one writer.
    #[arg(
        long,
        value_name = "on|off",
        env = "OCTAVO_NVIDIA_LABELS",
        hide_possible_values = true,
        default_value = "on"
    )]
    pub nvidia_labels: Switch,

    /// Write nvidia.com/gfd.timestamp
    ///
    /// Off by default, because it changes at every start: the only label that would be written when nothing about the
    /// hardware has changed.
    #[arg(
        long,
        value_name = "on|off",
        env = "OCTAVO_TIMESTAMP",
        hide_possible_values = true,
        default_value = "off"
    )]
    pub timestamp: Switch,

    /// Write nvidia.com/gpu.machine
    #[arg(
        long,
        value_name = "on|off",
        env = "OCTAVO_MACHINE_TYPE",
        hide_possible_values = true,
        default_value = "on"
    )]
    pub machine_type: Switch,
}

/// How NVIDIA's labels present partitions, as it is typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MigStrategy {
    /// As if there were no partitions; --sharing embedded offers nothing of a GPU with MIG mode enabled
    None,
    /// As whole GPUs, where all partitions are alike
    Single,
    /// Each profile as a resource of its own
    Mixed,
}

impl LabelSettings {
    /// Returns the options of the label compiler; `started` is the program's start time.
    pub fn options(self, started: Timestamp) -> Options {
        Options {
            mig_strategy: match self.mig_strategy {
                None | Some(MigStrategy::None) => mig_strategy::MigStrategy::None,
                Some(MigStrategy::Single) => mig_strategy::MigStrategy::Single,
                Some(MigStrategy::Mixed) => mig_strategy::MigStrategy::Mixed,
            },
            timestamp: match self.timestamp {
                Switch::On => Some(started.as_second()),
                Switch::Off => None,
            },
            machine_type: publication(self.machine_type),
            nvidia: publication(self.nvidia_labels),
            layout: None,
        }
    }
}

fn publication(switch: Switch) -> Publication {
    match switch {
        Switch::On => Publication::Publish,
        Switch::Off => Publication::Withhold,
    }
}
