//! Recorded changes of a node.

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use octavo_fleet::changes::document::ChangeList;
use octavo_fleet::problem::Problem;

use super::nodes::{QueryPairs, find_node};
use super::problem::ApiError;
use super::{Api, rows};

/// Get the latest changes of a node
///
/// The record begins with the first report of the node since the aggregator started. It contains changes of the agent, drivers,
/// devices, partitions, layout and allocation; equal changes within 15 minutes are one item with a count.
#[utoipa::path(
    get,
    path = "/api/v1/nodes/{name}/changes",
    tag = "fleet",
    params(("name" = String, Path, description = "Name of the Kubernetes node", example = "gpu-07")),
    responses(
        (status = 200, description = "The changes, newest first", body = ChangeList),
        (status = 400, description = "Invalid node name", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "Node not found", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn changes(
    State(api): State<Api>,
    pairs: QueryPairs,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<ChangeList>, ApiError> {
    pairs.expect_empty()?;
    let fleet = api.view.listed();
    let node = find_node(&fleet, name)?;
    Ok(Json(rows::changes(node, api.view.clock())))
}
