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
    /// URL of the aggregator
    ///
    /// With https://, the certificate is verified. With http://, the connection is not encrypted. The default scheme
    /// is https://.
    #[arg(
        long,
        value_name = "URL",
        env = "OCTAVO_SERVER",
        default_value = "https://localhost:8443"
    )]
    pub server: ServerUrl,

    /// CA certificates (PEM) to verify the aggregator with, instead of the system's
    #[arg(long, value_name = "FILE", env = "OCTAVO_CA")]
    pub ca: Option<PathBuf>,

    /// File with the bearer token, for aggregators that require authentication
    ///
    /// For example, a token from `kubectl create token`. The file is read for each request. The token is sent only
    /// over TLS or to this machine.
    #[arg(long, value_name = "FILE", env = "OCTAVO_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,

    /// Timeout of one request
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
        Self { server, ca: None, token_file: None, timeout }
    }
}
