//! Settings of the commands about layouts: `plan`, `assert`, `export` and `layouts`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use octavo_planner::layout::Dialect;
use octavo_planner::plan::{Disruption, Policy};

use super::choice::{Choice, choice};
use super::input::Input;
use super::source::SourceSettings;

pub(super) const PLAN_EXAMPLES: &str = "\
Examples:
  # What would happen if this node got the layout `serving`?
  octavo plan serving -f layouts.yaml

  # Without a file: the layouts that every GPU of this node can have
  octavo plan all-balanced

  # A plan for another machine, recorded there with `octavo inspect -o json`
  octavo plan serving -f layouts.yaml --machine node7.json

  # Only if nobody has to let go of a GPU
  octavo plan serving -f layouts.yaml --allow none

  # For a program; docs/plan-document.md has the fields
  octavo plan serving -f layouts.yaml -o json

Nothing is changed. A plan destroys nothing that is in use, then as little as possible, then creates as little as
possible. In the pictures `-` is destroyed, `+` is new, and all else stays.

Exit codes: 0 nothing to do, 1 failed, 2 wrong usage, 3 there are changes, 4 blocked by somebody or by --allow,
5 impossible on this hardware. Of several GPUs the gravest counts.";

pub(super) const ASSERT_EXAMPLES: &str = "\
Examples:
  # Does this node have the layout `serving`?
  octavo assert serving -f layouts.yaml && echo yes

  # Is no GPU of this node partitioned?
  octavo assert all-disabled

Only devices that the layout speaks of are looked at. Where an instance lies does not matter.

Exit codes: 0 they have it, 1 failed, 2 wrong usage, 3 they do not; the differences are printed.";

pub(super) const EXPORT_EXAMPLES: &str = "\
Examples:
  # What this node has, as a layout
  octavo export --name serving > layouts.yaml

  # The same for NVIDIA's mig-parted
  octavo export --dialect mig-parted";

pub(super) const LAYOUTS_EXAMPLES: &str = "\
Examples:
  # Is everything right with a file? Runs anywhere, without a GPU
  octavo layouts check layouts.yaml

  # Would it fit these machines?
  octavo layouts check layouts.yaml --machine node7.json --machine demo/machines/hgx-a100.yaml

  # What is in it, and what would it look like?
  octavo layouts show layouts.yaml
  octavo layouts show layouts.yaml serving --machine node7.json

  # A file to begin with: all layouts that every GPU of this node can have
  octavo layouts generate > layouts.yaml";

/// What a change of MIG mode may cost.
const DISRUPTIONS: &[Choice<Disruption>] = &[
    ("none", "Nothing: nobody may notice", Disruption::None),
    (
        "clients-bounce",
        "Whoever has a GPU open may have to let go and come back",
        Disruption::ClientsBounce,
    ),
    ("gpu-reset", "GPUs may be reset", Disruption::GpuReset),
    ("reboot", "The machine may be rebooted", Disruption::Reboot),
];

/// Whose form of a layout file.
const DIALECTS: &[Choice<Dialect>] = &[
    ("octavo", "octavo.dev/v1", Dialect::Octavo),
    (
        "mig-parted",
        "NVIDIA's mig-parted, version v1",
        Dialect::MigParted,
    ),
];

/// A layout, and the node that it is resolved on.
#[derive(Debug, Clone, Args)]
pub struct LayoutRequest {
    /// The layout's name
    pub layout: String,

    /// The file it is in; - for standard input
    ///
    /// In the dialect of Octavo or of NVIDIA's mig-parted. Without it, the layouts that `octavo layouts generate` prints
    /// for this node can be named.
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
    /// The layout, and the node.
    #[command(flatten)]
    pub request: LayoutRequest,

    /// The most that a change of MIG mode may cost
    #[arg(long, value_name = "COST", default_value = "gpu-reset", value_parser = choice(DISRUPTIONS))]
    pub allow: Disruption,

