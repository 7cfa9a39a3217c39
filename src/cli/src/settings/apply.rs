//! Settings of the commands that change this node, `apply`, `checkpoint` and `restore`, and of `history`.

mod args;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use octavo_settings::engine::EngineSettings;
use octavo_settings::hardware::HardwareSettings;

pub(super) use self::args::{
    APPLY_EXAMPLES, ApplyArgs, CHECKPOINT_EXAMPLES, CheckpointArgs, HISTORY_EXAMPLES, HistoryArgs,
    RestoreArgs,
};
use super::Input;

/// How it is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ApplyFormat {
    /// For people
    Table,
    /// JSON
    Json,
}

/// Settings of `octavo apply`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplySettings {
    choice: ChoiceSettings,
    doer: ChangeExecutor,
    run: RunSettings,
}

/// Program that performs the change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeExecutor {
    /// Only the agent of this node.
    Agent,
    /// The agent, or this command if no agent runs.
    AgentOrSelf,
}

/// Requested choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChoiceSettings {
    /// A layout.
    Layout {
        /// Its name.
        name: String,
        /// Its file.
        layouts: Option<Input>,
    },
    /// Remove the manual choice.
    Forget,
}

/// Settings of a change of this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSettings {
    patience: WaitPolicy,
    format: ApplyFormat,
    engine: EngineSettings,
    hardware: HardwareSettings,
}

/// Wait of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitPolicy {
    /// Until everything was tried once, within this limit.
    Once(Duration),
    /// Until everything is done, within this limit.
    UntilDone(Duration),
}

/// Settings of `octavo history`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistorySettings {
    count: usize,
    format: ApplyFormat,
    state_dir: PathBuf,
}

/// Settings of `octavo checkpoint`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointSettings {
    file: Input,
    hardware: HardwareSettings,
}

/// Settings of `octavo restore`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreSettings {
    file: Input,
    run: RunSettings,
}

impl ApplySettings {
    /// Returns the requested choice.
    pub fn choice(&self) -> &ChoiceSettings {
        &self.choice
    }

    /// Returns the program that performs the change.
    pub fn executor(&self) -> ChangeExecutor {
        self.doer
    }

    /// Returns the settings of the change.
    pub fn run(&self) -> &RunSettings {
        &self.run
    }
}

impl RunSettings {
    /// Returns how long to wait.
    pub fn patience(&self) -> WaitPolicy {
        self.patience
    }

    /// Returns the output format.
    pub fn format(&self) -> ApplyFormat {
        self.format
    }

    /// Returns how devices are changed.
    pub fn engine(&self) -> &EngineSettings {
        &self.engine
    }

    /// Returns the paths of the hardware.
    pub fn hardware(&self) -> &HardwareSettings {
        &self.hardware
    }
}

impl WaitPolicy {
    /// Returns the maximum wait.
    pub fn limit(self) -> Duration {
        match self {
            Self::Once(limit) | Self::UntilDone(limit) => limit,
        }
    }
}

impl HistorySettings {
    /// Returns the number of attempts to show.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the output format.
    pub fn format(&self) -> ApplyFormat {
        self.format
    }

    /// Returns the state directory.
    pub fn state_dir(&self) -> &Path {
        &self.state_dir
    }
}

impl CheckpointSettings {
    /// Returns the destination.
    pub fn file(&self) -> &Input {
        &self.file
    }

    /// Returns the paths of the hardware.
    pub fn hardware(&self) -> &HardwareSettings {
        &self.hardware
    }
}

impl RestoreSettings {
    /// Returns the checkpoint's file.
    pub fn file(&self) -> &Input {
        &self.file
    }

    /// Returns the settings of the change.
    pub fn run(&self) -> &RunSettings {
        &self.run
    }
}
