//! Measurements of a model catalog that meet service objectives, on the fleet's types.

use axum::Json;
use axum::extract::State;
use octavo_access::visibility::ReaderVisibility;
use octavo_fleet::problem::Problem;
use octavo_fleet::slo::{SloAnswer, SloRequest};
use octavo_store::slo::{self, SloError};

use super::Api;
use super::body::JsonBody;
use super::nodes::QueryPairs;
use super::problem::{ApiError, ProblemKind};

/// Find measured configurations that meet service objectives, and matching hardware profiles
#[utoipa::path(
    post,
    path = "/api/v1/slo",
    tag = "fleet",
    request_body(content = SloRequest, description = "Objectives of the service, and rows of performance data from a model catalog"),
    responses(
        (status = 200, description = "All rows: first those that meet all objectives, then the others with the objectives they miss", body = SloAnswer),
        (status = 400, description = "Invalid body; `parameter` names the field", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn meet(
    State(api): State<Api>,
    ReaderVisibility(visibility): ReaderVisibility,
    pairs: QueryPairs,
    JsonBody(request): JsonBody<SloRequest>,
) -> Result<Json<SloAnswer>, ApiError> {
    pairs.expect_empty()?;
    let answer = slo::evaluate_objectives(&api.view, &visibility, request).await;
    answer.map(Json).map_err(|error| match error {
        SloError::Request(error) => error.into(),
        SloError::Panicked => ApiError::new(ProblemKind::Internal, error.to_string()),
    })
}
