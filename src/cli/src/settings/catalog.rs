//! Settings of `octavo catalog`.

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use octavo_model::accelerators::AliasKind;

use super::choice::{Choice, choice};
use super::input::Input;

pub(super) const EXAMPLES: &str = "\
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

/// Whose word a name is.
const ALIAS_KINDS: &[Choice<AliasKind>] = &[
    (
        "driver",
        "The driver: NVML, or what amdgpu and Neuron have in sysfs",
        AliasKind::Driver,
    ),
    (
        "gfd",
        "gpu-feature-discovery: nvidia.com/gpu.product",
        AliasKind::Gfd,
    ),
    (
        "amd-labeller",
        "AMD's node labeller: amd.com/gpu.product-name",
        AliasKind::AmdLabeller,
    ),
    (
        "karpenter",
        "Karpenter on AWS, and EKS Auto Mode",
        AliasKind::Karpenter,
    ),
    (
        "karpenter-azure",
        "Karpenter on Azure",
        AliasKind::KarpenterAzure,
    ),
    (
        "gke",
        "GKE: cloud.google.com/gke-accelerator",
        AliasKind::Gke,
    ),
    (
        "instance",
        "A cloud: the type of a machine",
        AliasKind::Instance,
    ),
    ("pci", "PCI vendor and device, as 10de:2330", AliasKind::Pci),
];

/// Settings of `octavo catalog`'s subcommands.
#[derive(Debug, Clone, Subcommand)]
pub enum CatalogCommand {
    /// List the products that a name may mean
    #[command(after_long_help = EXAMPLES)]
    Search(LookupSettings),
    /// Show all that is known of one product, and who says so
    #[command(after_long_help = EXAMPLES)]
    Show(LookupSettings),
}

/// A name to look up, and the catalog.
#[derive(Debug, Clone, Args)]
pub struct LookupSettings {
    /// A SKU, a type, or what a driver, a label, a cloud or a person calls it
    pub text: String,

    /// Whose word it is: look among these names only
    #[arg(long = "as", value_name = "OWNER", value_parser = choice(ALIAS_KINDS))]
    pub kind: Option<AliasKind>,

    /// A catalogue of your own, laid over the built-in one; - for standard input
    ///
    /// It adds products and names, and replaces facts. A name that another product has is an error. docs/cli.md has its
    /// form.
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::AnyPath,
        env = "OCTAVO_CATALOG",
    )]
    pub catalog: Option<Input>,

    /// How to print it
    #[arg(
        short = 'o',
        long = "output",
        value_name = "FORMAT",
        default_value = "table"
    )]
    pub format: CatalogFormat,
}

/// How products are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CatalogFormat {
    /// A table
    Table,
    /// All of it as JSON
    Json,
    /// The same as YAML
    Yaml,
}
