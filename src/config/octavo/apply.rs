//! Settings of the commands that change this node: `apply`, `checkpoint`, `restore`, and of `history`.

mod args;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;

pub(super) use self::args::{
    APPLY_EXAMPLES, ApplyArgs, CHECKPOINT_EXAMPLES, CheckpointArgs, HISTORY_EXAMPLES, HistoryArgs,
    RestoreArgs,
};
use super::Input;
use crate::config::engine::EngineSettings;
use crate::config::hardware::HardwareSettings;

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
