//! Metrics of budgets, from the ledger.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use octavo_database::DatabaseError;
use octavo_fleet::access::Visibility;
use octavo_fleet::budget::BudgetScope;
use octavo_ledger::budget::BudgetReport;
use octavo_store::ledger::BudgetQuery;
use octavo_store::view::FleetView;
use octavo_toolkit::error::chain;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::error;

/// Interval of reading the ledger.
const INTERVAL: Duration = Duration::from_mins(1);
/// Time limit of reading the ledger.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// State of the budgets for scrapes, which cannot read the ledger themselves. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct BudgetMetrics(Arc<Mutex<Option<BudgetReport>>>);

/// Reads the state of the budgets from the ledger at an interval.
#[derive(Debug)]
pub struct BudgetMonitor {
    view: FleetView,
    metrics: BudgetMetrics,
}

impl BudgetMonitor {
    /// Creates a monitor of the budgets of a view.
    pub fn new(view: FleetView) -> Self {
        Self { view, metrics: BudgetMetrics::default() }
    }

    /// Its metrics.
    pub fn metrics(&self) -> BudgetMetrics {
        self.metrics.clone()
    }

    /// Runs forever. While the ledger cannot be read, there are no series: an old state could hide an exceeded budget.
    pub async fn run(self) {
        let mut times = interval(INTERVAL);
        times.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (query, visibility) = (BudgetQuery::default(), Visibility::everything());
        let mut is_failing = false;
        loop {
            times.tick().await;
            let report = timeout(READ_TIMEOUT, self.view.budgets(&query, &visibility)).await;
            let report = report.unwrap_or(Err(DatabaseError::Timeout(READ_TIMEOUT).into()));
            let report = report.unwrap_or_else(|error| {
                if !std::mem::replace(&mut is_failing, true) {
                    error!(error = %chain(&error), "budgets have no metrics until the ledger can be read");
                }
                None
            });
            is_failing &= report.is_none();
            self.metrics.set(report);
        }
    }
}

impl BudgetMetrics {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.clone()));
    }

    /// Replaces the state.
    pub fn set(&self, report: Option<BudgetReport>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }
}

impl Collector for BudgetMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let report = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let items = report.map(|report| report.items).unwrap_or_default();
        ratios(
            &mut encoder,
            "octavo_budget_spent_ratio",
            "Cost of this month so far, divided by the budget",
            items.iter().filter_map(|item| Some((&item.scope, item.spent_ratio()?))),
        )?;
        ratios(
            &mut encoder,
            "octavo_budget_forecast_ratio",
            "Expected cost of this month, divided by the budget; absent while the ledger has no complete day",
            items.iter().filter_map(|item| Some((&item.scope, item.forecast_ratio()?))),
        )
    }
}

/// Encodes a gauge with a value for each budget.
fn ratios<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl Iterator<Item = (&'a BudgetScope, f64)>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (scope, ratio) in values {
        let label = match scope {
            BudgetScope::Namespace(name) => [("namespace", name.as_str())],
            BudgetScope::Team(name) => [("team", name.as_str())],
        };
        ConstGauge::new(ratio).encode(metric.encode_family(&label)?)?;
    }
    Ok(())
}
