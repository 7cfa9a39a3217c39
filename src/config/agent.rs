//! Settings of the node agent.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{CommandFactory, Parser, ValueEnum};

use super::duration::{self, Expiry};
use super::hardware::{HardwareArgs, HardwareSettings};
use super::labels::{LabelArgs, LabelSettings};
use super::log::{LogArgs, LogSettings};
use super::{Answer, parse};

const EXAMPLES: &str = "\
Examples:
  # Print this node's labels once and end
  octavo-agent --oneshot

  # Keep a feature file for Node Feature Discovery up to date
  octavo-agent --label-sink file --interval 10s

  # Use a driver that is mounted somewhere else
  octavo-agent --driver-root /host --oneshot

Every flag can be set by its variable too; the flag wins.";

/// Sees the accelerators of this node and says in labels what they are
///
/// Runs on every accelerator node. A driver that is missing, late, replaced or stuck is waited for and reported; it never
/// ends the agent.
#[derive(Debug, Parser)]
#[command(name = "octavo-agent", version, after_long_help = EXAMPLES)]
struct AgentArgs {
    #[command(flatten)]
    hardware: HardwareArgs,

    #[command(flatten)]
    labels: LabelArgs,

    #[command(flatten)]
    publishing: PublishingArgs,

    #[command(flatten)]
    log: LogArgs,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Publishing")]
struct PublishingArgs {
    /// Where labels go
    #[arg(
        long,
        value_enum,
        value_name = "SINK",
        env = "OCTAVO_LABEL_SINK",
        hide_env_values = true,
        default_value = "stdout"
    )]
    label_sink: SinkName,

    /// The feature file of --label-sink file
    #[arg(
        long,
        value_name = "PATH",
        env = "OCTAVO_FEATURE_FILE",
        hide_env_values = true,
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
        hide_env_values = true,
        default_value = "1h",
        value_parser = duration::expiry
    )]
    feature_file_expiry: Expiry,

    /// How often the hardware is read
    #[arg(
        long,
        value_name = "DURATION",
        env = "OCTAVO_INTERVAL",
        hide_env_values = true,
        default_value = "10s",
        value_parser = duration::positive
    )]
    interval: Duration,

    /// Read and publish once, then end
    #[arg(long)]
    oneshot: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SinkName {
    /// Lines of key=value, whenever they change
    Stdout,
    /// A feature file of Node Feature Discovery
    File,
}

/// What the agent runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSettings {
    hardware: HardwareSettings,
    labels: LabelSettings,
    sink: LabelSink,
    schedule: Schedule,
    log: LogSettings,
}

/// Where labels go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelSink {
    /// Standard output.
    Stdout,
    /// A feature file.
    FeatureFile(FeatureFile),
}

/// A feature file of Node Feature Discovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeatureFile {
    path: PathBuf,
    expiry: Expiry,
}

/// How often the hardware is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schedule {
    /// Once, and then the agent ends.
    Once,
    /// Again after this time, until the agent is stopped.
    Every(Duration),
}

impl AgentSettings {
    /// The settings that the arguments and the environment of this process give.
    pub fn from_process() -> Result<Self, Answer> {
        Self::from_arguments(env::args_os())
    }

    /// The settings that `arguments` give, program name first.
    pub fn from_arguments<A>(arguments: impl IntoIterator<Item = A>) -> Result<Self, Answer>
    where
        A: Into<OsString> + Clone,
    {
        parse::<AgentArgs, _>(arguments)?.resolve()
    }

    /// Where the hardware is found.
    pub fn hardware(&self) -> &HardwareSettings {
        &self.hardware
    }

    /// How labels are made.
    pub fn labels(&self) -> LabelSettings {
        self.labels
    }

    /// Where labels go.
    pub fn sink(&self) -> &LabelSink {
        &self.sink
    }

    /// How often the hardware is read.
    pub fn schedule(&self) -> Schedule {
        self.schedule
    }

    /// What is logged and how.
    pub fn log(&self) -> LogSettings {
        self.log
    }
}

impl FeatureFile {
    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How long it may be trusted after it was written.
    pub fn expiry(&self) -> Expiry {
        self.expiry
    }
}

