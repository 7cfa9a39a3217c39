//! Command-line arguments of `octavo catalog`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use octavo_model::accelerators::AliasKind;

use super::{CatalogCommand, CatalogFormat, LookupSettings};

pub(in crate::settings) const EXAMPLES: &str = "\
Examples:
  # Which products may be meant by a name?
  octavo catalog search H100
  octavo catalog search \"A100 SXM 80 GB\"

  # What is known of a product, and who says so?
  octavo catalog show nvidia-h100-sxm5-80gb

  # By the driver's name, by a cloud's machine, by PCI ids
  octavo catalog show \"Tesla V100-SXM2-16GB\"
  octavo catalog show p5.48xlarge
  octavo catalog show 10de:2330

  # By a label of a Node, which its owner means more narrowly than people do
  octavo catalog show karpenter.k8s.aws/instance-gpu-name=h200
  octavo catalog show --as driver \"NVIDIA H200\"

  # With products and names of your own
  octavo catalog search \"hall 7\" --catalog own.yaml

Case, blanks, hyphens and makers do not matter. A name of several products is never decided by guessing: all are listed.

Exit codes: 0 found, 1 not found, or for `show` not one product alone, 2 wrong usage.";

/// Raw arguments of `octavo catalog`.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(in crate::settings) struct CatalogArgs {
    #[command(subcommand)]
    command: CatalogCommandArgs,
}

#[derive(Debug, Subcommand)]
enum CatalogCommandArgs {
    /// List the products that a name may mean
    #[command(after_long_help = EXAMPLES)]
    Search(LookupArgs),
    /// Show all that is known of one product, and who says so
    #[command(after_long_help = EXAMPLES)]
    Show(LookupArgs),
}

#[derive(Debug, Args)]
struct LookupArgs {
    /// A SKU, a type, or what a driver, a label, a cloud or a person calls it
    text: String,

    /// Whose word it is: look among these names only
    #[arg(long = "as", value_enum, value_name = "OWNER")]
    owner: Option<AliasKindArg>,

    /// A catalogue of your own, laid over the built-in one; - for standard input
    ///
    /// It adds products and names, and replaces facts. A name that another product has is an error. docs/cli.md has its
    /// form.
    #[arg(
        long,
        value_name = "FILE",
        env = "OCTAVO_CATALOG",
        hide_env_values = true
    )]
    catalog: Option<PathBuf>,

    /// How to print it
    #[arg(
        short,
        long,
        value_enum,
        value_name = "FORMAT",
        default_value = "table"
    )]
    output: CatalogFormat,
}

/// Whose word a name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AliasKindArg {
    /// The driver: NVML, or what amdgpu and Neuron have in sysfs
    Driver,
    /// gpu-feature-discovery: nvidia.com/gpu.product
    Gfd,
    /// AMD's node labeller: amd.com/gpu.product-name
    AmdLabeller,
    /// Karpenter on AWS, and EKS Auto Mode
    Karpenter,
    /// Karpenter on Azure
    KarpenterAzure,
    /// GKE: cloud.google.com/gke-accelerator
    Gke,
    /// A cloud: the type of a machine
    Instance,
    /// PCI vendor and device, as 10de:2330
    Pci,
}

impl From<AliasKindArg> for AliasKind {
    fn from(owner: AliasKindArg) -> Self {
        match owner {
            AliasKindArg::Driver => Self::Driver,
            AliasKindArg::Gfd => Self::Gfd,
            AliasKindArg::AmdLabeller => Self::AmdLabeller,
            AliasKindArg::Karpenter => Self::Karpenter,
            AliasKindArg::KarpenterAzure => Self::KarpenterAzure,
            AliasKindArg::Gke => Self::Gke,
            AliasKindArg::Instance => Self::Instance,
            AliasKindArg::Pci => Self::Pci,
        }
    }
}

impl From<CatalogArgs> for CatalogCommand {
    fn from(args: CatalogArgs) -> Self {
        match args.command {
            CatalogCommandArgs::Search(args) => Self::Search(args.into()),
            CatalogCommandArgs::Show(args) => Self::Show(args.into()),
        }
    }
}

impl From<LookupArgs> for LookupSettings {
    fn from(args: LookupArgs) -> Self {
        Self {
            text: args.text,
            kind: args.owner.map(Into::into),
            overlay: args.catalog.map(Into::into),
            format: args.output,
        }
    }
}
