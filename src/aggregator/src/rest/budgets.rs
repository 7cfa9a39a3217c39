//! State of the budgets of namespaces and teams, from the ledger.

use axum::Json;
use axum::extract::State;
use octavo_access::visibility::ReaderVisibility;
use octavo_fleet::problem::Problem;
use octavo_ledger::budget::BudgetReport;
use octavo_store::ledger::BudgetQuery;

use super::Api;
use super::cost::{ledger, ledger_error};
use super::nodes::QueryPairs;
use super::problem::{ApiError, ProblemKind};

/// Get the state of budgets in this month
///
/// The forecast is the cost so far plus, for each remaining day of the month, the mean daily cost of the last seven complete days. Clients
/// without the permission to list usage in all namespaces must name a namespace, and receive its budget only.
#[utoipa::path(
    get,
    path = "/api/v1/cost/budgets",
    tag = "fleet",
    params(
        ("namespace" = Option<String>, Query, description = "Only the budget of this namespace", example = "team-a")
    ),
    responses(
        (status = 200, description = "State of each budget", body = BudgetReport),
        (status = 400, description = "Unknown or invalid parameter", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "The aggregator has no ledger or no budgets", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "The ledger cannot be read", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn budgets(
    State(api): State<Api>,
    ReaderVisibility(visibility): ReaderVisibility,
    QueryPairs(pairs): QueryPairs,
) -> Result<Json<BudgetReport>, ApiError> {
    let query = BudgetQuery::parse(pairs)?;
    ledger(&api)?;
    let report = api.view.budgets(&query, &visibility).await;
    let report = report.map_err(|error| ledger_error(&error, "namespace", &visibility))?;
    report.map(Json).ok_or_else(|| {
        let detail = "the aggregator has no budgets; start it with --budgets";
        ApiError::new(ProblemKind::NoBudgets, detail)
    })
}
