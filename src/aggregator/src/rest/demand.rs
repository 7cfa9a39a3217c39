//! Proposals for pending pods. Requests do not change anything.

use axum::Json;
use axum::extract::State;
use octavo_demand::DemandReport;
use octavo_fleet::problem::Problem;
use octavo_store::demand::DemandError;

use super::Api;
use super::nodes::QueryPairs;
use super::problem::{ApiError, ProblemKind};

/// Proposed MIG instances for the pending pods of the cluster
///
/// Each pod has the idle instances to create or replace on the best node, the next two nodes, and the number of nodes by obstacle. Instances in
/// use are never destroyed. Policies with demand apply them; this path does not.
#[utoipa::path(
    get,
    path = "/api/v1/demand",
    tag = "fleet",
    responses(
        (status = 200, description = "Proposals, those for the oldest pods first", body = DemandReport),
        (status = 400, description = "Unknown parameter; this path has none", body = Problem, content_type = "application/problem+json"),
        (status = 500, description = "The proposals could not be calculated", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "The pods of the cluster are unknown", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn demand(
    State(api): State<Api>,
    pairs: QueryPairs,
) -> Result<Json<DemandReport>, ApiError> {
    pairs.expect_empty()?;
    let proposals = api.view.demand().await;
    let proposals = proposals.map_err(|error| {
        let kind = match error {
            DemandError::NoCluster | DemandError::NotRead => ProblemKind::NoCluster,
            DemandError::Internal => ProblemKind::Internal,
        };
        ApiError::new(kind, error.to_string())
    })?;
    Ok(Json(proposals.report.clone()))
}
