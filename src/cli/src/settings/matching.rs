//! Settings of `octavo match`: a pod's requirements, in the terms of the aggregator's API.

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueHint};
use octavo_fleet::matching::{Interconnect, Isolation};
use octavo_fleet::price::PurchaseOption;

use super::fleet::OutputOptions;
use super::input::Input;
use super::server::ServerSettings;

pub(super) const EXAMPLES: &str = "\
Examples:
  # Which accelerators have 80 GB or more, and are any free?
  octavo match --memory 80GB

  # Two that are linked with NVLink, an H200 if there is one, and at most 12.50 an hour together
  octavo match --count 2 --memory 80GB --interconnect nvlink --prefer nvidia-h200-141gb --max-price 12.50

  # As many as it takes for 400 GB, Ampere or newer; a partition will not do
  octavo match --total-memory 400GB --architecture ampere

  # 20 GB for a notebook: a MIG partition will do, and so will a device that others use by turns
  octavo match --memory 20GB --isolation shared

  # What does it mean to take another than the preferred type? Rows are those of a model catalogue
  octavo match --memory 80GB --prefer H200 --performance rows.json

  # For a script: the best profile, or type where there are no profiles, if something is free
  octavo match --memory 80GB -o name | head -n 1

Where the aggregator knows hardware profiles, those come first: NAME is then a profile's namespace and name, TYPE what its pods
get. 80GB is 80 times 10^9 bytes, as memory is sold; 80Gi is 80 times 2^30. Nothing is reserved by asking. docs/matching.md has the
rule of the order.

Exit codes: 0 something fits and is free, 1 failed, 2 wrong usage, 4 something fits and nothing of it is free, 5 nothing fits.";

/// Settings of `octavo match`.
#[derive(Debug, Clone, Args)]
pub struct MatchSettings {
    /// The pod's requirements.
    #[command(flatten)]
    pub requirements: MatchRequirements,

    /// Output format.
    #[command(flatten)]
    pub output: OutputOptions,

    /// Aggregator.
    #[command(flatten)]
    pub server: ServerSettings,
}

/// A pod's requirements as specified by the user; the aggregator validates them.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "What the pod needs")]
pub struct MatchRequirements {
    /// Devices on one node; without it the fewest that have the memory
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,

    /// Memory of each device at least, as 80GB or 80Gi
    #[arg(long, value_name = "AMOUNT")]
    pub memory: Option<String>,

    /// Memory of all devices together at least
    #[arg(long, value_name = "AMOUNT")]
    pub total_memory: Option<String>,

    /// The oldest architecture that will do, as ampere; another maker's does not
    #[arg(long, value_name = "NAME")]
    pub architecture: Option<String>,

    /// The lowest CUDA compute capability that will do, as 8.0
    #[arg(long, value_name = "X.Y")]
    pub compute_capability: Option<String>,

    /// A type that is liked; repeat for several, the best first
    #[arg(long = "prefer", value_name = "TYPE", value_delimiter = ',')]
    pub preferred: Vec<String>,

    /// How the devices are linked with each other
    #[arg(long, value_name = "LINK", value_parser = PossibleValuesParser::new(Interconnect::ALL.map(Interconnect::as_str)))]
    pub interconnect: Option<String>,

    /// What else will do than whole devices alone: mig for partitions, shared for devices that others use by turns too
    #[arg(long, value_name = "HOW", value_parser = PossibleValuesParser::new(Isolation::ALL.map(Isolation::as_str)))]
    pub isolation: Option<String>,

    /// The most that all devices together may cost an hour, in the price book's currency
    #[arg(long, value_name = "PRICE")]
    pub max_price: Option<String>,

    /// How they are paid for
    #[arg(long, value_name = "HOW", value_parser = PossibleValuesParser::new(PurchaseOption::ALL.map(PurchaseOption::as_str)))]
    pub purchase: Option<String>,

    /// Performance rows of a model catalogue, as JSON: warnings then say which speed to expect
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub performance: Option<Input>,
}
