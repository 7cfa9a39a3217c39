//! Estimated training times and decoding speeds, from an engine or the roofline model.

use axum::Json;
use axum::extract::State;
use octavo_access::visibility::ReaderVisibility;
use octavo_fleet::estimate::{EstimateAnswer, EstimateRequest};
use octavo_fleet::problem::Problem;
use octavo_store::estimates;

use super::Api;
use super::body::JsonBody;
use super::nodes::QueryPairs;
use super::problem::ApiError;

/// Estimate time, speed and cost of a workload
#[utoipa::path(
    post,
    path = "/api/v1/estimates",
    tag = "fleet",
    request_body(content = EstimateRequest, description = "Workload and devices"),
    responses(
        (status = 200, description = "Estimates; `times` is `none`, with the reason, if the estimate engine is unavailable", body = EstimateAnswer),
        (status = 400, description = "Invalid body; `parameter` names the field", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn estimate(
    State(api): State<Api>,
    ReaderVisibility(visibility): ReaderVisibility,
    pairs: QueryPairs,
    JsonBody(request): JsonBody<EstimateRequest>,
) -> Result<Json<EstimateAnswer>, ApiError> {
    pairs.expect_empty()?;
    Ok(Json(estimates::estimate(&api.view, &visibility, request).await?))
}
