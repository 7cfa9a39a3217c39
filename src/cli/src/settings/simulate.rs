//! Settings of `octavo simulate`.

use std::num::{NonZeroU16, NonZeroUsize};
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use clap::{ArgAction, Args, ValueEnum, ValueHint};
use octavo_demand::simulation::{Discipline, Mix, NodeLimits, Strategy};
use octavo_policy::{Period, PolicyDemand};
use octavo_settings::duration;
use octavo_toolkit::choice::{Choice, choice};

use super::fleet::FleetFormat;
use super::input::Input;
use super::source::SourceSettings;
use super::{Headers, headers};

const MIXES: &[Choice<Mix>] = &[
    ("uniform", "Equal shares of all profiles", Mix::Uniform),
    ("skew-small", "Mostly small profiles", Mix::SkewSmall),
    ("skew-big", "Mostly large profiles", Mix::SkewBig),
    ("bimodal", "Mostly the smallest and the largest profile", Mix::Bimodal),
    ("drift", "Mostly small and mostly large profiles in turn", Mix::Drift),
];

const STRATEGIES: &[Choice<Strategy>] = &[
    ("octavo", "Least fragmentation; retain idle instances", Strategy::Octavo),
    ("expected-fragmentation", "Least fragmentation", Strategy::ExpectedFragmentation),
    ("fewest-blocked", "Fewest placements that become impossible", Strategy::FewestBlocked),
    ("best-fit", "Fewest free slices on the GPU afterwards", Strategy::BestFit),
    ("first-fit", "First GPU and placement", Strategy::FirstFit),
    ("spread", "Most free slices on the GPU afterwards", Strategy::Spread),
];

/// Settings of `octavo simulate`.
#[derive(Debug, Clone, Args)]
pub struct SimulateSettings {
    /// Random requests with these shares of profiles; without --mix and --trace, every mix
    #[arg(long, value_name = "MIX", value_delimiter = ',', value_parser = choice(MIXES))]
    pub mix: Vec<Mix>,

    /// Requests from a CSV file instead of random ones; - for standard input
    ///
    /// The file has the columns arrival and duration (in seconds) and profile, or those of the ledger's Parquet export. Lines that begin with # are comments.
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        conflicts_with_all = ["mix", "load", "requests", "runs"]
    )]
    pub trace: Option<Input>,

    /// Strategies to compare; without this flag, all
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = choice(STRATEGIES))]
    pub strategy: Vec<Strategy>,

    /// Number of GPUs of each model in the inventory, instead of the inventory's number
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u32>::new().range(1..=10_000))]
    pub gpus: Option<u32>,

    /// Demanded part of the slices; 1 if random requests need as many as there are
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = load)]
    pub load: f64,

    /// Number of random requests in a run; the first fifth is not counted
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5_000,
        value_parser = RangedU64ValueParser::<u32>::new().range(10..=100_000)
    )]
    pub requests: u32,

    /// Number of runs of a mix, each with other random requests
    #[arg(
        long,
        value_name = "N",
        default_value_t = 3,
        value_parser = RangedU64ValueParser::<u32>::new().range(1..=20)
    )]
    pub runs: u32,

    /// Let requests that do not fit wait; without this flag, they are lost
    #[arg(long)]
    queue: bool,

    /// Waiting time after which a GPU is reserved for the oldest request
    #[arg(long, value_name = "DURATION", requires = "queue", value_parser = duration::positive)]
    reserve_after: Option<Duration>,

    /// Accelerator policy whose demand limits the strategy octavo; - for standard input
    ///
    /// hold and changesPerHour limit the changes of a node. reserveAfter takes the place of --reserve-after.
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        requires = "queue",
        conflicts_with = "reserve_after"
    )]
    pub policy: Option<Input>,

    /// Number of GPUs of each node
    #[arg(long, value_name = "N", default_value = "8", requires = "policy")]
    gpus_per_node: NonZeroU16,

    /// Output format.
    #[command(flatten)]
    pub output: SimulateOutput,

    /// Source of the inventory.
    #[command(flatten)]
    pub source: SourceSettings,
}

/// Output format of `octavo simulate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Args)]
pub struct SimulateOutput {
    /// Output format
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "table")]
    pub format: SimulateFormat,

    /// Print only the rows of the table
    #[arg(long = "no-headers", action = ArgAction::SetTrue, value_parser = headers())]
    pub headers: Headers,
}

/// Output format of a comparison of strategies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SimulateFormat {
    /// Table
    Table,
    /// Same as table
    Wide,
    /// Self-contained HTML report with charts
    Html,
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// Names of the traces only
    Name,
}

impl SimulateFormat {
    /// The same format of other documents; `None` for a page.
    pub fn of_document(self) -> Option<FleetFormat> {
        match self {
            Self::Table => Some(FleetFormat::Table),
            Self::Wide => Some(FleetFormat::Wide),
            Self::Html => None,
            Self::Json => Some(FleetFormat::Json),
            Self::Yaml => Some(FleetFormat::Yaml),
            Self::Name => Some(FleetFormat::Name),
        }
    }
}

impl SimulateSettings {
    pub(super) fn check(&self) -> Result<(), &'static str> {
        Input::read_once(
            self.source.from.iter().chain(&self.trace).chain(&self.policy),
            "only one of --from, --trace and --policy can read standard input",
        )
    }

    /// Handling of requests that do not fit, with the settings of the policy.
    pub fn discipline(&self, demand: Option<PolicyDemand>) -> Discipline {
        if !self.queue {
            return Discipline::Loss;
        }
        let gpus_per_node = NonZeroUsize::from(self.gpus_per_node);
        let limits = demand.map(|demand| NodeLimits { demand, gpus_per_node });
        let reserve_after = demand.and_then(|demand| demand.reserve_after).map(Period::get);
        Discipline::Queue { reserve_after: self.reserve_after.or(reserve_after), limits }
    }
}

fn load(text: &str) -> Result<f64, &'static str> {
    let load = text.parse().ok().filter(|load| (0.01..=100.0).contains(load));
    load.ok_or("the load must be a number from 0.01 to 100")
}
