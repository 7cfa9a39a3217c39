//! Settings of `octavo inspect` and `octavo labels`.

use clap::{ArgAction, Args, ValueEnum, ValueHint};
use octavo_settings::labels::LabelSettings;

use super::input::Input;
use super::source::SourceSettings;
use super::{Headers, headers};

/// How an inventory is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum InspectFormat {
    /// Table, and a diagram of each GPU's slices
    Table,
    /// Table with more columns
    Wide,
    /// Inventory as JSON, readable with --from
    Json,
    /// Inventory as YAML, readable with --from
    Yaml,
    /// Names of the devices only
    Name,
}

/// How labels are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LabelsFormat {
    /// One key=value per line
    Table,
    /// JSON object of labels
    Json,
    /// YAML
    Yaml,
}

/// Source of an inventory, and a name for its unrecognized devices.
#[derive(Debug, Clone, Args)]
pub struct NamedSource {
    /// Name for unknown devices, like the label octavo.dev/type-override
    ///
    /// If the name identifies exactly one catalog product, that product's specifications are used. Any other name is used as the type.
    #[arg(long, value_name = "NAME")]
    pub type_override: Option<String>,

    /// Source of the inventory.
    #[command(flatten)]
    pub inventory: SourceSettings,
}

/// Settings of `octavo inspect`.
#[derive(Debug, Clone, Args)]
pub struct InspectSettings {
    /// Output format
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "table")]
    pub format: InspectFormat,

    /// Print only the rows of the table
    #[arg(long = "no-headers", action = ArgAction::SetTrue, value_parser = headers())]
    pub headers: Headers,

    /// Source of the inventory.
    #[command(flatten)]
    pub source: NamedSource,
}

/// Settings of `octavo labels`.
#[derive(Debug, Clone, Args)]
pub struct LabelsSettings {
    /// Output format
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "table")]
    pub format: LabelsFormat,

    /// Compare the labels with those in FILE; - for standard input
    ///
    /// FILE is output of this command, a feature file of Node Feature Discovery, or a Node printed by kubectl with -o
    /// json or -o yaml. Labels of other owners and nvidia.com/gfd.timestamp are not compared.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath, conflicts_with = "format")]
    pub diff: Option<Input>,

    /// Source of the inventory.
    #[command(flatten)]
    pub source: NamedSource,

    /// Settings of labels.
    #[command(flatten)]
    pub labels: LabelSettings,
}

impl LabelsSettings {
    pub(super) fn check(&self) -> Result<(), &'static str> {
        Input::read_once(
            self.source.inventory.from.iter().chain(&self.diff),
            "only one of --from and --diff can read standard input",
        )
    }
}
