//! Settings of the usage ledger.

use std::path::PathBuf;
use std::time::Duration;

use octavo_database::DatabaseUrl;
use octavo_ledger::{Day, MAX_PAST_SECONDS};
use octavo_settings::{EarlyExit, duration};

use super::usage;

/// Minimum retention: a day whose usage arrives later is recalculated from its details, which must exist until then.
const MIN_DAYS: i64 = MAX_PAST_SECONDS / 86_400 + 2;

/// Settings of the usage ledger.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Ledger")]
pub struct LedgerSettings {
    /// Database of the usage ledger, for reports of usage and cost: the URL of an SQLite file or a PostgreSQL database
    ///
    /// SQLite: the file is created if it does not exist. Its directory must be on a volume that remains after a restart. PostgreSQL: if the
    /// URL contains a password, set the environment variable instead of the flag. Only one aggregator may write to a ledger. Without a
    /// ledger, no history of usage is stored.
    #[arg(
        long,
        value_name = "sqlite:///PATH|postgres://HOST/DATABASE",
        env = "OCTAVO_LEDGER",
        hide_env_values = true
    )]
    pub ledger: Option<DatabaseUrl>,

    /// Label of pods that names their team, such as app.kubernetes.io/part-of; needs --follow-cluster
    #[arg(
        long = "ledger-team-label",
        value_name = "LABEL",
        env = "OCTAVO_LEDGER_TEAM_LABEL",
        requires = "ledger"
    )]
    pub team_label: Option<String>,

    /// Interval of writes: the longest time whose usage is inferred if the aggregator is killed
    #[arg(
        long,
        value_name = "DURATION",
        env = "OCTAVO_LEDGER_WRITE_INTERVAL",
        default_value = "30s",
        value_parser = duration::positive
    )]
    pub ledger_write_interval: Duration,

    /// Number of days after which the usage by pod, workload and node is deleted; daily sums by namespace, team and type remain
    #[arg(
        long,
        value_name = "DAYS",
        env = "OCTAVO_LEDGER_DETAIL_DAYS",
        default_value_t = 100,
        value_parser = clap::value_parser!(u16).range(MIN_DAYS..)
    )]
    pub ledger_detail_days: u16,

    /// Number of days after which daily sums and audit entries are deleted
    #[arg(
        long,
        value_name = "DAYS",
        env = "OCTAVO_LEDGER_DAYS",
        default_value_t = 800,
        value_parser = clap::value_parser!(u16).range(MIN_DAYS..)
    )]
    pub ledger_days: u16,

    /// Existing directory for the Parquet files of complete days: DIRECTORY/day=2026-11-27/usage.parquet
    ///
    /// A file is replaced if usage of its day is recorded later. No file is deleted.
    #[arg(
        long = "ledger-export-directory",
        value_name = "DIRECTORY",
        env = "OCTAVO_LEDGER_EXPORT_DIRECTORY",
        requires = "ledger"
    )]
    pub export_directory: Option<PathBuf>,

    /// Monthly budgets of namespaces and teams; needs --ledger and --price-book
    ///
    /// docs/tasks/cost.md describes the format. The file is reloaded when it changes; if it is invalid, the previous budgets stay in use.
    #[arg(
        long,
        value_name = "FILE",
        env = "OCTAVO_BUDGETS",
        requires_all = ["ledger", "price_book"]
    )]
    pub budgets: Option<PathBuf>,
}

impl LedgerSettings {
    /// Rejects a ledger that replicas cannot share.
    pub(super) fn check(&self, has_replicas: bool) -> Result<(), EarlyExit> {
        match &self.ledger {
            Some(ledger) if has_replicas && ledger.is_sqlite() => Err(usage(&format!(
                "--leader-election with --ledger {ledger}: replicas cannot share a SQLite file; use a PostgreSQL database"
            ))),
            Some(_) | None => Ok(()),
        }
    }

    /// First days whose details and whose daily sums are retained.
    pub fn retention(&self, today: Day) -> (Day, Day) {
        let first = |days: u16| Day(today.0.saturating_sub(days.into()));
        (first(self.ledger_detail_days), first(self.ledger_days))
    }
}
