//! Usage and cost of devices over a time, from the ledger.

use axum::Json;
use axum::extract::State;
use octavo_access::visibility::ReaderVisibility;
use octavo_fleet::access::Visibility;
use octavo_fleet::problem::Problem;
use octavo_ledger::report::CostReport;
use octavo_store::ledger::{CostQuery, LedgerError, LedgerReader};
use octavo_store::view::PRICES_OUTDATED;
use octavo_toolkit::error::chain;

use super::nodes::QueryPairs;
use super::problem::{ApiError, ProblemKind};
use super::{Api, openapi};

/// Get the usage and cost of devices over a time
///
/// The hours of a partitioned device are the sum of its parts: the hours of all states add up to the hours of the devices. Costs are
/// in the currencies of the price book.
#[utoipa::path(
    get,
    path = "/api/v1/cost",
    tag = "fleet",
    params(
        ("from" = Option<String>, Query, description = "Start: a date in UTC, or a time (RFC 3339); by default the start of this month", example = "2026-11-01"),
        ("until" = Option<String>, Query, description = "End, exclusive; by default now", example = "2026-12-01"),
        ("by" = Option<String>, Query, description = "Up to four of `namespace` (default), `team`, `type`, `profile`, `method`, `day`, `workload`, `node`, `pod`", example = "namespace,type"),
        ("namespace" = Option<String>, Query, description = "Namespace", example = "team-a"),
        ("team" = Option<String>, Query, description = "Team", example = "vision"),
        ("type" = Option<String>, Query, description = "Type", example = "nvidia-h200-141gb"),
        ("profile" = Option<String>, Query, description = "MIG profile", example = "1g.10gb"),
        ("method" = Option<String>, Query, description = "Allocation method", example = "mig-memory-slices/v1"),
        ("workload" = Option<String>, Query, description = "Workload: namespace, kind and name", example = "team-a/Job/train"),
        ("node" = Option<String>, Query, description = "Node; requires the permission to list nodes", example = "gpu-07"),
        ("pod" = Option<String>, Query, description = "Pod: namespace and name", example = "team-a/train-0"),
        ("limit" = Option<u32>, Query, description = "Maximum number of groups, 1 to 10,000; by default 1,000. The others are summed up in `omitted`"),
        ("limitBy" = Option<String>, Query, description = "First property in `by`: the limit applies to the groups of each value, at most 25,000 in total (fewer with `compare`)", example = "team"),
        ("sort" = Option<openapi::CostSortWord>, Query, description = "Order in which groups are selected and listed; `-idle` is the cost of idle device hours"),
        ("compare" = Option<String>, Query, description = "Up to 8 types on which the cost of the same device hours is calculated", example = "nvidia-h200-141gb,nvidia-l40s-48gb")
    ),
    responses(
        (status = 200, description = "Usage and cost of each group", body = CostReport),
        (status = 400, description = "Unknown or invalid parameter, or unknown type", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "The aggregator has no ledger", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "The ledger cannot be read", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn cost(
    State(api): State<Api>,
    ReaderVisibility(visibility): ReaderVisibility,
    QueryPairs(pairs): QueryPairs,
) -> Result<Json<CostReport>, ApiError> {
    let clock = api.view.clock();
    let query = CostQuery::parse(pairs, clock.wall(clock.now()))?;
    let ledger = ledger(&api)?;
    if let Some(detail) = query.refusal(&visibility) {
        return Err(ApiError::new(ProblemKind::Forbidden, detail).with_parameter("by"));
    }
    let prices = api.view.prices();
    let book = prices.prices.as_ref().map(|prices| &**prices.book());
    let report = ledger.report(&query, book).await;
    let mut report = report.map_err(|error| ledger_error(&error, "by", &visibility))?;
    report.notes.extend(prices.notice.map(|why| visibility.disclose(why, PRICES_OUTDATED)));
    Ok(Json(report))
}

/// The ledger, if the aggregator has one.
pub(super) fn ledger(api: &Api) -> Result<&LedgerReader, ApiError> {
    api.view.ledger().ok_or_else(|| {
        let detail = "the aggregator has no usage ledger; start it with --ledger";
        ApiError::new(ProblemKind::NoLedger, detail)
    })
}

/// The error of a report; `by` is the parameter that decides the number of groups.
pub(super) fn ledger_error(
    error: &LedgerError,
    by: &'static str,
    visibility: &Visibility,
) -> ApiError {
    let Some(parameter) = error.parameter(by) else {
        let detail = visibility.disclose(chain(error), "the ledger cannot be read");
        return ApiError::new(ProblemKind::LedgerUnavailable, detail);
    };
    ApiError::new(ProblemKind::InvalidParameter, error.to_string()).with_parameter(parameter)
}
