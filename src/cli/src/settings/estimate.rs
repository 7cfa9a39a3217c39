//! Settings of `octavo estimate`: the workload, and its devices.

use clap::{Args, Subcommand};
use octavo_client::ServerSettings;
use octavo_fleet::estimate::{Precision, parse_count};
use octavo_fleet::matching::resolve_type;
use octavo_fleet::price::PurchaseOption;
use octavo_model::id::TypeName;
use octavo_toolkit::choice::words;

use super::fleet::OutputOptions;

/// Settings of `octavo estimate`'s subcommands.
#[derive(Debug, Clone, Subcommand)]
pub enum EstimateCommand {
    /// Estimate the time and cost of a training run
    #[command(after_long_help = include_str!("../../help/estimate.txt"))]
    Training(TrainingSettings),
    /// Estimate the decoding speed and cost for one sequence
    #[command(after_long_help = include_str!("../../help/estimate.txt"))]
    Decoding(DecodingSettings),
}

/// Settings of `octavo estimate training`.
#[derive(Debug, Clone, Args)]
pub struct TrainingSettings {
    /// The model.
    #[command(flatten)]
    pub model: EstimateModel,

    /// Number of training tokens over all epochs, such as 1T
    #[arg(long, value_name = "COUNT", value_parser = parse_count, required_unless_present = "samples")]
    pub tokens: Option<f64>,

    /// Number of training samples over all epochs, instead of tokens
    #[arg(
        long,
        value_name = "COUNT",
        value_parser = parse_count,
        requires = "tokens_per_sample",
        conflicts_with = "tokens"
    )]
    pub samples: Option<f64>,

    /// Tokens per sample
    #[arg(long, value_name = "COUNT", value_parser = parse_count, requires = "samples")]
    pub tokens_per_sample: Option<f64>,

    /// Samples per step, for engines that use the batch size
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
    /// Parameters of the model, such as 7B; for a mixture of experts, the active parameters per token
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    pub parameters: f64,

    /// Name of the model, for engines that know it
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,

    /// Number format of the computation (training) or of the weights (decoding)
    #[arg(long, value_name = "FORMAT", default_value = "bf16", value_parser = words::<Precision>())]
    pub precision: Precision,
}

/// Settings of all estimates.
#[derive(Debug, Clone, Args)]
pub struct EstimateOptions {
    /// Output format.
    #[command(flatten)]
    pub output: OutputOptions,

    /// The devices.
    #[command(flatten)]
    pub devices: EstimateDevices,

    /// Aggregator.
    #[command(flatten)]
    pub server: ServerSettings,
}

/// Devices of the estimate.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Devices")]
pub struct EstimateDevices {
    /// Type of the devices, or an unambiguous alias; repeat for several. Default without --count: each type of the
    /// fleet
    #[arg(
        long = "type",
        value_name = "TYPE",
        value_delimiter = ',',
        value_parser = resolve_type,
        group = "devices"
    )]
    pub types: Vec<TypeName>,

    /// Hardware profile whose devices are used
    #[arg(long, value_name = "NAME", group = "devices")]
    pub profile: Option<String>,

    /// Namespace of the profile, if its name is not unique
    #[arg(short, long, value_name = "NAMESPACE", requires = "profile")]
    pub namespace: Option<String>,

    /// Number of devices that work together; needs --type or --profile [default: 1, or the profile's default]
    #[arg(long, value_name = "N", requires = "devices")]
    pub count: Option<u32>,

    /// Purchase option of the price book that the cost is based on
    #[arg(long, value_name = "OPTION", value_parser = words::<PurchaseOption>())]
    pub purchase: Option<PurchaseOption>,
}
