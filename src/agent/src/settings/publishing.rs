//! Settings of the destination of labels, and how often the hardware is read.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use octavo_settings::Answer;
use octavo_settings::duration::{self, Expiry};

use super::usage;

/// Settings of the destination of labels, and of the schedule.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Publishing")]
pub struct PublishingSettings {
    /// Where labels go
    #[arg(
        long,
        value_name = "SINK",
        env = "OCTAVO_LABEL_SINK",
        default_value = "stdout"
    )]
    pub label_sink: LabelSink,

    /// The feature file of --label-sink file
    #[arg(
        long,
        value_name = "PATH",
        env = "OCTAVO_FEATURE_FILE",
        default_value = "/etc/kubernetes/node-feature-discovery/features.d/octavo"
    )]
    pub feature_file: PathBuf,

    /// How long Node Feature Discovery may trust the feature file; 0 for ever
    ///
    /// The file is renewed well before. Once it has expired, the labels of a node whose agent is gone go too.
    #[arg(
        long,
        value_name = "DURATION",
        env = "OCTAVO_FEATURE_FILE_EXPIRY",
        default_value = "1h",
        value_parser = duration::expiry
    )]
    pub feature_file_expiry: Expiry,

    /// How often the hardware is read
    #[arg(
        long,
        value_name = "DURATION",
        env = "OCTAVO_INTERVAL",
        default_value = "10s",
        value_parser = duration::positive
    )]
    pub interval: Duration,

    /// Read and publish once, then end
    #[arg(long)]
    pub oneshot: bool,
}

/// Destination of labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LabelSink {
    /// Lines of key=value, whenever they change
    Stdout,
    /// Labels of this machine's Node
    Node,
    /// A NodeFeature, of which Node Feature Discovery makes labels
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
        if self.oneshot {
            Schedule::Once
        } else {
            Schedule::Every(self.interval)
        }
    }

    /// Rejects an interval longer than half of the expiry: the expiry is extended only at scans and once half of it
    /// has passed, so the labels would expire in between.
    pub(super) fn check(&self) -> Result<(), Answer> {
        let kept = self.label_sink == LabelSink::File && !self.oneshot;
        match self.feature_file_expiry {
            Expiry::After(span) if kept && self.interval > span / 2 => Err(usage(
                "--interval is longer than half of --feature-file-expiry: the labels of a living agent would expire. \
                 Look more often, or let them live longer",
            )),
            Expiry::After(_) | Expiry::Never => Ok(()),
        }
    }
}
