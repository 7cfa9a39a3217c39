//! Command-line arguments of the commands about layouts.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use octavo_planner::layout::Dialect;
use octavo_planner::plan::{Disruption, Policy};

use super::{
    AssertSettings, CheckSettings, DocumentFormat, ExportSettings, GenerateSettings, LayoutRequest,
    LayoutsCommand, PlanFormat, PlanSettings, ShowSettings,
};
use crate::settings::args::SourceArgs;
use crate::settings::{Input, Source};

pub(in crate::settings) const PLAN_EXAMPLES: &str = "\
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

pub(in crate::settings) const ASSERT_EXAMPLES: &str = "\
Examples:
  # Does this node have the layout `serving`?
  octavo assert serving -f layouts.yaml && echo yes

  # Is no GPU of this node partitioned?
  octavo assert all-disabled

Only devices that the layout speaks of are looked at. Where an instance lies does not matter.

Exit codes: 0 they have it, 1 failed, 2 wrong usage, 3 they do not; the differences are printed.";

pub(in crate::settings) const EXPORT_EXAMPLES: &str = "\
Examples:
  # What this node has, as a layout
  octavo export --name serving > layouts.yaml

  # The same for NVIDIA's mig-parted
  octavo export --dialect mig-parted";

pub(in crate::settings) const LAYOUTS_EXAMPLES: &str = "\
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

/// How the layout's file is found.
#[derive(Debug, Args)]
struct LayoutRequestArgs {
    /// The layout's name
    layout: String,

    /// The file it is in; - for standard input
    ///
    /// In the dialect of Octavo or of NVIDIA's mig-parted. Without it, the layouts that `octavo layouts generate` prints
    /// for this node can be named.
    #[arg(
        short = 'f',
        long = "layouts",
        value_name = "FILE",
        env = "OCTAVO_LAYOUTS",
        hide_env_values = true
    )]
    layouts: Option<PathBuf>,

    #[command(flatten)]
    source: SourceArgs,
}

/// Raw arguments of `octavo plan`.
#[derive(Debug, Args)]
pub(in crate::settings) struct PlanArgs {
    #[command(flatten)]
    wish: LayoutRequestArgs,

    /// The most that a change of MIG mode may cost
    #[arg(long, value_enum, value_name = "COST", default_value = "gpu-reset")]
    allow: AllowArg,

    /// Where the /proc of the driver's host is mounted: it tells who uses a GPU; not used with --from
    #[arg(
        long,
        value_name = "DIR",
        env = "OCTAVO_PROC_ROOT",
        hide_env_values = true,
        default_value = "/proc"
    )]
    proc_root: PathBuf,

    /// Where the journal of interrupted changes is; not used with --from
    #[arg(
        long,
        value_name = "DIR",
        env = "OCTAVO_STATE_DIR",
        hide_env_values = true,
        default_value = "/var/lib/octavo"
    )]
    state_dir: PathBuf,

    /// How to print it
    #[arg(
        short,
        long,
        value_enum,
        value_name = "FORMAT",
        default_value = "table"
    )]
    output: PlanFormat,
}

/// Raw arguments of `octavo assert`.
#[derive(Debug, Args)]
pub(in crate::settings) struct AssertArgs {
    #[command(flatten)]
    wish: LayoutRequestArgs,
}

/// Raw arguments of `octavo export`.
#[derive(Debug, Args)]
pub(in crate::settings) struct ExportArgs {
    /// What the layout is called
    #[arg(long, value_name = "NAME", default_value = "current")]
    name: String,

    /// Whose dialect
    #[arg(long, value_enum, value_name = "DIALECT", default_value = "octavo")]
    dialect: DialectArg,

    /// How to print it
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "yaml")]
    output: DocumentFormat,

    #[command(flatten)]
    source: SourceArgs,
}

/// Raw arguments of `octavo layouts`.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(in crate::settings) struct LayoutsArgs {
    #[command(subcommand)]
    command: LayoutsCommandArgs,
}

#[derive(Debug, Subcommand)]
enum LayoutsCommandArgs {
    /// Check files of layouts, and whether machines could have them
    ///
    /// Every error is a line `FILE:LINE:COLUMN: error: ...`. Exit codes: 0 nothing is wrong, 1 something is, 2 wrong
    /// usage. Warnings are printed and do not count.
    Check(CheckArgs),
    /// Show the layouts of a file, and what they look like on a machine
    Show(ShowArgs),
    /// Print a file of layouts that every GPU of this node can have
    Generate(GenerateArgs),
}

#[derive(Debug, Args)]
struct CheckArgs {
    /// Files of layouts; - for standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Hold only this layout against the machines
    #[arg(long, value_name = "NAME", requires = "machines")]
    layout: Option<String>,

