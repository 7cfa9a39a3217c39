//! `octavo cost`: usage and cost over a time, from the ledger of the aggregator.

mod budgets;
mod report;

use octavo_client::{Client, RequestPath};
use octavo_ledger::Dimension;
use octavo_ledger::compare::Alternative;
use octavo_ledger::csv::{label_column, to_csv};
use octavo_ledger::report::{CostReport, Usage};
use octavo_model::text::group_thousands;

use super::output;
use super::text::{self, Cell};
use super::{CliError, Report, json, yaml};
use crate::settings::Colors;
use crate::settings::cost::{CostCommand, CostFormat, CostSettings};

const COLUMNS: [&str; 7] =
    ["USED h", "IDLE h", "UNALLOCATED h", "UNKNOWN h", "TOTAL h", "COST", "IDLE COST"];

/// Runs `octavo cost`.
pub(super) async fn cost(settings: &CostSettings, colors: Colors) -> Result<Report, CliError> {
    match &settings.command {
        None => {}
        Some(CostCommand::Budgets(settings)) => return budgets::budgets(settings, colors).await,
        Some(CostCommand::Report(settings)) => return report::report(settings).await,
    }
    let client = Client::connect(&settings.server).await?;
    let parameters = settings.parameters();
    if settings.output == CostFormat::Focus {
        return focus(&client, &parameters).await;
    }
    let target = RequestPath::new("/api/v1/cost")
        .with(parameters.iter().map(|(name, value)| (*name, value.as_str())));
    let report: CostReport = client.get(&target).await?;
    let output = match settings.output {
        CostFormat::Json => json(&report)?,
        CostFormat::Yaml => yaml(&report)?,
        CostFormat::Csv => to_csv(&report),
        CostFormat::Table | CostFormat::Focus => table(&report, settings, colors),
    };
    Ok(Report::with_notes(output, &notes(&report, "raise --limit"), super::Exit::Done))
}

/// Prints the export as it arrives. The aggregator rejects filters, because their costs would not add up to those of
/// the devices.
async fn focus(client: &Client, parameters: &[(&str, String)]) -> Result<Report, CliError> {
    let given = parameters.iter().filter(|(name, _)| !matches!(*name, "by" | "limit"));
    let target = RequestPath::new("/api/v1/cost/focus")
        .with(given.map(|(name, value)| (*name, value.as_str())));
    output::download(client, &target, "text/csv").await
}

/// Notes on missing data. `remedy` lists more groups.
fn notes(report: &CostReport, remedy: &str) -> Vec<String> {
    let mut notes = report.notes.clone();
    if report.items.is_empty() {
        notes.push("the ledger has no usage in this time range".to_owned());
    }
    if let Some(begins) = report.begins.as_ref().filter(|begins| **begins > report.from.to_string())
    {
        notes.push(format!("the ledger begins on {begins}"));
    }
    if report.omitted_items > 0 {
        notes.push(format!(
            "{} more groups are summed up in the rows that begin with \"other\"; {remedy}",
            group_thousands(&report.omitted_items.to_string())
        ));
    }
    if report.total.inferred_hours > 0.0 {
        notes.push(format!(
            "{:.1} device hours are inferred: no report covers them, but the same pods had the devices before and after",
            report.total.inferred_hours
        ));
    }
    notes
}

fn table(report: &CostReport, settings: &CostSettings, colors: Colors) -> String {
    if report.items.is_empty() {
        return String::new();
    }
    let names: Vec<String> = report.by.iter().map(|by| by.to_string().to_uppercase()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let row = |first: Vec<String>, usage: &Usage| {
        let hours = usage.device_hours;
        let hours = [hours.used, hours.idle, hours.unallocated, hours.unknown, hours.total];
        let hours = hours.iter().map(|hours| Cell::plain(&format!("{hours:.1}")));
        let costs = [usage.shown_costs(|cost| cost.total), usage.shown_costs(|cost| cost.idle)];
        let others = usage.alternatives.iter().map(Alternative::shown);
        let costs: Vec<String> = costs.into_iter().chain(others).collect();
        first.iter().map(Cell::plain).chain(hours).chain(costs.iter().map(Cell::plain)).collect()
    };
    let rows = report.items.iter().map(|item| {
        let values = report.by.iter().map(|by| match item.group.get(by) {
            Some(value) => value.clone(),
            None if *by == Dimension::Type => "unknown".to_owned(),
            None => "-".to_owned(),
        });
        row(values.collect(), &item.usage)
    });
    let labeled = label_column(&report.by);
    let omitted = report.omitted.iter().map(|omitted| {
        let label = omitted.label(&report.by);
        let values = report.by.iter().map(|by| match omitted.group.get(by) {
            _ if Some(*by) == labeled => label.clone(),
            Some(value) => value.clone(),
            None => "-".to_owned(),
        });
        row(values.collect(), &omitted.usage)
    });
    let total = report.by.iter().enumerate();
    let total = total.map(|(at, _)| if at == 0 { "TOTAL" } else { "" }.to_owned()).collect();
    let rows = rows.chain(omitted).chain([row(total, &report.total)]);
    let compared = report.total.alternatives.iter();
    let compared: Vec<String> = compared.map(|one| format!("COST ON {}", one.type_name)).collect();
    let compared: Vec<&str> = compared.iter().map(String::as_str).collect();
    text::table(&[&names, &COLUMNS, &compared], rows, settings.headers, colors)
}
