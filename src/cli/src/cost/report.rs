//! `octavo cost report`: usage and cost of a month by team, as a file to forward.

use jiff::civil::Date;
use jiff::{Timestamp, ToSpan};
use octavo_client::{Client, RequestPath};
use octavo_cost_report::MonthlyReport;
use octavo_ledger::csv::to_csv;
use octavo_ledger::report::CostReport;

use super::notes;
use crate::settings::cost::{ReportFormat, ReportSettings};
use crate::{CliError, Exit, Report};

/// Maximum number of groups that the aggregator returns.
const LIMIT: &str = "10000";

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
    let report = MonthlyReport {
        month,
        at: Timestamp::now(),
        team: settings.team.clone(),
        teams: usage(client, month, "team", None).await?,
        previous: usage(client, previous, "team", None).await?,
        types: usage(client, month, "team,type", team).await?,
        workloads: usage(client, month, "team,workload", team).await?,
        days: usage(client, month, "team,day", team).await?,
    };
    let page = report.html().map_err(|error| CliError::Serialize(Box::new(error)))?;
    let note = (!report.has_usage()).then_some("the ledger has no such usage in this month");
    Ok(Report::with_notes(page, &Vec::from_iter(note), Exit::Done))
}

async fn csv(client: &Client, settings: &ReportSettings) -> Result<Report, CliError> {
    let month = settings.month.first_day();
    let report = usage(client, month, "team,workload,type", settings.team.as_deref()).await?;
    Ok(Report::with_notes(
        to_csv(&report),
        &notes(&report, "select a team with --team"),
        Exit::Done,
    ))
}

/// Usage of a month.
async fn usage(
    client: &Client,
    month: Date,
    by: &str,
    team: Option<&str>,
) -> Result<CostReport, CliError> {
    let (from, until) = (month.to_string(), month.saturating_add(1.month()).to_string());
    let parameters = [("from", from.as_str()), ("until", &until), ("by", by), ("limit", LIMIT)];
    let team = team.map(|team| ("team", team));
    let target = RequestPath::new("/api/v1/cost").with(parameters).with(team);
    Ok(client.get(&target).await?)
}
