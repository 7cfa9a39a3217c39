//! Settings of `octavo version`.

use clap::{Args, ValueEnum};
use octavo_client::ServerSettings;

/// Settings of `octavo version`.
#[derive(Debug, Clone, Args)]
pub struct VersionSettings {
    /// Print only the version of this command, without contacting the aggregator
    #[arg(long)]
    pub client: bool,

    /// Output format
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "table")]
    pub format: VersionFormat,

    /// Aggregator.
    #[command(flatten)]
    pub server: ServerSettings,
}

/// Format of versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum VersionFormat {
    /// Table
    Table,
    /// JSON
    Json,
    /// YAML
    Yaml,
}
