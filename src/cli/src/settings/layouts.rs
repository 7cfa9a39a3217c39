//! Settings of the commands about layouts: `plan`, `assert`, `export` and `layouts`.

mod args;

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use octavo_planner::layout::Dialect;
use octavo_planner::plan::Policy;

pub(super) use self::args::{
    ASSERT_EXAMPLES, AssertArgs, EXPORT_EXAMPLES, ExportArgs, LAYOUTS_EXAMPLES, LayoutsArgs,
    PLAN_EXAMPLES, PlanArgs,
};
use super::{Input, Source};

/// Settings of `octavo plan`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanSettings {
    wish: LayoutRequest,
    policy: Policy,
    proc_root: PathBuf,
    state_dir: PathBuf,
    format: PlanFormat,
}

/// Settings of `octavo assert`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssertSettings {
    wish: LayoutRequest,
}

/// A layout, and the node that it is resolved on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayoutRequest {
    layout: String,
    layouts: Option<Input>,
    source: Source,
}

/// Settings of `octavo export`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportSettings {
    name: String,
    dialect: Dialect,
    format: DocumentFormat,
    source: Source,
}

/// Settings of `octavo layouts`'s subcommands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LayoutsCommand {
    /// `octavo layouts check`.
    Check(CheckSettings),
    /// `octavo layouts show`.
    Show(ShowSettings),
    /// `octavo layouts generate`.
    Generate(GenerateSettings),
}

/// Settings of `octavo layouts check`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckSettings {
    files: Vec<Input>,
    layout: Option<String>,
    machines: Vec<Input>,
}

/// Settings of `octavo layouts show`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShowSettings {
    file: Input,
    layout: Option<String>,
    machine: Option<Input>,
}

/// Settings of `octavo layouts generate`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GenerateSettings {
    dialect: Dialect,
    format: DocumentFormat,
    source: Source,
}

/// How a plan is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PlanFormat {
    /// Each GPU's slices before and after, and what is done
    Table,
    /// The same with every call to the driver
    Wide,
    /// The plan as JSON
    Json,
    /// The same as YAML
    Yaml,
    /// The name of each device that is not as it shall be, and nothing else
    Name,
}

/// How a file of layouts is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DocumentFormat {
    /// YAML
    Yaml,
    /// JSON
    Json,
}

impl PlanSettings {
    /// Returns the layout and the node.
    pub fn request(&self) -> &LayoutRequest {
        &self.wish
    }

    /// Returns which disruptions are permitted.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Returns the mount point of procfs.
    pub fn proc_root(&self) -> &Path {
        &self.proc_root
    }

    /// Returns the state directory, which records this machine's interrupted changes.
    pub fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    /// Returns the output format.
    pub fn format(&self) -> PlanFormat {
        self.format
    }
}

impl AssertSettings {
    /// Returns the layout and the node.
    pub fn request(&self) -> &LayoutRequest {
        &self.wish
    }
}

impl LayoutRequest {
    /// Returns the layout's name.
    pub fn layout(&self) -> &str {
        &self.layout
    }

    /// Returns the layouts file; `None` for layouts that are generated for the node.
    pub fn layouts(&self) -> Option<&Input> {
        self.layouts.as_ref()
    }

    /// Returns the source of the node's inventory.
    pub fn source(&self) -> &Source {
        &self.source
    }
}

impl ExportSettings {
    /// Returns the layout's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the dialect.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Returns the output format.
    pub fn format(&self) -> DocumentFormat {
        self.format
    }

    /// Returns the source of the node's inventory.
    pub fn source(&self) -> &Source {
        &self.source
    }
}

impl CheckSettings {
    /// Returns the files to check.
    pub fn files(&self) -> &[Input] {
        &self.files
    }

    /// Returns the only layout to check against the machines; `None` for all.
    pub fn layout(&self) -> Option<&str> {
        self.layout.as_deref()
    }

    /// Returns recordings or scenarios of machines.
    pub fn machines(&self) -> &[Input] {
        &self.machines
    }
}

impl ShowSettings {
    /// Returns the file to show.
    pub fn file(&self) -> &Input {
        &self.file
    }

    /// Returns the only layout to show; `None` for all.
    pub fn layout(&self) -> Option<&str> {
        self.layout.as_deref()
    }

    /// Returns the recording or scenario to draw layouts for.
    pub fn machine(&self) -> Option<&Input> {
        self.machine.as_ref()
    }
}

impl GenerateSettings {
    /// Returns the dialect.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Returns the output format.
    pub fn format(&self) -> DocumentFormat {
        self.format
    }

    /// Returns the source of the node's inventory.
    pub fn source(&self) -> &Source {
        &self.source
    }
}