impl AgentArgs {
    fn resolve(self) -> Result<AgentSettings, Answer> {
        let publishing = self.publishing;
        publishing.refuse_an_expiry_between_two_looks()?;
        Ok(AgentSettings {
            hardware: self.hardware.into(),
            labels: self.labels.into(),
            sink: match publishing.label_sink {
                SinkName::Stdout => LabelSink::Stdout,
                SinkName::File => LabelSink::FeatureFile(FeatureFile {
                    path: publishing.feature_file,
                    expiry: publishing.feature_file_expiry,
                }),
            },
            schedule: if publishing.oneshot {
                Schedule::Once
            } else {
                Schedule::Every(publishing.interval)
            },
            log: self.log.into(),
        })
    }
}

impl PublishingArgs {
    /// The expiry is moved at every look and once half of it is gone, so a longer interval would let it pass.
    fn refuse_an_expiry_between_two_looks(&self) -> Result<(), Answer> {
        let kept = self.label_sink == SinkName::File && !self.oneshot;
        match self.feature_file_expiry {
            Expiry::After(span) if kept && self.interval > span / 2 => Err(Answer::usage(
                &mut AgentArgs::command(),
                "--interval is longer than half of --feature-file-expiry: the labels of a living agent would expire. \
                 Look more often, or let them live longer",
            )),
            Expiry::After(_) | Expiry::Never => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::config::hardware::NvmlLibrary;
    use crate::domain::labels::Options;

    fn settings(arguments: &[&str]) -> AgentSettings {
        let program = ["octavo-agent"].iter();
        AgentSettings::from_arguments(program.chain(arguments)).unwrap()
    }

    #[test]
    fn the_description_given_to_clap_is_sound() {
        AgentArgs::command().debug_assert();
    }

    #[test]
    fn labels_of_a_living_agent_cannot_be_made_to_expire() {
        let refused = |arguments: &[&str]| {
            let program = ["octavo-agent", "--label-sink=file"].iter();
            AgentSettings::from_arguments(program.chain(arguments)).is_err()
        };
        assert!(refused(&["--interval=31m"]));
        assert!(refused(&["--feature-file-expiry=19s"]));
        assert!(!refused(&["--interval=30m"]));
        assert!(!refused(&["--interval=31m", "--oneshot"]));
        assert!(!refused(&["--interval=31m", "--feature-file-expiry=0"]));
    }

    #[test]
    fn without_flags_everything_has_its_documented_default() {
        let settings = settings(&[]);
        assert_eq!(settings.sink(), &LabelSink::Stdout);
        assert_eq!(
            settings.schedule(),
            Schedule::Every(Duration::from_secs(10))
        );
        // No timestamp: a value that changes with every start is a write at every start.
        assert_eq!(
            settings.labels().options(Timestamp::UNIX_EPOCH),
            Options::default()
        );
        let hardware = settings.hardware();
        assert_eq!(hardware.nvml_library(), &NvmlLibrary::Search);
        assert_eq!(hardware.call_deadline(), Duration::from_secs(10));
        assert_eq!(
            hardware.driver_roots(),
            ["/", "/run/nvidia/driver", "/home/kubernetes/bin/nvidia"].map(PathBuf::from)
        );
    }

    #[test]
    fn roots_may_be_repeated_and_replace_the_defaults() {
        let settings = settings(&["--driver-root", "/a", "--driver-root", "/b"]);
        assert_eq!(
            settings.hardware().driver_roots(),
            ["/a", "/b"].map(PathBuf::from)
        );
    }

    #[test]
    fn a_feature_file_has_a_path_and_an_expiry() {
        let settings = settings(&[
            "--label-sink=file",
            "--feature-file=/f",
            "--feature-file-expiry=0",
            "--oneshot",
        ]);
        assert_eq!(
            settings.sink(),
            &LabelSink::FeatureFile(FeatureFile {
                path: "/f".into(),
                expiry: Expiry::Never
            })
        );
        assert_eq!(settings.schedule(), Schedule::Once);
    }

    #[test]
    fn a_wrong_value_is_named_with_its_flag_and_reason() {
        let answer = AgentSettings::from_arguments(["octavo-agent", "--interval=10"]).unwrap_err();
        assert_eq!(answer.kind(), crate::config::AnswerKind::UsageError);
        assert!(answer.to_string().starts_with(
            "error: invalid value '10' for '--interval <DURATION>': not a duration such as 500ms, 10s, 5m or 1h30m"
        ), "{answer}");
    }
}
