//! Settings of `octavo sharing`.

mod args;

use clap::ValueEnum;

pub(super) use self::args::{EXAMPLES, SharingArgs};
use super::layouts::DocumentFormat;
use super::{Input, Source};
use crate::config::labels::LabelSettings;

/// What `octavo sharing` is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SharingCommand {
    /// `octavo sharing check`.
    Check(SharingSettings, SharingFormat),
    /// `octavo sharing diff`, against what this Node says it offers.
    Diff(SharingSettings, Input),
    /// `octavo sharing import`.
    Import(ImportSettings),
}

/// A layout, and the node that it is held against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharingSettings {
    file: Input,
    layout: Option<String>,
    labels: LabelSettings,
    source: Source,
}

/// What `octavo sharing import` runs on.
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
    /// The file.
    pub fn file(&self) -> &Input {
        &self.file
    }

    /// The layout; `None` for the only one of the file.
    pub fn layout(&self) -> Option<&str> {
        self.layout.as_deref()
    }

    /// How labels are made, and under which strategy partitions are given out.
    pub fn labels(&self) -> LabelSettings {
        self.labels
    }

    /// The node.
    pub fn source(&self) -> &Source {
        &self.source
    }
}

impl ImportSettings {
    /// The file.
    pub fn file(&self) -> &Input {
        &self.file
    }

    /// What the layout is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// In which form it is printed.
    pub fn format(&self) -> DocumentFormat {
        self.format
    }
}
