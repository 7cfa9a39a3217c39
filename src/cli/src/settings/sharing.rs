//! Settings of `octavo sharing`.

mod args;

use clap::ValueEnum;
use octavo_settings::labels::LabelSettings;

pub(super) use self::args::{EXAMPLES, SharingArgs};
use super::layouts::DocumentFormat;
use super::{Input, Source};

/// Settings of `octavo sharing`'s subcommands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SharingCommand {
    /// `octavo sharing check`.
    Check(SharingSettings, SharingFormat),
    /// `octavo sharing diff`, compared with this Node's resources.
    Diff(SharingSettings, Input),
    /// `octavo sharing import`.
    Import(ImportSettings),
}

/// A layout, and the node that it is resolved on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharingSettings {
    file: Input,
    layout: Option<String>,
    labels: LabelSettings,
    source: Source,
}

/// Settings of `octavo sharing import`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportSettings {
    file: Input,
    name: String,
    format: DocumentFormat,
}

/// How what is given out is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SharingFormat {
    /// Resources, the first ids of each unit, and labels about them
    Table,
    /// The same with every id and label
    Wide,
    /// All of it as JSON
    Json,
    /// The same as YAML
    Yaml,
}

impl SharingSettings {
    /// Returns the layouts file.
    pub fn file(&self) -> &Input {
        &self.file
    }

    /// Returns the layout's name; `None` for the only one of the file.
    pub fn layout(&self) -> Option<&str> {
        self.layout.as_deref()
    }

    /// Returns the settings of labels, including the MIG strategy.
    pub fn labels(&self) -> LabelSettings {
        self.labels
    }

    /// Returns the source of the node's inventory.
    pub fn source(&self) -> &Source {
        &self.source
    }
}

impl ImportSettings {
    /// Returns the file to import.
    pub fn file(&self) -> &Input {
        &self.file
    }

    /// Returns the layout's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the output format.
    pub fn format(&self) -> DocumentFormat {
        self.format
    }
}
