//! Measurements of a model catalog that meet service objectives, on the fleet's types.

use axum::Json;
use axum::extract::State;
use octavo_access::visibility::ReaderVisibility;
use octavo_documents::api::Problem;
use octavo_documents::slo::{SloAnswer, SloRequest};
use octavo_store::slo::{self, SloError};

use super::Api;
use super::body::JsonBody;
use super::nodes::QueryPairs;
use super::problem::{ApiError, ProblemKind};

/// Measured rows that meet objectives of a service, and the hardware profiles that provide these devices
#[utoipa::path(
    post,
    path = "/api/v1/slo",
    tag = "fleet",
    request_body(content = SloRequest, description = "What the service shall keep, and rows of a model catalogue's performance data"),
    responses(
        (status = 200, description = "All rows: those that meet all first, and what the others miss", body = SloAnswer),
        (status = 400, description = "The document cannot be meant; `parameter` names its field", body = Problem, content_type = "application/problem+json"),
        (status = 408, description = "The document arrived too slowly", body = Problem, content_type = "application/problem+json"),
        (status = 413, description = "The document is too long", body = Problem, content_type = "application/problem+json"),
        (status = 415, description = "The document is not JSON, or compressed", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn meet(
    State(api): State<Api>,
    ReaderVisibility(sight): ReaderVisibility,
    pairs: QueryPairs,
    JsonBody(asked): JsonBody<SloRequest>,
) -> Result<Json<SloAnswer>, ApiError> {
    pairs.expect_empty()?;
    let answer = slo::evaluate_objectives(&api.view, &sight, asked).await;
    answer.map(Json).map_err(|error| match error {
        SloError::Request(error) => error.into(),
        SloError::Panicked => ApiError::new(ProblemKind::Internal, error.to_string()),
    })
}
