//! Additional data for matching and estimates: prices, and an estimate engine.

use std::path::PathBuf;
use std::time::Duration;

use octavo_settings::duration;
use octavo_settings::server_url::ServerUrl;

/// Additional data for matching and estimates.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Advice")]
pub struct AdviceSettings {
    /// What devices cost, by type and way of buying
    ///
    /// A price book, whose form docs/matching.md has. It is read again when it has changed; one that cannot be read leaves
    /// the prices before in use. What has no price in it is shown without a cost.
    #[arg(long, value_name = "FILE", env = "OCTAVO_PRICE_BOOK")]
    pub price_book: Option<PathBuf>,

    /// Who estimates training times and speeds, instead of the built-in rule of thumb
    ///
    /// The address of a program that answers as docs/estimates.md says. While it cannot be reached, or says what cannot be,
    /// answers have no times, and say why.
    #[arg(long, value_name = "URL", env = "OCTAVO_ESTIMATE_ENGINE")]
    pub estimate_engine: Option<ServerUrl>,

    /// How long the engine may take
    #[arg(
        long,
        value_name = "DURATION",
        env = "OCTAVO_ESTIMATE_TIMEOUT",
        default_value = "2s",
        value_parser = duration::positive
    )]
    pub estimate_timeout: Duration,
}
