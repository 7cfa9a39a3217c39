//! Settings of `octavo inspect` and `octavo labels`.

use clap::{ArgAction, Args, ValueEnum, ValueHint};
use octavo_settings::labels::LabelSettings;

use super::input::Input;
use super::source::SourceSettings;
use super::{Headers, headers};

pub(super) const INSPECT_EXAMPLES: &str = "\
Examples:
  # Table, pictures of the slices, and what is wrong
  octavo inspect

  # With PCI addresses, UUIDs, product names and links
  octavo inspect -o wide

  # Only the rows, for a script
  octavo inspect --no-headers

  # Record this machine and look at the recording elsewhere
  octavo inspect -o json > node7.json
  octavo inspect --from node7.json

In the pictures, one cell is one memory slice. `gi 2/0` is GPU instance 2 with compute instance 0; `gi 2/-` has no
compute instance, so nothing can use it.

The exit code is 1 if NVML reports no PCI address for a GPU.";

pub(super) const LABELS_EXAMPLES: &str = "\
Examples:
  # Labels as key=value
  octavo labels --mig-strategy mixed

  # What would change against the node as it is?
  kubectl get node $NODE -o json | octavo labels --from node7.json --diff -

  # What would change against gpu-feature-discovery?
  octavo labels --diff /etc/kubernetes/node-feature-discovery/features.d/gfd

With --diff, a line with `-` is there now and would go, one with `+` would come; the exit code is 3 if there are any.";

/// How an inventory is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum InspectFormat {
    /// A table, then a picture of each GPU's slices
    Table,
    /// The same with more columns
    Wide,
    /// The inventory as JSON, which --from reads
    Json,
    /// The inventory as YAML, which --from reads
    Yaml,
    /// The name of each device and nothing else
    Name,
}

/// How labels are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LabelsFormat {
    /// Lines of key=value
    Table,
    /// An object of labels
    Json,
    /// The same as YAML
    Yaml,
}

/// Source of an inventory, and a name for its unrecognized devices.
#[derive(Debug, Clone, Args)]
pub struct NamedSource {
    /// What the label octavo.dev/type-override would have unknown devices called
    ///
    /// A SKU, a type or another name of one product brings what the catalogue knows of it; any other name is taken as a type.
    #[arg(long, value_name = "NAME")]
    pub type_override: Option<String>,

    /// Source of the inventory.
    #[command(flatten)]
    pub inventory: SourceSettings,
}

/// Settings of `octavo inspect`.
#[derive(Debug, Clone, Args)]
pub struct InspectSettings {
    /// How to print it
    #[arg(
        short = 'o',
        long = "output",
        value_name = "FORMAT",
        default_value = "table"
    )]
    pub format: InspectFormat,

    /// Print the rows of the table and nothing else
    #[arg(long = "no-headers", action = ArgAction::SetTrue, value_parser = headers())]
    pub headers: Headers,

    /// Source of the inventory.
    #[command(flatten)]
    pub source: NamedSource,
}

/// Settings of `octavo labels`.
#[derive(Debug, Clone, Args)]
pub struct LabelsSettings {
    /// How to print it
    #[arg(
        short = 'o',
        long = "output",
        value_name = "FORMAT",
        default_value = "table"
    )]
    pub format: LabelsFormat,

    /// Print how the labels differ from those in FILE; - for standard input
    ///
    /// FILE may hold what this command printed, a feature file of Node Feature Discovery, or a Node as kubectl prints it
    /// with -o json or yaml. Labels of other owners are not compared, nor is nvidia.com/gfd.timestamp.
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::AnyPath,
        conflicts_with = "format"
    )]
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
