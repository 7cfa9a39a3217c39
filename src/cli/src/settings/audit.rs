//! Settings of `octavo audit`.

use clap::{Args, Subcommand};
use jiff::Timestamp;
use octavo_client::ServerSettings;
use octavo_fleet::price::parse_time;

use super::input::WantedFile;

/// Settings of `octavo audit`'s subcommands.
#[derive(Debug, Clone, Subcommand)]
pub enum AuditCommand {
    /// Print the audit trail as JSON lines
    #[command(after_long_help = include_str!("../../help/audit.txt"))]
    Export(AuditExportSettings),
    /// Verify that no entry of an export was changed, removed, inserted or moved
    ///
    /// Needs no aggregator. The first error is printed as `FILE:LINE: error: ...`. Exit codes: 0 no errors, 1 error found, 2 usage
    /// error.
    #[command(after_long_help = include_str!("../../help/audit.txt"))]
    Verify(AuditVerifySettings),
}

/// Settings of `octavo audit export`.
#[derive(Debug, Clone, Args)]
pub struct AuditExportSettings {
    /// Start: a date in UTC, or a time such as 2026-11-01T12:00:00Z; by default the oldest entry
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub from: Option<Timestamp>,

    /// End, exclusive; by default the newest entry
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub until: Option<Timestamp>,

    /// Aggregator.
    #[command(flatten)]
    pub server: ServerSettings,
}

/// Settings of `octavo audit verify`.
#[derive(Debug, Clone, Args)]
pub struct AuditVerifySettings {
    /// Hash that the aggregator logged; fails if no entry has it
    #[arg(long, value_name = "HASH")]
    pub hash: Option<String>,

    /// Export.
    #[command(flatten)]
    pub file: WantedFile,
}

impl AuditExportSettings {
    /// Parameters of the request.
    pub fn parameters(&self) -> Vec<(&'static str, String)> {
        let all = [("from", self.from), ("until", self.until)];
        all.into_iter().filter_map(|(name, time)| Some((name, time?.to_string()))).collect()
    }
}
