//! Settings of `octavo catalog`.

use clap::{Args, Subcommand, ValueEnum};
use octavo_model::accelerators::AliasKind;
use octavo_toolkit::choice::{Choice, choice};

/// Whose word a name is.
const ALIAS_KINDS: &[Choice<AliasKind>] = &[
    ("driver", "Drivers: NVML, or sysfs for amdgpu and Neuron", AliasKind::Driver),
    ("gfd", "gpu-feature-discovery: nvidia.com/gpu.product", AliasKind::Gfd),
    ("amd-labeller", "AMD's node labeller: amd.com/gpu.product-name", AliasKind::AmdLabeller),
    ("karpenter", "Karpenter on AWS, and EKS Auto Mode", AliasKind::Karpenter),
    ("karpenter-azure", "Karpenter on Azure", AliasKind::KarpenterAzure),
    ("gke", "GKE: cloud.google.com/gke-accelerator", AliasKind::Gke),
    ("instance", "Cloud providers: instance types", AliasKind::Instance),
    ("pci", "PCI vendor and device ID, such as 10de:2330", AliasKind::Pci),
];

/// Settings of `octavo catalog`'s subcommands.
#[derive(Debug, Clone, Subcommand)]
pub enum CatalogCommand {
    /// List the products that match a name
    #[command(after_long_help = include_str!("../../help/catalog.txt"))]
    Search(LookupSettings),
    /// Show the facts about one product, with their sources
    #[command(after_long_help = include_str!("../../help/catalog.txt"))]
    Show(LookupSettings),
}

/// A name to look up.
#[derive(Debug, Clone, Args)]
pub struct LookupSettings {
    /// SKU, type or other name used by a driver, a label, a cloud or a person
    pub text: String,

    /// Search only the names of this owner
    #[arg(long = "as", value_name = "OWNER", value_parser = choice(ALIAS_KINDS))]
    pub kind: Option<AliasKind>,

    /// Output format
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "table")]
    pub format: CatalogFormat,
}

/// How products are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CatalogFormat {
    /// Table
    Table,
    /// JSON
    Json,
    /// YAML
    Yaml,
}
