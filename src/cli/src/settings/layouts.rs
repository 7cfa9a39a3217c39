//! Settings of the commands about layouts: `plan`, `assert`, `export` and `layouts`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use octavo_planner::layout::Dialect;
use octavo_planner::plan::{Disruption, Policy};
use octavo_toolkit::choice::{Choice, choice};

use super::input::{Input, WantedFile, WantedFiles};
use super::source::SourceSettings;

/// What a change of MIG mode may cost.
const DISRUPTIONS: &[Choice<Disruption>] = &[
    ("none", "No disruption of running workloads", Disruption::None),
    (
        "clients-bounce",
        "Clients that have a GPU open must close it, and can reopen it later",
        Disruption::ClientsBounce,
    ),
    ("gpu-reset", "GPUs can be reset", Disruption::GpuReset),
    ("reboot", "The machine can be rebooted", Disruption::Reboot),
];

/// Whose form of a layout file.
const DIALECTS: &[Choice<Dialect>] = &[
    ("octavo", "octavo.dev/v1", Dialect::Octavo),
    ("mig-parted", "NVIDIA's mig-parted, version v1", Dialect::MigParted),
];

/// A layout, and the node that it is resolved on.
#[derive(Debug, Clone, Args)]
pub struct LayoutRequest {
    /// Name of the layout
    pub layout: String,

    /// Layout file; - for standard input
    ///
    /// In the format of Octavo or of NVIDIA's mig-parted. Default: the layouts that `octavo layouts generate` prints
    /// for this node.
    #[arg(
        short = 'f',
        long = "layouts",
        value_name = "FILE",
        value_hint = ValueHint::AnyPath,
        env = "OCTAVO_LAYOUTS",
    )]
    pub layouts: Option<Input>,

    /// Source of the inventory.
    #[command(flatten)]
    pub source: SourceSettings,
}

/// Settings of `octavo plan`.
#[derive(Debug, Clone, Args)]
pub struct PlanSettings {
    /// Maximum disruption for a change of MIG mode
    #[arg(long, value_name = "LEVEL", default_value = "gpu-reset", value_parser = choice(DISRUPTIONS))]
    pub allow: Disruption,

    /// Mount point of the host's procfs, used to find processes on GPUs; ignored with --from
    #[arg(long, value_name = "DIR", env = "OCTAVO_PROC_ROOT", default_value = "/proc")]
    pub proc_root: PathBuf,

    /// Directory of the journal of interrupted changes; ignored with --from
    #[arg(long, value_name = "DIR", env = "OCTAVO_STATE_DIR", default_value = "/var/lib/octavo")]
    pub state_dir: PathBuf,

    /// Output format
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "table")]
    pub format: PlanFormat,

    /// The layout, and the node.
    #[command(flatten)]
    pub request: LayoutRequest,
}

/// Settings of `octavo export`.
#[derive(Debug, Clone, Args)]
pub struct ExportSettings {
    /// Name of the layout
    #[arg(long, value_name = "NAME", default_value = "current")]
    pub name: String,

    /// Format of the layout file
    #[arg(long, value_name = "DIALECT", default_value = "octavo", value_parser = choice(DIALECTS))]
    pub dialect: Dialect,

    /// Output format
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "yaml")]
    pub format: DocumentFormat,

    /// Source of the inventory.
    #[command(flatten)]
    pub source: SourceSettings,
}

/// Settings of `octavo layouts`'s subcommands.
#[derive(Debug, Clone, Subcommand)]
pub enum LayoutsCommand {
    /// Validate layout files, and check whether they fit machines
    ///
    /// Each error is printed as `FILE:LINE:COLUMN: error: ...`. Exit codes: 0 no errors, 1 errors found, 2 usage
    /// error. Warnings do not affect the exit code.
    Check(CheckSettings),
    /// Show the layouts of a file, and draw them on a machine
    Show(ShowSettings),
    /// Generate the layouts that every GPU of this node supports
    Generate(GenerateSettings),
}

/// Settings of `octavo layouts check`.
#[derive(Debug, Clone, Args)]
pub struct CheckSettings {
    /// Layout files.
    #[command(flatten)]
    pub files: WantedFiles,

    /// Check only this layout against the machines
    #[arg(long, value_name = "NAME", requires = "machines")]
    pub layout: Option<String>,

    /// Machine that the layouts must fit; repeat for several
    ///
    /// Output of `octavo inspect -o json` or `-o yaml`, or a scenario of the simulated driver. A scenario needs
    /// nvml-simctl and `libnvml_sim.so` in the directory of this program.
    #[arg(long = "from", alias = "machine", value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub machines: Vec<Input>,
}

/// Settings of `octavo layouts show`.
#[derive(Debug, Clone, Args)]
pub struct ShowSettings {
    /// Layout file.
    #[command(flatten)]
    pub file: WantedFile,

    /// Show only this layout
    #[arg(long, value_name = "NAME", conflicts_with = "name")]
    layout: Option<String>,

    /// The same without a flag, after a file without a flag.
    #[arg(value_name = "NAME", hide = true)]
    name: Option<String>,

    /// Draw the layout on this machine, as if its GPUs were empty
    ///
    /// Output of `octavo inspect -o json` or `-o yaml`, or a scenario of the simulated driver.
    #[arg(long = "from", alias = "machine", value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub machine: Option<Input>,
}

/// Settings of `octavo layouts generate`.
#[derive(Debug, Clone, Args)]
pub struct GenerateSettings {
    /// Format of the layout file
    #[arg(long, value_name = "DIALECT", default_value = "octavo", value_parser = choice(DIALECTS))]
    pub dialect: Dialect,

    /// Output format
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "yaml")]
    pub format: DocumentFormat,

    /// Source of the inventory.
    #[command(flatten)]
    pub source: SourceSettings,
}

/// How a plan is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PlanFormat {
    /// Slices of each GPU before and after, and the steps
    Table,
    /// Also show every call to the driver
    Wide,
    /// Plan as JSON
    Json,
    /// YAML
    Yaml,
    /// Names of the devices that do not match the layout
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

impl LayoutRequest {
    pub(super) fn check(&self) -> Result<(), &'static str> {
        Input::read_once(
            self.layouts.iter().chain(&self.source.from),
            "only one of --layouts and --from can read standard input",
        )
    }
}

impl LayoutsCommand {
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let once = "standard input can be read only once";
        match self {
            Self::Check(check) => {
                Input::read_once(check.files.inputs().chain(&check.machines), once)
            }
            Self::Show(show) => {
                Input::read_once([show.file.input()].into_iter().chain(&show.machine), once)
            }
            Self::Generate(_) => Ok(()),
        }
    }
}

impl ShowSettings {
    /// Returns the name of the only layout to show.
    pub fn layout(&self) -> Option<&str> {
        self.layout.as_deref().or(self.name.as_deref())
    }
}

impl PlanSettings {
    /// Returns which disruptions are permitted.
    pub fn policy(&self) -> Policy {
        Policy { max_disruption: self.allow }
    }
}
