//! Command-line arguments of `octavo sharing`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use octavo_settings::labels::LabelSettings;

use super::{DocumentFormat, ImportSettings, SharingCommand, SharingFormat, SharingSettings};
use crate::settings::args::SourceArgs;
use crate::settings::{Input, Source};

pub(in crate::settings) const EXAMPLES: &str = "\
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

/// Raw arguments of `octavo sharing`.
#[derive(Debug, Args)]
pub(in crate::settings) struct SharingArgs {
    #[command(subcommand)]
    command: SharingCommandArgs,
}

#[derive(Debug, Subcommand)]
enum SharingCommandArgs {
    /// Show what a layout would have this node give out to pods
    #[command(after_long_help = EXAMPLES)]
    Check(CheckArgs),
    /// Show how that differs from what the Node offers now
    #[command(after_long_help = EXAMPLES)]
    Diff(DiffArgs),
    /// Print a configuration of NVIDIA's device plugin as a layout of ours
    #[command(after_long_help = EXAMPLES)]
    Import(ImportArgs),
}

/// How the layout is found, and the node.
#[derive(Debug, Args)]
struct LayoutRequestArgs {
    /// A file of layouts, or a configuration of NVIDIA's device plugin; - for standard input
    file: PathBuf,

    /// The layout's name; not needed where the file has one
    #[arg(long, value_name = "NAME")]
    layout: Option<String>,

    #[command(flatten)]
    labels: LabelSettings,

    #[command(flatten)]
    source: SourceArgs,
}

#[derive(Debug, Args)]
struct CheckArgs {
    #[command(flatten)]
    wish: LayoutRequestArgs,

    /// How to print it
    #[arg(
        short,
        long,
        value_enum,
        value_name = "FORMAT",
        default_value = "table"
    )]
    output: SharingFormat,
}

#[derive(Debug, Args)]
struct DiffArgs {
    #[command(flatten)]
    wish: LayoutRequestArgs,

    /// The Node as kubectl prints it with -o json or yaml; - for standard input
    #[arg(long, value_name = "FILE")]
    node: PathBuf,
}

#[derive(Debug, Args)]
struct ImportArgs {
    /// A configuration of NVIDIA's device plugin, `version: v1`; - for standard input
    file: PathBuf,

    /// What the layout is called
    #[arg(long, value_name = "NAME", default_value = "device-plugin")]
    name: String,

    /// How to print it
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "yaml")]
    output: DocumentFormat,
}

const ONCE: &str = "standard input can be read only once";

impl SharingArgs {
    pub(in crate::settings) fn resolve(self) -> Result<SharingCommand, &'static str> {
        match self.command {
            SharingCommandArgs::Check(args) => {
                Ok(SharingCommand::Check(args.wish.resolve()?, args.output))
            }
            SharingCommandArgs::Diff(args) => {
                let (wish, node) = (args.wish.resolve()?, Input::from(args.node));
                let taken =
                    wish.file == Input::Stdin || wish.source == Source::Recording(Input::Stdin);
                if taken && node == Input::Stdin {
                    return Err(ONCE);
                }
                Ok(SharingCommand::Diff(wish, node))
            }
            SharingCommandArgs::Import(args) => Ok(SharingCommand::Import(ImportSettings {
                file: args.file.into(),
                name: args.name,
                format: args.output,
            })),
        }
    }
}

impl LayoutRequestArgs {
    fn resolve(self) -> Result<SharingSettings, &'static str> {
        let file = Input::from(self.file);
        let source = Source::from(self.source);
        if file == Input::Stdin && source == Source::Recording(Input::Stdin) {
            return Err(ONCE);
        }
        Ok(SharingSettings {
            file,
            layout: self.layout,
            labels: self.labels,
            source,
        })
    }
}
