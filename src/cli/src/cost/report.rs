//! `octavo cost report`: usage and cost of a month by team, as a file to forward.

use jiff::civil::Date;
use jiff::{Timestamp, ToSpan};
use octavo_client::{Client, RequestPath};
use octavo_cost_report::{MAX_IDLE_WORKLOADS, MAX_WORKLOADS, MonthlyReport};
use octavo_ledger::csv::to_csv;
use octavo_ledger::report::CostReport;

use super::notes;
use crate::settings::cost::{ReportFormat, ReportSettings};
use crate::{CliError, Exit, Report};

/// Maximum number of groups that the aggregator lists; with `limitBy`, of each value of a property.
const MAX_GROUPS: usize = 10_000;
/// Maximum number of types of a team.
const MAX_TYPES: usize = 100;
/// Maximum number of days of a month.
const MAX_DAYS: usize = 31;

/// Groups that the aggregator lists. It sums up the others.
#[derive(Debug, Clone, Copy)]
struct GroupSelection {
    /// Properties by which the usage is grouped.
    by: &'static str,
    /// Maximum number of groups.
    limit: usize,
    /// Property to whose values the limit applies.
    limit_by: Option<&'static str>,
    sort: &'static str,
}

/// Runs `octavo cost report`.
pub(super) async fn report(settings: &ReportSettings) -> Result<Report, CliError> {
    let client = Client::connect(&settings.server).await?;
    match settings.output {
        ReportFormat::Html => html(&client, settings).await,
        ReportFormat::Csv => csv(&client, settings).await,
    }
}

async fn html(client: &Client, settings: &ReportSettings) -> Result<Report, CliError> {
    let month = settings.month.first_day();
    let team = settings.team.as_deref();
    let previous = month.saturating_sub(1.month());
    let idle = GroupSelection { sort: "-idle", ..by_team("team,workload", MAX_IDLE_WORKLOADS) };
    let report = MonthlyReport {
        month,
        at: Timestamp::now(),
        team: settings.team.clone(),
        teams: usage(client, month, &by("team", MAX_GROUPS), None).await?,
        previous: usage(client, previous, &by("team", MAX_GROUPS), None).await?,
        types: usage(client, month, &by_team("team,type", MAX_TYPES), team).await?,
        workloads: usage(client, month, &by_team("team,workload", MAX_WORKLOADS), team).await?,
        idle: usage(client, month, &idle, team).await?,
        days: usage(client, month, &by_team("team,day", MAX_DAYS), team).await?,
    };
    let page = report.html().map_err(|error| CliError::Serialize(Box::new(error)))?;
    let note = (!report.has_usage()).then_some("the ledger has no such usage in this month");
    Ok(Report::with_notes(page, &Vec::from_iter(note), Exit::Done))
}

async fn csv(client: &Client, settings: &ReportSettings) -> Result<Report, CliError> {
    let month = settings.month.first_day();
    let selection = by_team("team,workload,type", MAX_GROUPS);
    let report = usage(client, month, &selection, settings.team.as_deref()).await?;
    Ok(Report::with_notes(
        to_csv(&report),
        &notes(&report, "select a team with --team"),
        Exit::Done,
    ))
}

/// The most expensive groups.
fn by(by: &'static str, limit: usize) -> GroupSelection {
    GroupSelection { by, limit, limit_by: None, sort: "-cost" }
}

/// The most expensive groups of each team.
fn by_team(properties: &'static str, limit: usize) -> GroupSelection {
    GroupSelection { limit_by: Some("team"), ..by(properties, limit) }
}

/// Usage of a month.
async fn usage(
    client: &Client,
    month: Date,
    groups: &GroupSelection,
    team: Option<&str>,
) -> Result<CostReport, CliError> {
    let (from, until) = (month.to_string(), month.saturating_add(1.month()).to_string());
    let limit = groups.limit.to_string();
    let parameters = [
        ("from", from.as_str()),
        ("until", &until),
        ("by", groups.by),
        ("limit", &limit),
        ("sort", groups.sort),
    ];
    let target = RequestPath::new("/api/v1/cost").with(parameters);
    let target = target.with(groups.limit_by.map(|property| ("limitBy", property)));
    Ok(client.get(&target.with(team.map(|team| ("team", team)))).await?)
}
