//! Settings of the destination of labels, and how often the hardware is read.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{CommandFactory, ValueEnum};
use octavo_settings::Answer;
use octavo_settings::duration::{self, Expiry};

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Publishing")]
pub(super) struct PublishingArgs {
    /// Where labels go
    #[arg(
        long,
        value_name = "SINK",
        env = "OCTAVO_LABEL_SINK",
        default_value = "stdout"
    )]
    label_sink: SinkArg,

    /// The feature file of --label-sink file
    #[arg(
        long,
        value_name = "PATH",
        env = "OCTAVO_FEATURE_FILE",
        default_value = "/etc/kubernetes/node-feature-discovery/features.d/octavo"
    )]
    feature_file: PathBuf,

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
    feature_file_expiry: Expiry,

    /// How often the hardware is read
    #[arg(
        long,
        value_name = "DURATION",
        env = "OCTAVO_INTERVAL",
        default_value = "10s",
        value_parser = duration::positive
    )]
    interval: Duration,

    /// Read and publish once, then end
    #[arg(long)]
    oneshot: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SinkArg {
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

/// Destination of labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelSink {
    /// Standard output.
    Stdout,
    /// The Node.
    Node,
    /// The node's NodeFeature.
    NodeFeature,
    /// A feature file.
    FeatureFile(FeatureFile),
}

/// A feature file of Node Feature Discovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeatureFile {
    path: PathBuf,
    expiry: Expiry,
}

/// Schedule of scans of the hardware.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schedule {
    /// Once, and then the agent exits.
    Once,
    /// At this interval, until the agent is stopped.
    Every(Duration),
}

impl FeatureFile {
    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the lifetime of its labels after each write.
    pub fn expiry(&self) -> Expiry {
        self.expiry
    }
}

impl PublishingArgs {
    /// Resolves the destination of labels, and the schedule of scans.
    pub(super) fn resolve(self) -> Result<(LabelSink, Schedule), Answer> {
        self.check_expiry()?;
        let sink = match self.label_sink {
            SinkArg::Stdout => LabelSink::Stdout,
            SinkArg::Node => LabelSink::Node,
            SinkArg::NodeFeature => LabelSink::NodeFeature,
            SinkArg::File => LabelSink::FeatureFile(FeatureFile {
                path: self.feature_file,
                expiry: self.feature_file_expiry,
            }),
        };
        let schedule = if self.oneshot {
            Schedule::Once
        } else {
            Schedule::Every(self.interval)
        };
        Ok((sink, schedule))
    }

    /// Rejects an interval longer than half of the expiry: the expiry is extended only at scans and once half of it
    /// has passed, so the labels would expire in between.
    fn check_expiry(&self) -> Result<(), Answer> {
        let kept = self.label_sink == SinkArg::File && !self.oneshot;
        match self.feature_file_expiry {
            Expiry::After(span) if kept && self.interval > span / 2 => Err(Answer::usage(
                &mut super::AgentArgs::command(),
                "--interval is longer than half of --feature-file-expiry: the labels of a living agent would expire. \
                 Look more often, or let them live longer",
            )),
            Expiry::After(_) | Expiry::Never => Ok(()),
        }
    }
}

#[cfg(test)]
impl FeatureFile {
    pub(super) fn of(path: PathBuf, expiry: Expiry) -> Self {
        Self { path, expiry }
    }
}
