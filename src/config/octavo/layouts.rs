//! Settings of the commands about layouts: `plan`, `assert`, `export` and `layouts`.

mod args;

use std::path::{Path, PathBuf};

use clap::ValueEnum;

pub(super) use self::args::{
    ASSERT_EXAMPLES, AssertArgs, EXPORT_EXAMPLES, ExportArgs, LAYOUTS_EXAMPLES, LayoutsArgs,
    PLAN_EXAMPLES, PlanArgs,
};
use super::{Input, Source};
use crate::domain::layout::Dialect;
use crate::domain::plan::Policy;

/// What `octavo plan` runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanSettings {
    wish: Wish,
    policy: Policy,
    proc_root: PathBuf,
    state_dir: PathBuf,
    format: PlanFormat,
}

/// What `octavo assert` runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssertSettings {
    wish: Wish,
}

/// A layout, and the node that it is held against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    layout: String,
    layouts: Option<Input>,
    source: Source,
}

/// What `octavo export` runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportSettings {
    name: String,
    dialect: Dialect,
    format: DocumentFormat,
    source: Source,
}

/// What `octavo layouts` is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LayoutsCommand {
    /// `octavo layouts check`.
    Check(CheckSettings),
    /// `octavo layouts show`.
    Show(ShowSettings),
    /// `octavo layouts generate`.
    Generate(GenerateSettings),
}

/// What `octavo layouts check` runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckSettings {
    files: Vec<Input>,
    layout: Option<String>,
    machines: Vec<Input>,
}

/// What `octavo layouts show` runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShowSettings {
    file: Input,
    layout: Option<String>,
    machine: Option<Input>,
}

/// What `octavo layouts generate` runs on.
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
    /// Which layout, and for which node.
    pub fn wish(&self) -> &Wish {
        &self.wish
    }

    /// What may be done.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Where procfs is mounted.
    pub fn proc_root(&self) -> &Path {
        &self.proc_root
    }

    /// Where interrupted changes of this machine are recorded.
    pub fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    /// How the plan is printed.
    pub fn format(&self) -> PlanFormat {
        self.format
    }
}

impl AssertSettings {
    /// Which layout, and for which node.
    pub fn wish(&self) -> &Wish {
        &self.wish
    }
}

impl Wish {
    /// The layout's name.
    pub fn layout(&self) -> &str {
        &self.layout
    }

    /// The file it is in; `None` for those that are generated for the node.
    pub fn layouts(&self) -> Option<&Input> {
        self.layouts.as_ref()
    }

    /// The node.
    pub fn source(&self) -> &Source {
        &self.source
    }
}

impl ExportSettings {
    /// What the layout is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// In which dialect.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// In which form.
    pub fn format(&self) -> DocumentFormat {
        self.format
    }

    /// The node.
    pub fn source(&self) -> &Source {
        &self.source
    }
}

impl CheckSettings {
    /// What is checked.
    pub fn files(&self) -> &[Input] {
        &self.files
    }

    /// The one layout that is held against the machines; `None` for all.
    pub fn layout(&self) -> Option<&str> {
        self.layout.as_deref()
    }

    /// Recordings or scenarios.
    pub fn machines(&self) -> &[Input] {
        &self.machines
    }
}

impl ShowSettings {
    /// What is shown.
    pub fn file(&self) -> &Input {
        &self.file
    }

    /// The one layout that is shown; `None` for all.
    pub fn layout(&self) -> Option<&str> {
        self.layout.as_deref()
    }

    /// The recording or scenario it is shown on.
    pub fn machine(&self) -> Option<&Input> {
        self.machine.as_ref()
    }
}

impl GenerateSettings {
    /// In which dialect.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// In which form.
    pub fn format(&self) -> DocumentFormat {
        self.format
    }

    /// The node.
    pub fn source(&self) -> &Source {
        &self.source
    }
}
