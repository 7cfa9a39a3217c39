//! Settings of `octavo slo`: a service's objectives, and the measurements.

use clap::{Args, ValueHint};
use octavo_client::ServerSettings;
use octavo_fleet::price::{Amount, PurchaseOption};
use octavo_toolkit::choice::words;

use super::fleet::OutputOptions;
use super::input::Input;

/// Settings of `octavo slo`.
#[derive(Debug, Clone, Args)]
pub struct SloSettings {
    /// Output format.
    #[command(flatten)]
    pub output: OutputOptions,

    /// Benchmark results as JSON, or a model catalog response; - for standard input
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub file: Input,

    /// The service's objectives.
    #[command(flatten)]
    pub objectives: SloObjectives,

    /// Aggregator.
    #[command(flatten)]
    pub server: ServerSettings,
}

/// A service's objectives as specified by the user; the aggregator validates their ranges.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Objectives")]
pub struct SloObjectives {
    /// Minimum requests per second of all replicas together
    #[arg(long, value_name = "N")]
    pub requests_per_second: Option<f64>,

    /// Maximum of a latency, such as `ttft_p90=300`; repeat for several
    #[arg(long = "latency", value_name = "NAME=MAX", value_delimiter = ',', value_parser = latency)]
    pub latencies: Vec<(String, f64)>,

    /// Maximum price per hour of all replicas, in the currency of the price book
    #[arg(long, value_name = "PRICE")]
    pub max_price: Option<Amount>,

    /// Purchase option of the price book
    #[arg(long, value_name = "OPTION", value_parser = words::<PurchaseOption>())]
    pub purchase: Option<PurchaseOption>,
}

fn latency(text: &str) -> Result<(String, f64), String> {
    let (name, most) =
        text.split_once('=').ok_or("expected a name and a maximum, such as ttft_p90=300")?;
    let most: f64 = most.trim().parse().map_err(|_| format!("{most:?} is not a number"))?;
    if most.is_finite() {
        Ok((name.trim().to_owned(), most))
    } else {
        Err(format!("{most} is not a number"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_has_a_name_and_a_number() {
        assert_eq!(latency("ttft_p90 = 300"), Ok(("ttft_p90".to_owned(), 300.0)));
        for text in ["ttft_p90", "ttft_p90=", "ttft_p90=soon", "ttft_p90=nan"] {
            assert!(latency(text).is_err(), "{text}");
        }
    }
}
