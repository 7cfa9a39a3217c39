//! Settings of `octavo match`: a pod's requirements, in the terms of the aggregator's API.

use clap::{Args, ValueHint};
use octavo_client::ServerSettings;
use octavo_fleet::matching::{Interconnect, Isolation};
use octavo_fleet::price::{Amount, PurchaseOption};
use octavo_toolkit::choice::words;

use super::fleet::OutputOptions;
use super::input::Input;

/// Settings of `octavo match`.
#[derive(Debug, Clone, Args)]
pub struct MatchSettings {
    /// Output format.
    #[command(flatten)]
    pub output: OutputOptions,

    /// The pod's requirements.
    #[command(flatten)]
    pub requirements: MatchRequirements,

    /// Aggregator.
    #[command(flatten)]
    pub server: ServerSettings,
}

/// A pod's requirements as specified by the user; the aggregator validates them.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Requirements")]
pub struct MatchRequirements {
    /// Number of devices on one node [default: the fewest with enough memory]
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,

    /// Minimum memory per device, such as 80GB or 80Gi
    #[arg(long, value_name = "AMOUNT")]
    pub memory: Option<String>,

    /// Minimum total memory of all devices
    #[arg(long, value_name = "AMOUNT")]
    pub total_memory: Option<String>,

    /// Oldest acceptable architecture, such as ampere; excludes other vendors
    #[arg(long, value_name = "NAME")]
    pub architecture: Option<String>,

    /// Minimum CUDA compute capability, such as 8.0
    #[arg(long, value_name = "X.Y")]
    pub compute_capability: Option<String>,

    /// Preferred type; repeat in order of preference
    #[arg(long = "prefer", value_name = "TYPE", value_delimiter = ',')]
    pub preferred: Vec<String>,

    /// Required interconnect between the devices
    #[arg(long, value_name = "LINK", value_parser = words::<Interconnect>())]
    pub interconnect: Option<Interconnect>,

    /// Also accept MIG partitions (mig), or both MIG partitions and time-sliced devices (shared), instead of only
    /// whole devices
    #[arg(long, value_name = "MODE", value_parser = words::<Isolation>())]
    pub isolation: Option<Isolation>,

    /// Maximum price per hour of all devices, in the currency of the price book
    #[arg(long, value_name = "PRICE")]
    pub max_price: Option<Amount>,

    /// Purchase option of the price book
    #[arg(long, value_name = "OPTION", value_parser = words::<PurchaseOption>())]
    pub purchase: Option<PurchaseOption>,

    /// Benchmark results from a model catalog (JSON); warnings then include the expected throughput
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub performance: Option<Input>,
}
