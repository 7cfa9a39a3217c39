//! Settings of `octavo match`: a pod's requirements, in the terms of the aggregator's API.

use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;
use octavo_fleet::matching::{Interconnect, Isolation};
use octavo_fleet::price::PurchaseOption;

use super::Input;
use super::fleet::{OutputArgs, OutputOptions};
use super::server::{ServerArgs, ServerSettings};

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

/// Raw arguments of `octavo match`.
#[derive(Debug, Clone, Args)]
pub(super) struct MatchArgs {
    #[command(flatten)]
    wish: RequirementArgs,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(next_help_heading = "What the pod needs")]
pub(super) struct RequirementArgs {
    /// Devices on one node; without it the fewest that have the memory
    #[arg(long, value_name = "N")]
    count: Option<u64>,

    /// Memory of each device at least, as 80GB or 80Gi
    #[arg(long, value_name = "AMOUNT")]
    memory: Option<String>,

    /// Memory of all devices together at least
    #[arg(long, value_name = "AMOUNT")]
    total_memory: Option<String>,

    /// The oldest architecture that will do, as ampere; another maker's does not
    #[arg(long, value_name = "NAME")]
    architecture: Option<String>,

    /// The lowest CUDA compute capability that will do, as 8.0
    #[arg(long, value_name = "X.Y")]
    compute_capability: Option<String>,

    /// A type that is liked; repeat for several, the best first
    #[arg(long = "prefer", value_name = "TYPE", value_delimiter = ',')]
    preferred: Vec<String>,

    /// How the devices are linked with each other
    #[arg(long, value_name = "LINK", value_parser = PossibleValuesParser::new(Interconnect::ALL.map(Interconnect::as_str)))]
    interconnect: Option<String>,

    /// What else will do than whole devices alone: mig for partitions, shared for devices that others use by turns too
    #[arg(long, value_name = "HOW", value_parser = PossibleValuesParser::new(Isolation::ALL.map(Isolation::as_str)))]
    isolation: Option<String>,

    /// The most that all devices together may cost an hour, in the price book's currency
    #[arg(long, value_name = "PRICE")]
    max_price: Option<String>,

    /// How they are paid for
    #[arg(long, value_name = "HOW", value_parser = PossibleValuesParser::new(PurchaseOption::ALL.map(PurchaseOption::as_str)))]
    purchase: Option<String>,

    /// Performance rows of a model catalogue, as JSON: warnings then say which speed to expect
    #[arg(long, value_name = "FILE")]
    performance: Option<PathBuf>,
}

/// Settings of `octavo match`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchSettings {
    server: ServerSettings,
    printed: OutputOptions,
    wish: MatchRequirements,
}

/// A pod's requirements as specified by the user; the aggregator validates them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchRequirements {
    /// Number of devices.
    pub count: Option<u64>,
    /// Memory per device.
    pub memory: Option<String>,
    /// Total memory.
    pub total_memory: Option<String>,
    /// Minimum architecture.
    pub architecture: Option<String>,
    /// Minimum compute capability.
    pub compute_capability: Option<String>,
    /// Preferred types.
    pub preferred: Vec<String>,
    /// Links between devices.
    pub interconnect: Option<String>,
    /// Isolation from other pods.
    pub isolation: Option<String>,
    /// Maximum price.
    pub max_price: Option<String>,
    /// Purchase option.
    pub purchase: Option<String>,
    /// A file of performance rows.
    pub performance: Option<Input>,
}

impl MatchSettings {
    /// Returns the aggregator.
    pub fn server(&self) -> &ServerSettings {
        &self.server
    }

    /// Returns the output format.
    pub fn printed(&self) -> OutputOptions {
        self.printed
    }

    /// Returns the pod's requirements.
    pub fn requirements(&self) -> &MatchRequirements {
        &self.wish
    }
}

impl From<MatchArgs> for MatchSettings {
    fn from(args: MatchArgs) -> Self {
        let wish = args.wish;
        Self {
            server: args.server.into(),
            printed: args.output.into(),
            wish: MatchRequirements {
                count: wish.count,
                memory: wish.memory,
                total_memory: wish.total_memory,
                architecture: wish.architecture,
                compute_capability: wish.compute_capability,
                preferred: wish.preferred,
                interconnect: wish.interconnect,
                isolation: wish.isolation,
                max_price: wish.max_price,
                purchase: wish.purchase,
                performance: wish.performance.map(Input::from),
            },
        }
    }
}
