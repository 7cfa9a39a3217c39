//! Settings of `octavo availability`, and its command-line arguments.

use clap::Args;

use super::OutputOptions;
use super::args::OutputArgs;
use crate::settings::server::{ServerArgs, ServerSettings};

pub(in crate::settings) const AVAILABILITY_EXAMPLES: &str = "\
Examples:
  # What is to be had now, in a line for each type, then in figures
  octavo availability

  # Why is the rest not, how long is the wait, and what could idle devices become?
  octavo availability -o wide

  # Types of which two devices are free
  octavo availability --resource nvidia.com/gpu --min-free 2 -o name

  # For a program
  octavo availability --type nvidia-h200-141gb -o json | jq '.items[].free'

Free is what the scheduler would place: as many more pods that ask for one unit and nothing else.";

/// Settings of `octavo availability`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AvailabilitySettings {
    server: ServerSettings,
    printed: OutputOptions,
    types: Vec<String>,
    resources: Vec<String>,
    min_free: Option<u64>,
}

/// Raw arguments of `octavo availability`.
#[derive(Debug, Clone, Args)]
pub(in crate::settings) struct AvailabilityArgs {
    #[command(flatten)]
    output: OutputArgs,

    /// Only this type; `unknown` for what nobody knows; repeat for several
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',')]
    types: Vec<String>,

    /// Only this resource, such as nvidia.com/gpu; repeat for several
    #[arg(long = "resource", value_name = "RESOURCE", value_delimiter = ',')]
    resources: Vec<String>,

    /// Only what has at least so many free
    #[arg(long, value_name = "N")]
    min_free: Option<u64>,

    #[command(flatten)]
    server: ServerArgs,
}

impl AvailabilitySettings {
    /// Returns the aggregator.
    pub fn server(&self) -> &ServerSettings {
        &self.server
    }

    /// Returns the output format.
    pub fn printed(&self) -> OutputOptions {
        self.printed
    }

    /// Returns the names and values of the aggregator's parameters.
    pub fn parameters(&self) -> Vec<(&'static str, String)> {
        let several = [("type", &self.types), ("resource", &self.resources)];
        let several = several
            .into_iter()
            .flat_map(|(name, values)| values.iter().map(move |value| (name, value.clone())));
        let least = self.min_free.map(|least| ("minFree", least.to_string()));
        several.chain(least).collect()
    }
}

impl From<AvailabilityArgs> for AvailabilitySettings {
    fn from(args: AvailabilityArgs) -> Self {
        Self {
            server: args.server.into(),
            printed: args.output.into(),
            types: args.types,
            resources: args.resources,
            min_free: args.min_free,
        }
    }
}