    /// Where the /proc of the driver's host is mounted: it tells who uses a GPU; not used with --from
    #[arg(
        long,
        value_name = "DIR",
        env = "OCTAVO_PROC_ROOT",
        default_value = "/proc"
    )]
    pub proc_root: PathBuf,

    /// Where the journal of interrupted changes is; not used with --from
    #[arg(
        long,
        value_name = "DIR",
        env = "OCTAVO_STATE_DIR",
        default_value = "/var/lib/octavo"
    )]
    pub state_dir: PathBuf,

    /// How to print it
    #[arg(
        short = 'o',
        long = "output",
        value_name = "FORMAT",
        default_value = "table"
    )]
    pub format: PlanFormat,
}

/// Settings of `octavo export`.
#[derive(Debug, Clone, Args)]
pub struct ExportSettings {
    /// What the layout is called
    #[arg(long, value_name = "NAME", default_value = "current")]
    pub name: String,

    /// Whose dialect
    #[arg(long, value_name = "DIALECT", default_value = "octavo", value_parser = choice(DIALECTS))]
    pub dialect: Dialect,

    /// How to print it
    #[arg(
        short = 'o',
        long = "output",
        value_name = "FORMAT",
        default_value = "yaml"
    )]
    pub format: DocumentFormat,

    /// Source of the inventory.
    #[command(flatten)]
    pub source: SourceSettings,
}

/// Settings of `octavo layouts`'s subcommands.
#[derive(Debug, Clone, Subcommand)]
pub enum LayoutsCommand {
    /// Check files of layouts, and whether machines could have them
    ///
    /// Every error is a line `FILE:LINE:COLUMN: error: ...`. Exit codes: 0 nothing is wrong, 1 something is, 2 wrong
    /// usage. Warnings are printed and do not count.
    Check(CheckSettings),
    /// Show the layouts of a file, and what they look like on a machine
    Show(ShowSettings),
    /// Print a file of layouts that every GPU of this node can have
    Generate(GenerateSettings),
}

/// Settings of `octavo layouts check`.
#[derive(Debug, Clone, Args)]
pub struct CheckSettings {
    /// Files of layouts; - for standard input
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub files: Vec<Input>,

    /// Hold only this layout against the machines
    #[arg(long, value_name = "NAME", requires = "machines")]
    pub layout: Option<String>,

    /// A machine that must be able to have them; repeat for several
    ///
    /// What `octavo inspect -o json` or `-o yaml` printed there, or a scenario of the simulated driver, which needs
    /// nvml-simctl and `libnvml_sim.so` beside this program.
    #[arg(long = "machine", value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub machines: Vec<Input>,
}

/// Settings of `octavo layouts show`.
#[derive(Debug, Clone, Args)]
pub struct ShowSettings {
    /// The file of layouts; - for standard input
    #[arg(value_hint = ValueHint::AnyPath)]
    pub file: Input,

    /// Only this layout
    #[arg(value_name = "NAME")]
    pub layout: Option<String>,

    /// Draw the result on this machine, as if its GPUs were empty
    ///
    /// What `octavo inspect -o json` or `-o yaml` printed there, or a scenario of the simulated driver.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub machine: Option<Input>,
}

/// Settings of `octavo layouts generate`.
#[derive(Debug, Clone, Args)]
pub struct GenerateSettings {
    /// Whose dialect
    #[arg(long, value_name = "DIALECT", default_value = "octavo", value_parser = choice(DIALECTS))]
    pub dialect: Dialect,

    /// How to print it
    #[arg(
        short = 'o',
        long = "output",
        value_name = "FORMAT",
        default_value = "yaml"
    )]
    pub format: DocumentFormat,

    /// Source of the inventory.
    #[command(flatten)]
    pub source: SourceSettings,
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
            Self::Check(check) => Input::read_once(check.files.iter().chain(&check.machines), once),
            Self::Show(show) => {
                Input::read_once([&show.file].into_iter().chain(&show.machine), once)
            }
            Self::Generate(_) => Ok(()),
        }
    }
}

impl PlanSettings {
    /// Returns which disruptions are permitted.
    pub fn policy(&self) -> Policy {
        Policy {
            max_disruption: self.allow,
        }
    }
}
