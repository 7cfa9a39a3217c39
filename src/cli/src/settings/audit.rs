//! Settings of `octavo audit`.

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use jiff::Timestamp;
use octavo_client::ServerSettings;
use octavo_fleet::price::parse_time;
use octavo_ledger::audit::AuditKind;
use strum::VariantNames;

use super::input::WantedFile;

/// Settings of `octavo audit`'s subcommands.
#[derive(Debug, Clone, Subcommand)]
pub enum AuditCommand {
    /// Print the audit trail as JSON lines
    #[command(after_long_help = include_str!("../../help/audit.txt"))]
    Export(Box<AuditExportSettings>),
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

    /// Only entries about this namespace; such an export cannot be verified
    #[arg(long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,

    /// Only entries of this kind; such an export cannot be verified
    #[arg(long, value_name = "KIND", value_parser = PossibleValuesParser::new(AuditKind::VARIANTS))]
    pub kind: Option<String>,

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
        let all = [
            ("from", self.from.map(|time| time.to_string())),
            ("until", self.until.map(|time| time.to_string())),
            ("namespace", self.namespace.clone()),
            ("kind", self.kind.clone()),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}