    /// A machine that must be able to have them; repeat for several
    ///
    /// What `octavo inspect -o json` or `-o yaml` printed there, or a scenario of the simulated driver, which needs
    /// nvml-simctl and `libnvml_sim.so` beside this program.
    #[arg(long = "machine", value_name = "FILE")]
    machines: Vec<PathBuf>,
}

#[derive(Debug, Args)]
struct ShowArgs {
    /// The file of layouts; - for standard input
    file: PathBuf,

    /// Only this layout
    #[arg(value_name = "NAME")]
    layout: Option<String>,

    /// Draw the result on this machine, as if its GPUs were empty
    ///
    /// What `octavo inspect -o json` or `-o yaml` printed there, or a scenario of the simulated driver.
    #[arg(long, value_name = "FILE")]
    machine: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct GenerateArgs {
    /// Whose dialect
    #[arg(long, value_enum, value_name = "DIALECT", default_value = "octavo")]
    dialect: DialectArg,

    /// How to print it
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "yaml")]
    output: DocumentFormat,

    #[command(flatten)]
    source: SourceArgs,
}

/// What a change of MIG mode may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AllowArg {
    /// Nothing: nobody may notice
    None,
    /// Whoever has a GPU open may have to let go and come back
    ClientsBounce,
    /// GPUs may be reset
    GpuReset,
    /// The machine may be rebooted
    Reboot,
}

/// Whose form of a layout file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DialectArg {
    /// octavo.dev/v1
    Octavo,
    /// NVIDIA's mig-parted, version v1
    MigParted,
}

impl LayoutRequestArgs {
    fn resolve(self) -> Result<LayoutRequest, &'static str> {
        let layouts = self.layouts.map(Input::from);
        let source = Source::from(self.source);
        if layouts == Some(Input::Stdin) && source == Source::Recording(Input::Stdin) {
            return Err("only one of --layouts and --from can read standard input");
        }
        Ok(LayoutRequest {
            layout: self.layout,
            layouts,
            source,
        })
    }
}

impl PlanArgs {
    pub(in crate::settings) fn resolve(self) -> Result<PlanSettings, &'static str> {
        Ok(PlanSettings {
            wish: self.wish.resolve()?,
            policy: Policy {
                max_disruption: match self.allow {
                    AllowArg::None => Disruption::None,
                    AllowArg::ClientsBounce => Disruption::ClientsBounce,
                    AllowArg::GpuReset => Disruption::GpuReset,
                    AllowArg::Reboot => Disruption::Reboot,
                },
            },
            proc_root: self.proc_root,
            state_dir: self.state_dir,
            format: self.output,
        })
    }
}

impl AssertArgs {
    pub(in crate::settings) fn resolve(self) -> Result<AssertSettings, &'static str> {
        Ok(AssertSettings {
            wish: self.wish.resolve()?,
        })
    }
}

impl LayoutsArgs {
    pub(in crate::settings) fn resolve(self) -> Result<LayoutsCommand, &'static str> {
        Ok(match self.command {
            LayoutsCommandArgs::Check(args) => LayoutsCommand::Check(args.resolve()?),
            LayoutsCommandArgs::Show(args) => LayoutsCommand::Show(args.resolve()?),
            LayoutsCommandArgs::Generate(args) => LayoutsCommand::Generate(args.into()),
        })
    }
}

impl CheckArgs {
    fn resolve(self) -> Result<CheckSettings, &'static str> {
        let inputs =
            |paths: Vec<PathBuf>| -> Vec<Input> { paths.into_iter().map(Input::from).collect() };
        let (files, machines) = (inputs(self.files), inputs(self.machines));
        let once = files.iter().chain(&machines);
        if once.filter(|input| **input == Input::Stdin).count() > 1 {
            return Err("standard input can be read only once");
        }
        Ok(CheckSettings {
            files,
            layout: self.layout,
            machines,
        })
    }
}

impl ShowArgs {
    fn resolve(self) -> Result<ShowSettings, &'static str> {
        let file = Input::from(self.file);
        let machine = self.machine.map(Input::from);
        if file == Input::Stdin && machine == Some(Input::Stdin) {
            return Err("standard input can be read only once");
        }
        Ok(ShowSettings {
            file,
            layout: self.layout,
            machine,
        })
    }
}

impl From<ExportArgs> for ExportSettings {
    fn from(args: ExportArgs) -> Self {
        Self {
            name: args.name,
            dialect: args.dialect.into(),
            format: args.output,
            source: args.source.into(),
        }
    }
}

impl From<GenerateArgs> for GenerateSettings {
    fn from(args: GenerateArgs) -> Self {
        Self {
            dialect: args.dialect.into(),
            format: args.output,
            source: args.source.into(),
        }
    }
}

impl From<DialectArg> for Dialect {
    fn from(arg: DialectArg) -> Self {
        match arg {
            DialectArg::Octavo => Self::Octavo,
            DialectArg::MigParted => Self::MigParted,
        }
    }
}
