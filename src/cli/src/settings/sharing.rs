//! Settings of `octavo sharing`.

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use octavo_settings::labels::LabelSettings;

use super::input::{Input, WantedFile};
use super::layouts::DocumentFormat;
use super::source::SourceSettings;

/// Settings of `octavo sharing`'s subcommands.
#[derive(Debug, Clone, Subcommand)]
pub enum SharingCommand {
    /// Show the resources that a layout would offer to pods on this node
    #[command(after_long_help = include_str!("../../help/sharing.txt"))]
    Check(CheckSettings),
    /// Compare the resources of a layout with those that the Node advertises
    #[command(after_long_help = include_str!("../../help/sharing.txt"))]
    Diff(DiffSettings),
    /// Convert a configuration of NVIDIA's device plugin to a layout
    #[command(after_long_help = include_str!("../../help/sharing.txt"))]
    Import(ImportSettings),
}

/// A layout, and the node that it is resolved on.
#[derive(Debug, Clone, Args)]
pub struct SharingSettings {
    /// Layout file, or configuration of NVIDIA's device plugin.
    #[command(flatten)]
    pub file: WantedFile,

    /// Name of the layout; optional if the file has only one
    #[arg(long, value_name = "NAME")]
    pub layout: Option<String>,

    /// Source of the inventory.
    #[command(flatten)]
    pub source: SourceSettings,

    /// Settings of labels.
    #[command(flatten)]
    pub labels: LabelSettings,
}

/// Settings of `octavo sharing check`.
#[derive(Debug, Clone, Args)]
pub struct CheckSettings {
    /// Output format
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "table")]
    pub format: SharingFormat,

    /// The layout, and the node.
    #[command(flatten)]
    pub request: SharingSettings,
}

/// Settings of `octavo sharing diff`.
#[derive(Debug, Clone, Args)]
pub struct DiffSettings {
    /// Node printed by kubectl with -o json or -o yaml; - for standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub node: Input,

    /// The layout, and the node.
    #[command(flatten)]
    pub request: SharingSettings,
}

/// Settings of `octavo sharing import`.
#[derive(Debug, Clone, Args)]
pub struct ImportSettings {
    /// Configuration of NVIDIA's device plugin, `version: v1`.
    #[command(flatten)]
    pub file: WantedFile,

    /// Name of the layout
    #[arg(long, value_name = "NAME", default_value = "device-plugin")]
    pub name: String,

    /// Output format
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "yaml")]
    pub format: DocumentFormat,
}

/// Output format of the offered devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SharingFormat {
    /// Resources, the first device IDs of each unit, and labels
    Table,
    /// Table with all device IDs and labels
    Wide,
    /// JSON
    Json,
    /// YAML
    Yaml,
}

impl SharingCommand {
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let (request, node) = match self {
            Self::Check(check) => (&check.request, None),
            Self::Diff(diff) => (&diff.request, Some(&diff.node)),
            Self::Import(_) => return Ok(()),
        };
        let inputs = [Some(request.file.input()), request.source.from.as_ref(), node];
        Input::read_once(inputs.into_iter().flatten(), "standard input can be read only once")
    }
}
