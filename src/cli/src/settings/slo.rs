//! Settings of `octavo slo`: a service's objectives, and the measurements.

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueHint};
use octavo_fleet::price::PurchaseOption;

use super::fleet::OutputOptions;
use super::input::Input;
use super::server::ServerSettings;

pub(super) const EXAMPLES: &str = "\
Examples:
  # Which measured hardware keeps 10 requests a second with the first token within 300 ms, and which does so cheapest?
  octavo slo -f rows.json --requests-per-second 10 --latency ttft_p90=300

  # Straight from Open Data Hub's model catalogue, with a ceiling of 25 an hour for all copies
  curl -s \"$CATALOG/sources/$SOURCE/models/$MODEL/artifacts/performance\" | octavo slo -f - --latency itl_p95=40 --max-price 25

  # Names of the hardware that keeps all, for a script
  octavo slo -f rows.json --latency e2e_p99=2000 -o name

Latencies are in the unit of the rows. Rows are judged by the figures that they have: what was not measured is missed. docs/estimates.md says
what rows look like.

Exit codes: 0 something keeps all, 1 failed, 2 wrong usage, 5 nothing does.";

/// Settings of `octavo slo`.
#[derive(Debug, Clone, Args)]
pub struct SloSettings {
    /// Measured rows (JSON), or a model catalogue's answer; - is standard input
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub file: Input,

    /// The service's objectives.
    #[command(flatten)]
    pub objectives: SloObjectives,

    /// Output format.
    #[command(flatten)]
    pub output: OutputOptions,

    /// Aggregator.
    #[command(flatten)]
    pub server: ServerSettings,
}

/// A service's objectives as specified by the user; the aggregator validates them.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "What the service shall keep")]
pub struct SloObjectives {
    /// Requests a second of all copies together, at least
    #[arg(long, value_name = "N")]
    pub requests_per_second: Option<f64>,

    /// The highest of a latency, as `ttft_p90=300`; repeat for several
    #[arg(long = "latency", value_name = "NAME=MOST", value_delimiter = ',', value_parser = latency)]
    pub latencies: Vec<(String, f64)>,

    /// The most that all copies may cost an hour, in the price book's currency
    #[arg(long, value_name = "PRICE")]
    pub max_price: Option<String>,

    /// How devices are paid for
    #[arg(
        long,
        value_name = "HOW",
        value_parser = PossibleValuesParser::new(PurchaseOption::ALL.map(PurchaseOption::as_str))
    )]
    pub purchase: Option<String>,
}

fn latency(text: &str) -> Result<(String, f64), String> {
    let (name, most) = text
        .split_once('=')
        .ok_or("a name and the most of it, as ttft_p90=300")?;
    let most: f64 = most
        .trim()
        .parse()
        .map_err(|_| format!("{most:?} is no number"))?;
    if most.is_finite() {
        Ok((name.trim().to_owned(), most))
    } else {
        Err(format!("{most} is no number"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_is_a_name_and_a_number() {
        assert_eq!(
            latency("ttft_p90 = 300"),
            Ok(("ttft_p90".to_owned(), 300.0))
        );
        for text in ["ttft_p90", "ttft_p90=", "ttft_p90=soon", "ttft_p90=nan"] {
            assert!(latency(text).is_err(), "{text}");
        }
    }
}
