//! Settings of `octavo quota-check`.

use clap::{Args, ValueHint};
use octavo_client::ServerSettings;
use octavo_generate::ec2_quotas::Addition;

use super::fleet::OutputOptions;
use super::input::Input;

/// Settings of `octavo quota-check`.
#[derive(Debug, Clone, Args)]
pub struct QuotaCheckSettings {
    /// Limits printed by `aws service-quotas list-service-quotas --service-code ec2`; - for standard input
    #[arg(short = 'f', long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub limits: Input,

    /// Additional On-Demand instances, such as p5.48xlarge=2; repeat for several
    #[arg(long, value_name = "TYPE=N", value_delimiter = ',', value_parser = on_demand)]
    add: Vec<Addition>,

    /// Additional Spot instances
    #[arg(long, value_name = "TYPE=N", value_delimiter = ',', value_parser = spot)]
    add_spot: Vec<Addition>,

    /// Output format.
    #[command(flatten)]
    pub output: OutputOptions,

    /// Aggregator.
    #[command(flatten)]
    pub server: ServerSettings,
}

impl QuotaCheckSettings {
    /// Returns all additional instances.
    pub fn additions(&self) -> Vec<Addition> {
        [&self.add[..], &self.add_spot].concat()
    }
}

fn on_demand(text: &str) -> Result<Addition, &'static str> {
    addition(text, false)
}

fn spot(text: &str) -> Result<Addition, &'static str> {
    addition(text, true)
}

fn addition(text: &str, is_spot: bool) -> Result<Addition, &'static str> {
    let (name, count) = text.split_once('=').ok_or("write TYPE=N, such as p5.48xlarge=2")?;
    let count = count.parse().map_err(|_| "the number of instances must be an integer")?;
    Ok(Addition { instance_type: name.to_owned(), count, is_spot })
}
