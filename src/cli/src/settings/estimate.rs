//! Settings of `octavo estimate`: the workload, and its devices.

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use octavo_fleet::estimate::{Precision, parse_count};
use octavo_fleet::price::PurchaseOption;

use super::fleet::{OutputArgs, OutputOptions};
use super::server::{ServerArgs, ServerSettings};

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

/// Raw arguments of `octavo estimate`.
#[derive(Debug, Clone, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(super) struct EstimateArgs {
    #[command(subcommand)]
    command: EstimateCommandArgs,
}

#[derive(Debug, Clone, Subcommand)]
enum EstimateCommandArgs {
    /// Say how long a training takes, and what it costs
    #[command(after_long_help = EXAMPLES)]
    Training(TrainingArgs),
    /// Say how fast a model writes one sequence, and what that costs
    #[command(after_long_help = EXAMPLES)]
    Decoding(DecodingArgs),
}

#[derive(Debug, Clone, Args)]
struct TrainingArgs {
    #[command(flatten)]
    model: ModelArgs,

    /// Tokens, each time that one is seen, as 1T
    #[arg(long, value_name = "COUNT", value_parser = parse_count, required_unless_present = "samples")]
    tokens: Option<f64>,

    /// Samples in place of tokens, each time that one is seen
    #[arg(
        long,
        value_name = "COUNT",
        value_parser = parse_count,
        requires = "tokens_per_sample",
        conflicts_with = "tokens"
    )]
    samples: Option<f64>,

    /// Tokens of one sample
    #[arg(long, value_name = "COUNT", value_parser = parse_count, requires = "samples")]
    tokens_per_sample: Option<f64>,

    /// Samples that one step takes, for engines that look at it
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    batch: Option<f64>,

    #[command(flatten)]
    rest: CommonArgs,
}

#[derive(Debug, Clone, Args)]
struct DecodingArgs {
    #[command(flatten)]
    model: ModelArgs,

    #[command(flatten)]
    rest: CommonArgs,
}

#[derive(Debug, Clone, Args)]
struct ModelArgs {
    /// Parameters of the model, as 7B; of a mixture of experts those that one token uses
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    parameters: f64,

    /// What the model is called, for engines that know it
    #[arg(long, value_name = "NAME")]
    model: Option<String>,

    /// What is multiplied, or what the weights are stored in
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "bf16",
        value_parser = PossibleValuesParser::new(Precision::ALL.map(Precision::as_str))
    )]
    precision: String,
}

#[derive(Debug, Clone, Args)]
struct CommonArgs {
    #[command(flatten)]
    on: DeviceArgs,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "On what")]
struct DeviceArgs {
    /// Devices of this type, or any name that means one type alone; repeat for several. Without one: each type of the fleet
    #[arg(
        long = "type",
        value_name = "TYPE",
        value_delimiter = ',',
        group = "devices"
    )]
    types: Vec<String>,

    /// What this hardware profile gives
    #[arg(long, value_name = "NAME", group = "devices")]
    profile: Option<String>,

    /// The profile's namespace, where several have one of this name
    #[arg(short, long, value_name = "NAMESPACE", requires = "profile")]
    namespace: Option<String>,

    /// How many devices work together; 1 without it, or as many as the profile gives
    #[arg(long, value_name = "N", requires = "devices")]
    count: Option<u64>,

    /// By which price of the aggregator's price book a cost is reckoned
    #[arg(
        long,
        value_name = "HOW",
        value_parser = PossibleValuesParser::new(PurchaseOption::ALL.map(PurchaseOption::as_str))
    )]
    purchase: Option<String>,
}

/// Settings of `octavo estimate`.
#[derive(Debug, Clone, PartialEq)]
pub struct EstimateSettings {
    server: ServerSettings,
    printed: OutputOptions,
    run: EstimateWorkload,
    on: EstimateDevices,
    purchase: Option<String>,
}

/// The workload as specified by the user; the aggregator validates it.
#[derive(Debug, Clone, PartialEq)]
pub struct EstimateWorkload {
    /// Number of the model's parameters.
    pub parameters: f64,
    /// Its name.
    pub model: Option<String>,
    /// A number format.
    pub precision: String,
    /// The training data; `None` for inference.
    pub training: Option<Training>,
}

/// Size of the training data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Training {
    /// Tokens.
    pub tokens: Option<f64>,
    /// Samples, instead of tokens.
    pub samples: Option<f64>,
    /// Tokens per sample.
    pub tokens_per_sample: Option<f64>,
    /// Samples per step.
    pub batch: Option<f64>,
}

/// Devices of the estimate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EstimateDevices {
    /// One device of each type of the fleet.
    Fleet,
    /// This number of each of these types.
    Types(Vec<String>, u64),
    /// The devices of a hardware profile.
    Profile {
        /// Its name.
        name: String,
        /// Its namespace, if it was specified.
        namespace: Option<String>,
        /// The number of devices, if it was specified.
        count: Option<u64>,
    },
}

impl EstimateSettings {
    /// Returns the aggregator.
    pub fn server(&self) -> &ServerSettings {
        &self.server
    }

    /// Returns the output format.
    pub fn printed(&self) -> OutputOptions {
        self.printed
    }

    /// Returns the workload.
    pub fn workload(&self) -> &EstimateWorkload {
        &self.run
    }

    /// Returns the devices.
    pub fn on(&self) -> &EstimateDevices {
        &self.on
    }

    /// Returns the purchase option of the devices, if it was specified.
    pub fn purchase(&self) -> Option<&str> {
        self.purchase.as_deref()
    }

    fn new(model: ModelArgs, training: Option<Training>, rest: CommonArgs) -> Self {
        let on = rest.on;
        Self {
            server: rest.server.into(),
            printed: rest.output.into(),
            run: EstimateWorkload {
                parameters: model.parameters,
                model: model.model,
                precision: model.precision,
                training,
            },
            on: match on.profile {
                Some(name) => EstimateDevices::Profile {
                    name,
                    namespace: on.namespace,
                    count: on.count,
                },
                None if on.types.is_empty() => EstimateDevices::Fleet,
                None => EstimateDevices::Types(on.types, on.count.unwrap_or(1)),
            },
            purchase: on.purchase,
        }
    }
}

impl From<EstimateArgs> for EstimateSettings {
    fn from(args: EstimateArgs) -> Self {
        match args.command {
            EstimateCommandArgs::Training(args) => {
                let training = Training {
                    tokens: args.tokens,
                    samples: args.samples,
                    tokens_per_sample: args.tokens_per_sample,
                    batch: args.batch,
                };
                Self::new(args.model, Some(training), args.rest)
            }
            EstimateCommandArgs::Decoding(args) => Self::new(args.model, None, args.rest),
        }
    }
}
