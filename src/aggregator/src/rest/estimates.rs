//! Estimated training times and decoding speeds, from an engine or the roofline model.

use axum::Json;
use axum::extract::State;
use octavo_access::visibility::ReaderVisibility;
use octavo_documents::api::Problem;
use octavo_documents::estimates::{EstimateAnswer, EstimateRequest};
use octavo_store::estimates;

use super::Api;
use super::body::JsonBody;
use super::nodes::QueryPairs;
use super::problem::ApiError;

/// Estimates of time, speed and cost
#[utoipa::path(
    post,
    path = "/api/v1/estimates",
    tag = "fleet",
    request_body(content = EstimateRequest, description = "What shall run, and on what"),
    responses(
        (status = 200, description = "Estimates; `times` is `none`, with the reason, where who estimates is away", body = EstimateAnswer),
        (status = 400, description = "The document cannot be meant; `parameter` names its field", body = Problem, content_type = "application/problem+json"),
        (status = 408, description = "The document arrived too slowly", body = Problem, content_type = "application/problem+json"),
        (status = 413, description = "The document is too long", body = Problem, content_type = "application/problem+json"),
        (status = 415, description = "The document is not JSON, or compressed", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn estimate(
    State(api): State<Api>,
    ReaderVisibility(sight): ReaderVisibility,
    pairs: QueryPairs,
    JsonBody(asked): JsonBody<EstimateRequest>,
) -> Result<Json<EstimateAnswer>, ApiError> {
    pairs.expect_empty()?;
    Ok(Json(estimates::estimate(&api.view, &sight, asked).await?))
}
