//! Budgets of this month on the page of cost.

use octavo_fleet::access::Visibility;
use octavo_fleet::price::Amount;
use octavo_ledger::Dimension;
use octavo_ledger::budget::{BudgetReport, BudgetStatus};
use octavo_store::ledger::{BudgetQuery, CostQuery};
use octavo_store::view::FleetView;

use crate::badges::{Badge, device_state, printable};

/// Budgets of this month.
#[derive(Debug)]
pub(super) struct BudgetView {
    pub(super) month: String,
    pub(super) rows: Vec<BudgetRow>,
    pub(super) notes: Vec<String>,
}

/// Row of a budget.
#[derive(Debug)]
pub(super) struct BudgetRow {
    pub(super) name: String,
    pub(super) amount: String,
    pub(super) spent: String,
    pub(super) forecast: String,
    pub(super) badge: Badge,
}

impl BudgetView {
    /// The budgets that belong to the usage of a query: with a namespace, only that of the namespace. `None` if there are none. A ledger
    /// that cannot be read is reported by the usage.
    pub(super) async fn read(
        view: &FleetView,
        query: &CostQuery,
        visibility: &Visibility,
    ) -> Option<Self> {
        let filters = &query.usage.filters;
        let namespace = filters.iter().find(|(dimension, _)| *dimension == Dimension::Namespace);
        let query = BudgetQuery { namespace: namespace.map(|(_, name)| name.clone()) };
        let report = view.budgets(&query, visibility).await.ok().flatten();
        report.filter(|report| !report.items.is_empty()).map(Self::new)
    }

    fn new(report: BudgetReport) -> Self {
        Self {
            month: report.month,
            rows: report.items.iter().map(BudgetRow::new).collect(),
            notes: report.notes.iter().map(|note| format!("Note: {}.", printable(note))).collect(),
        }
    }
}

impl BudgetRow {
    fn new(item: &BudgetStatus) -> Self {
        let shown = |amount: Amount| amount.shown_with(&item.currency);
        Self {
            name: printable(&item.scope.to_string()),
            amount: shown(item.amount),
            spent: shown(item.spent),
            forecast: item.forecast.map_or_else(|| "unknown".to_owned(), shown),
            badge: device_state(item.state.into(), item.state.tone()),
        }
    }
}
