//! `octavo cost budgets`: budgets of this month, with their forecasts.

use octavo_client::{Client, RequestPath};
use octavo_fleet::budget::BudgetScope;
use octavo_fleet::price::Amount;
use octavo_ledger::budget::{BudgetReport, BudgetStatus};

use crate::output::render;
use crate::settings::Colors;
use crate::settings::cost::BudgetSettings;
use crate::text::{self, Cell};
use crate::{CliError, Exit, Report};

const COLUMNS: [&str; 5] = ["SCOPE", "BUDGET", "COST SO FAR", "FORECAST", "STATE"];

/// Runs `octavo cost budgets`.
pub(super) async fn budgets(settings: &BudgetSettings, colors: Colors) -> Result<Report, CliError> {
    let client = Client::connect(&settings.server).await?;
    let namespace = settings.namespace.as_deref().map(|namespace| ("namespace", namespace));
    let target = RequestPath::new("/api/v1/cost/budgets").with(namespace);
    let report: BudgetReport = client.get(&target).await?;
    let names: Vec<String> = report.items.iter().map(|item| object_name(&item.scope)).collect();
    let printed = settings.output;
    let rows = || {
        let rows = report.items.iter().map(row);
        text::table(&[&COLUMNS], rows, printed.headers, colors)
    };
    let text = || if report.items.is_empty() { String::new() } else { rows() };
    let output = render(printed.format, &report, names.iter().map(String::as_str), text)?;
    let mut notes = report.notes.clone();
    if report.items.is_empty() {
        notes.push(
            "no budgets found; the aggregator reads them from the file of --budgets".to_owned(),
        );
    }
    Ok(Report::with_notes(output, &notes, Exit::Done))
}

/// Formats the scope as kubectl formats objects: `namespace/team-a`.
fn object_name(scope: &BudgetScope) -> String {
    match scope {
        BudgetScope::Namespace(name) => format!("namespace/{name}"),
        BudgetScope::Team(name) => format!("team/{name}"),
    }
}

fn row(item: &BudgetStatus) -> Vec<Cell> {
    let shown = |amount: Amount| amount.shown_with(&item.currency);
    let forecast = item.forecast.map_or_else(|| "unknown".to_owned(), shown);
    let cells = [item.scope.to_string(), shown(item.amount), shown(item.spent), forecast];
    let state = Cell::new(&item.state, item.state.tone().into());
    cells.iter().map(Cell::plain).chain([state]).collect()
}
