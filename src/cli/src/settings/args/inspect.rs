//! Command-line arguments of `octavo inspect` and `octavo labels`.

use std::path::PathBuf;

use octavo_settings::labels::LabelSettings;

use super::source::SourceArgs;
use crate::settings::naming::{NamingArgs, NamingSettings};
use crate::settings::{
    Headers, Input, InspectFormat, InspectSettings, LabelsFormat, LabelsPurpose, LabelsSettings,
    Source,
};

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

#[derive(Debug, clap::Args)]
pub(super) struct InspectArgs {
    /// How to print it
    #[arg(
        short,
        long,
        value_enum,
        value_name = "FORMAT",
        default_value = "table"
    )]
    output: InspectFormat,

    /// Print the rows of the table and nothing else
    #[arg(long)]
    no_headers: bool,

    #[command(flatten)]
    naming: NamingArgs,

    #[command(flatten)]
    source: SourceArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct LabelsArgs {
    /// How to print it
    #[arg(
        short,
        long,
        value_enum,
        value_name = "FORMAT",
        default_value = "table"
    )]
    output: LabelsFormat,

    /// Print how the labels differ from those in FILE; - for standard input
    ///
    /// FILE may hold what this command printed, a feature file of Node Feature Discovery, or a Node as kubectl prints it
    /// with -o json or yaml. Labels of other owners are not compared, nor is nvidia.com/gfd.timestamp.
    #[arg(long, value_name = "FILE", conflicts_with = "output")]
    diff: Option<PathBuf>,

    #[command(flatten)]
    naming: NamingArgs,

    #[command(flatten)]
    source: SourceArgs,

    #[command(flatten)]
    labels: LabelSettings,
}

impl From<InspectArgs> for InspectSettings {
    fn from(args: InspectArgs) -> Self {
        let naming = NamingSettings::new(args.naming, args.source.catalog());
        Self {
            source: args.source.into(),
            format: args.output,
            headers: Headers::hidden_if(args.no_headers),
            naming,
        }
    }
}

impl LabelsArgs {
    pub(super) fn resolve(self) -> Result<LabelsSettings, &'static str> {
        let naming = NamingSettings::new(self.naming, self.source.catalog());
        let source = Source::from(self.source);
        let purpose = self.diff.map_or(LabelsPurpose::Print(self.output), |path| {
            LabelsPurpose::Diff(path.into())
        });
        if source == Source::Recording(Input::Stdin) && purpose == LabelsPurpose::Diff(Input::Stdin)
        {
            return Err("only one of --from and --diff can read standard input");
        }
        Ok(LabelsSettings {
            source,
            labels: self.labels,
            purpose,
            naming,
        })
    }
}
