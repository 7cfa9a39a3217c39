//! Settings of `octavo sharing`.

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use octavo_settings::labels::LabelSettings;

use super::input::Input;
use super::layouts::DocumentFormat;
use super::source::SourceSettings;

pub(super) const EXAMPLES: &str = "\
Examples:
  # What would this node give out to pods, under which names and labels?
  octavo sharing check layouts.yaml --layout notebooks --mig-strategy mixed

  # The same of a configuration of NVIDIA's device plugin, for another machine
  octavo sharing check dp-config.yaml --machine node7.json

  # What would change against what the Node offers now?
  kubectl get node $NODE -o json | octavo sharing diff layouts.yaml --layout notebooks --node -

  # NVIDIA's configuration as a layout of ours
  octavo sharing import dp-config.yaml --name shared > layouts.yaml

Nothing is changed. Partitions that the layout makes and that are not there yet have no UUID: they stand as (new 1).

Exit codes: 0 done or no difference, 1 failed, 2 wrong usage, 3 there are differences, 5 impossible on this hardware.";

/// Settings of `octavo sharing`'s subcommands.
#[derive(Debug, Clone, Subcommand)]
pub enum SharingCommand {
    /// Show what a layout would have this node give out to pods
    #[command(after_long_help = EXAMPLES)]
    Check(CheckSettings),
    /// Show how that differs from what the Node offers now
    #[command(after_long_help = EXAMPLES)]
    Diff(DiffSettings),
    /// Print a configuration of NVIDIA's device plugin as a layout of ours
    #[command(after_long_help = EXAMPLES)]
    Import(ImportSettings),
}

/// A layout, and the node that it is resolved on.
#[derive(Debug, Clone, Args)]
pub struct SharingSettings {
    /// A file of layouts, or a configuration of NVIDIA's device plugin; - for standard input
    #[arg(value_hint = ValueHint::AnyPath)]
    pub file: Input,

    /// The layout's name; not needed where the file has one
    #[arg(long, value_name = "NAME")]
    pub layout: Option<String>,

    /// Settings of labels.
    #[command(flatten)]
    pub labels: LabelSettings,

    /// Source of the inventory.
    #[command(flatten)]
    pub source: SourceSettings,
}

/// Settings of `octavo sharing check`.
#[derive(Debug, Clone, Args)]
pub struct CheckSettings {
    /// The layout, and the node.
    #[command(flatten)]
    pub request: SharingSettings,

    /// How to print it
    #[arg(
        short = 'o',
        long = "output",
        value_name = "FORMAT",
        default_value = "table"
    )]
    pub format: SharingFormat,
}

/// Settings of `octavo sharing diff`.
#[derive(Debug, Clone, Args)]
pub struct DiffSettings {
    /// The layout, and the node.
    #[command(flatten)]
    pub request: SharingSettings,

    /// The Node as kubectl prints it with -o json or yaml; - for standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub node: Input,
}

/// Settings of `octavo sharing import`.
#[derive(Debug, Clone, Args)]
pub struct ImportSettings {
    /// A configuration of NVIDIA's device plugin, `version: v1`; - for standard input
    #[arg(value_hint = ValueHint::AnyPath)]
    pub file: Input,

    /// What the layout is called
    #[arg(long, value_name = "NAME", default_value = "device-plugin")]
    pub name: String,

    /// How to print it
    #[arg(
        short = 'o',
        long = "output",
        value_name = "FORMAT",
        default_value = "yaml"
    )]
    pub format: DocumentFormat,
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

impl SharingCommand {
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let (request, node) = match self {
            Self::Check(check) => (&check.request, None),
            Self::Diff(diff) => (&diff.request, Some(&diff.node)),
            Self::Import(_) => return Ok(()),
        };
        let inputs = [Some(&request.file), request.source.from.as_ref(), node];
        Input::read_once(
            inputs.into_iter().flatten(),
            "standard input can be read only once",
        )
    }
}
