//! Settings of the destination of labels, and how often the hardware is read.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use octavo_settings::EarlyExit;
use octavo_settings::duration::{self, Expiry};

use super::usage;

/// Settings of the destination of labels, and of the schedule.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Publishing")]
pub struct PublishingSettings {
    /// Destination of the labels
    #[arg(long, value_name = "SINK", env = "OCTAVO_LABEL_SINK", default_value = "stdout")]
    pub label_sink: LabelSink,

    /// Path of the feature file, for --label-sink file
    #[arg(
        long,
        value_name = "PATH",
        env = "OCTAVO_FEATURE_FILE",
        default_value = "/etc/kubernetes/node-feature-discovery/features.d/octavo"
    )]
    pub feature_file: PathBuf,

    /// Expiry of the feature file in Node Feature Discovery; 0 for no expiry
    ///
    /// A running agent renews the file before it expires. If the agent stops, the labels are removed after the
    /// expiry.
    #[arg(
        long,
        value_name = "DURATION",
        env = "OCTAVO_FEATURE_FILE_EXPIRY",
        default_value = "1h",
        value_parser = duration::expiry
    )]
    pub feature_file_expiry: Expiry,

    /// Interval between scans of the hardware
    #[arg(
        long,
        value_name = "DURATION",
        env = "OCTAVO_INTERVAL",
        default_value = "10s",
        value_parser = duration::positive
    )]
    pub interval: Duration,

    /// Scan and publish once, then exit
    #[arg(long)]
    pub oneshot: bool,
}

/// Destination of labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LabelSink {
    /// One key=value per line on standard output, after each change
    Stdout,
    /// Labels of this machine's Node
    Node,
    /// A NodeFeature object, which Node Feature Discovery converts to labels
    #[value(name = "nodefeature")]
    NodeFeature,
    /// A feature file of Node Feature Discovery
    File,
}

/// Schedule of scans of the hardware.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schedule {
    /// Once, and then the agent exits.
    Once,
    /// At this interval, until the agent is stopped.
    Every(Duration),
}

impl PublishingSettings {
    /// Returns when the hardware is read.
    pub fn schedule(&self) -> Schedule {
        if self.oneshot { Schedule::Once } else { Schedule::Every(self.interval) }
    }

    /// Rejects an interval longer than half of the expiry: the expiry is extended only at scans and once half of it
    /// has passed, so the labels would expire in between.
    pub(super) fn check(&self) -> Result<(), EarlyExit> {
        let is_file_retained = self.label_sink == LabelSink::File && !self.oneshot;
        match self.feature_file_expiry {
            Expiry::After(span) if is_file_retained && self.interval > span / 2 => Err(usage(
                "--interval is longer than half of --feature-file-expiry, so the labels of a \
                 running agent would expire. Decrease --interval or increase \
                 --feature-file-expiry",
            )),
            Expiry::After(_) | Expiry::Never => Ok(()),
        }
    }
}
