//! Settings of `octavo cost`.

use clap::builder::NonEmptyStringValueParser;
use clap::{ArgAction, Args, Subcommand, ValueEnum};
use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use octavo_client::ServerSettings;
use octavo_fleet::price::parse_time;
use octavo_ledger::Dimension;
use octavo_toolkit::choice::{Choice, choice};

use super::fleet::OutputOptions;
use super::{Headers, headers};

/// Properties by which usage can be grouped.
const PROPERTIES: &[Choice<Dimension>] = &[
    ("namespace", "Namespace of the pod", Dimension::Namespace),
    ("team", "Label of the pod that the aggregator's --ledger-team-label names", Dimension::Team),
    ("type", "Accelerator type", Dimension::Type),
    ("profile", "MIG profile", Dimension::Profile),
    ("method", "Allocation method", Dimension::Method),
    ("day", "Day in UTC", Dimension::Day),
    ("workload", "Workload that owns the pod", Dimension::Workload),
    ("node", "Node", Dimension::Node),
    ("pod", "Pod", Dimension::Pod),
];

/// Settings of `octavo cost`.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct CostSettings {
    /// Another report.
    #[command(subcommand)]
    pub command: Option<CostCommand>,

    /// Properties by which the usage is grouped; up to four
    #[arg(
        long,
        value_name = "PROPERTY",
        value_delimiter = ',',
        default_value = "namespace",
        value_parser = choice(PROPERTIES)
    )]
    pub by: Vec<Dimension>,

    /// Start: a date in UTC, or a time such as 2026-11-01T12:00:00Z; by default the start of this month
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub from: Option<Timestamp>,

    /// End, exclusive; by default now
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub until: Option<Timestamp>,

    /// Month in UTC, such as 2026-11
    #[arg(long, value_name = "MONTH", conflicts_with_all = ["from", "until"], value_parser = month)]
    pub month: Option<Month>,

    /// Show only this namespace
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,

    /// Show only this team
    #[arg(long, value_name = "TEAM")]
    pub team: Option<String>,

    /// Show only this type
    #[arg(long = "type", value_name = "TYPE")]
    pub type_name: Option<String>,

    /// Show only this workload, such as team-a/Job/train
    #[arg(long, value_name = "WORKLOAD")]
    pub workload: Option<String>,

    /// Show only this node
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,

    /// Types to compare the cost with; up to eight
    #[arg(long, value_name = "TYPE", value_delimiter = ',')]
    pub compare: Vec<String>,

    /// Maximum number of groups
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub limit: u32,

    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub output: CostFormat,

    /// Omit the headings of a table
    #[arg(long = "no-headers", action = ArgAction::SetTrue, value_parser = headers())]
    pub headers: Headers,

    /// Aggregator.
    #[command(flatten)]
    pub server: ServerSettings,
}

/// Other reports of cost.
#[derive(Debug, Clone, Subcommand)]
pub enum CostCommand {
    /// Show the budgets of this month with their forecasts
    #[command(after_long_help = include_str!("../../help/cost-budgets.txt"))]
    Budgets(BudgetSettings),
    /// Create a report of a month by team, as HTML or CSV
    #[command(after_long_help = include_str!("../../help/cost-report.txt"))]
    Report(ReportSettings),
}

/// Settings of `octavo cost report`.
#[derive(Debug, Clone, Args)]
pub struct ReportSettings {
    /// Month in UTC, such as 2026-11
    #[arg(long, value_name = "MONTH", value_parser = month)]
    pub month: Month,

    /// Report on this team only
    // An empty name, such as that of an unset variable, would select all teams.
    #[arg(long, value_name = "TEAM", value_parser = NonEmptyStringValueParser::new())]
    pub team: Option<String>,

    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "html")]
    pub output: ReportFormat,

    /// Aggregator.
    #[command(flatten)]
    pub server: ServerSettings,
}

/// Output format of a monthly report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// A page without external files
    Html,
    /// Comma-separated values by team, workload and type
    Csv,
}

/// Settings of `octavo cost budgets`.
#[derive(Debug, Clone, Args)]
pub struct BudgetSettings {
    /// Show only the budget of this namespace
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,

    /// Output format.
    #[command(flatten)]
    pub output: OutputOptions,

    /// Aggregator.
    #[command(flatten)]
    pub server: ServerSettings,
}

/// Output format of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CostFormat {
    /// Aligned columns
    Table,
    /// Comma-separated values with one row per group and currency
    Csv,
    /// The aggregator's document
    Json,
    /// The aggregator's document as YAML
    Yaml,
    /// FOCUS dataset (CSV) by day, node and pod; only with --month, or --from and --until
    Focus,
}

/// A month in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Month(Date);

fn month(text: &str) -> Result<Month, String> {
    let wrong = || format!("{text:?} is not a month: use a year and a month, such as 2026-11");
    let is_month = text.len() == "2026-11".len();
    let date = is_month.then(|| format!("{text}-01").parse().ok()).flatten();
    date.map(Month).ok_or_else(wrong)
}

impl Month {
    /// First day of the month.
    pub fn first_day(self) -> Date {
        self.0
    }
}

impl CostSettings {
    /// Parameters of the request.
    pub fn parameters(&self) -> Vec<(&'static str, String)> {
        let by: Vec<String> = self.by.iter().map(ToString::to_string).collect();
        let end = |month: Month| month.0.saturating_add(1.month()).to_string();
        let from = self.month.map(|month| month.0.to_string());
        let until = self.month.map(end);
        let all = [
            ("by", Some(by.join(","))),
            ("from", from.or_else(|| self.from.map(|time| self.time(time)))),
            ("until", until.or_else(|| self.until.map(|time| self.time(time)))),
            ("namespace", self.namespace.clone()),
            ("team", self.team.clone()),
            ("type", self.type_name.clone()),
            ("workload", self.workload.clone()),
            ("node", self.node.clone()),
            ("compare", Some(self.compare.join(",")).filter(|types| !types.is_empty())),
            ("limit", Some(self.limit.to_string())),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// Text of a time in the request. A FOCUS export is of whole days.
    fn time(&self, time: Timestamp) -> String {
        let zoned = time.to_zoned(TimeZone::UTC);
        let is_day = zoned.time() == Time::midnight();
        if is_day && self.output == CostFormat::Focus {
            zoned.date().to_string()
        } else {
            time.to_string()
        }
    }
}
