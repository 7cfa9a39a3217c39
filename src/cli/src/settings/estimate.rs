//! Settings of `octavo estimate`: the workload, and its devices.

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use octavo_fleet::estimate::{Precision, parse_count};
use octavo_fleet::price::PurchaseOption;

use super::fleet::OutputOptions;
use super::server::ServerSettings;

pub(super) const EXAMPLES: &str = "\
Examples:
  # How long does a training of 7 billion parameters take, and what does it cost, on 64 of each?
  octavo estimate training --parameters 7B --tokens 1T --type nvidia-h100-80gb --type nvidia-a100-80gb --count 64

  # By samples, for an engine that looks at model and batch
  octavo estimate training --model llama-3-8b --parameters 8B --samples 500M --tokens-per-sample 2048 --batch 1024

  # With what a hardware profile gives
  octavo estimate training --parameters 7B --tokens 100B --profile premium

  # How fast does a model write one sequence, on one device of each type of the fleet?
  octavo estimate decoding --parameters 70B --precision fp8

  # For a program
  octavo estimate decoding --parameters 70B -o json | jq '.items[].tokensPerSecond'

7B is 7e9: K, M, B and T are 10^3, 10^6, 10^9 and 10^12. Everything told is an estimate: an interval with its source, and nothing of it was
measured on your fleet. docs/estimates.md says how it comes about.

Exit codes: 0 there is a figure, 1 failed, 2 wrong usage, 4 who estimates is away or not believed, 5 there is a figure for nothing.";

/// Settings of `octavo estimate`'s subcommands.
#[derive(Debug, Clone, Subcommand)]
pub enum EstimateCommand {
    /// Say how long a training takes, and what it costs
    #[command(after_long_help = EXAMPLES)]
    Training(TrainingSettings),
    /// Say how fast a model writes one sequence, and what that costs
    #[command(after_long_help = EXAMPLES)]
    Decoding(DecodingSettings),
}

/// Settings of `octavo estimate training`.
#[derive(Debug, Clone, Args)]
pub struct TrainingSettings {
    /// The model.
    #[command(flatten)]
    pub model: EstimateModel,

    /// Tokens, each time that one is seen, as 1T
    #[arg(long, value_name = "COUNT", value_parser = parse_count, required_unless_present = "samples")]
    pub tokens: Option<f64>,

    /// Samples in place of tokens, each time that one is seen
    #[arg(
        long,
        value_name = "COUNT",
        value_parser = parse_count,
        requires = "tokens_per_sample",
        conflicts_with = "tokens"
    )]
    pub samples: Option<f64>,

    /// Tokens of one sample
    #[arg(long, value_name = "COUNT", value_parser = parse_count, requires = "samples")]
    pub tokens_per_sample: Option<f64>,

    /// Samples that one step takes, for engines that look at it
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    pub batch: Option<f64>,

    /// Devices, output and aggregator.
    #[command(flatten)]
    pub options: EstimateOptions,
}

/// Settings of `octavo estimate decoding`.
#[derive(Debug, Clone, Args)]
pub struct DecodingSettings {
    /// The model.
    #[command(flatten)]
    pub model: EstimateModel,

    /// Devices, output and aggregator.
    #[command(flatten)]
    pub options: EstimateOptions,
}

/// The model as specified by the user; the aggregator validates it.
#[derive(Debug, Clone, Args)]
pub struct EstimateModel {
    /// Parameters of the model, as 7B; of a mixture of experts those that one token uses
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    pub parameters: f64,

    /// What the model is called, for engines that know it
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,

    /// What is multiplied, or what the weights are stored in
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "bf16",
        value_parser = PossibleValuesParser::new(Precision::ALL.map(Precision::as_str))
    )]
    pub precision: String,
}

/// Settings of all estimates.
#[derive(Debug, Clone, Args)]
pub struct EstimateOptions {
    /// The devices.
    #[command(flatten)]
    pub devices: EstimateDevices,

    /// Output format.
    #[command(flatten)]
    pub output: OutputOptions,

    /// Aggregator.
    #[command(flatten)]
    pub server: ServerSettings,
}

/// Devices of the estimate.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "On what")]
pub struct EstimateDevices {
    /// Devices of this type, or any name that means one type alone; repeat for several. Without one: each type of the fleet
    #[arg(
        long = "type",
        value_name = "TYPE",
        value_delimiter = ',',
        group = "devices"
    )]
    pub types: Vec<String>,

    /// What this hardware profile gives
    #[arg(long, value_name = "NAME", group = "devices")]
    pub profile: Option<String>,

    /// The profile's namespace, where several have one of this name
    #[arg(short, long, value_name = "NAMESPACE", requires = "profile")]
    pub namespace: Option<String>,

    /// How many devices work together; 1 without it, or as many as the profile gives
    #[arg(long, value_name = "N", requires = "devices")]
    pub count: Option<u64>,

    /// By which price of the aggregator's price book a cost is reckoned
    #[arg(
        long,
        value_name = "HOW",
        value_parser = PossibleValuesParser::new(PurchaseOption::ALL.map(PurchaseOption::as_str))
    )]
    pub purchase: Option<String>,
}
