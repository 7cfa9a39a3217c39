//! Settings of the connection to the aggregator: the common flags of all commands about the fleet.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use octavo_settings::duration;
use octavo_settings::server_url::ServerUrl;

/// Settings of the connection to the aggregator.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Aggregator")]
pub struct ServerSettings {
    /// The aggregator to ask
    ///
    /// With https:// its certificate is checked; http:// is taken as given. Without either, https:// is meant.
    #[arg(
        long,
        value_name = "URL",
        env = "OCTAVO_SERVER",
        default_value = "https://localhost:8443"
    )]
    pub server: ServerUrl,

    /// Certificates (PEM) of who may vouch for the aggregator, instead of the system's
    #[arg(long, value_name = "FILE", env = "OCTAVO_CA")]
    pub ca: Option<PathBuf>,

    /// A file with the token that says who asks, where the aggregator wants to know
    ///
    /// Such as one that `kubectl create token` made. It is read anew for each request, and sent over TLS or to this machine only.
    #[arg(long, value_name = "FILE", env = "OCTAVO_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,

    /// How long one answer may take
    #[arg(
        long,
        value_name = "DURATION",
        env = "OCTAVO_TIMEOUT",
        default_value = "10s",
        value_parser = duration::positive
    )]
    pub timeout: Duration,
}

impl ServerSettings {
    /// Creates settings for an aggregator without TLS at `server`, for a program that has just started it.
    pub fn plaintext(server: ServerUrl, timeout: Duration) -> Self {
        Self {
            server,
            ca: None,
            token_file: None,
            timeout,
        }
    }
}
