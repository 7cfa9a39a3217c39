//! Additional data for matching and estimates: prices, and an estimate engine.

use std::path::PathBuf;
use std::time::Duration;

use octavo_settings::duration;
use octavo_settings::server_url::ServerUrl;

/// Additional data for matching and estimates.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Advice")]
pub struct AdviceSettings {
    /// Price book: prices of devices by type and purchase option
    ///
    /// docs/tasks/matching.md describes the format. The file is reloaded when it changes; if it is invalid, the
    /// previous prices stay in use. Devices without a price are shown without a cost.
    #[arg(long, value_name = "FILE", env = "OCTAVO_PRICE_BOOK")]
    pub price_book: Option<PathBuf>,

    /// URL of an engine that estimates training times and speeds, instead of the built-in heuristic
    ///
    /// docs/tasks/estimates.md describes the engine's API. While the engine is unreachable or returns an invalid
    /// response, responses have no times and report the reason.
    #[arg(long, value_name = "URL", env = "OCTAVO_ESTIMATE_ENGINE")]
    pub estimate_engine: Option<ServerUrl>,

    /// Timeout of the engine
    #[arg(
        long,
        value_name = "DURATION",
        env = "OCTAVO_ESTIMATE_TIMEOUT",
        default_value = "2s",
        value_parser = duration::positive
    )]
    pub estimate_timeout: Duration,
}
