//! Usage of devices by pod over the whole fleet.

use axum::Json;
use axum::extract::State;
use octavo_access::visibility::ReaderVisibility;
use octavo_fleet::access::{AccessReview, Resource, Verb};
use octavo_fleet::problem::Problem;
use octavo_fleet::usage::{UsageList, UsageRow, UsageSum, UsageSummary};
use octavo_model::API_VERSION;
use octavo_store::usage::summary::Summary;
use octavo_store::usage::{Query, Search};
use tokio::task::yield_now;

use super::nodes::QueryPairs;
use super::problem::{ApiError, ProblemKind};
use super::token_cipher::TokenCipher;
use super::{Api, openapi};

/// List usage by container, device and partition
///
/// For clients without the permission to list nodes, `node`, `device`, `pci` and `uuid` are empty.
#[utoipa::path(
    get,
    path = "/api/v1/usage",
    tag = "fleet",
    params(
        ("node" = Option<String>, Query, description = "Node name", example = "gpu-07"),
        ("namespace" = Option<String>, Query, description = "Namespace", example = "team-a"),
        ("pod" = Option<String>, Query, description = "Pod name", example = "notebook-0"),
        ("over" = Option<bool>, Query, description = "`true`: only rows above their fair share; `false`: only the others"),
        ("sort" = Option<openapi::UsageSortWord>, Query, description = "Sort order: by node and device, or by used memory in descending order"),
        ("limit" = Option<openapi::Limit>, Query, description = "Maximum number of rows on a page"),
        ("continue" = Option<String>, Query, description = "Value of `continue` from the previous page; filters and sort order must be the same")
    ),
    responses(
        (status = 200, description = "Page of rows; while `continue` is present, it can have fewer rows than `limit`, even none", body = UsageList),
        (status = 400, description = "Unknown or invalid parameter", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn usage(
    State(api): State<Api>,
    ReaderVisibility(visibility): ReaderVisibility,
    QueryPairs(pairs): QueryPairs,
) -> Result<Json<UsageList>, ApiError> {
    let pairs = if visibility.nodes { pairs } else { decrypt_parameters(&api.seal, pairs)? };
    let query = Query::parse(pairs)?;
    let fleet = api.view.fleet();
    let mut search = Search::new(&fleet, &query, api.view.clock().now());
    // Other tasks share this thread.
    while search.step() {
        yield_now().await;
    }
    let mut page = search.page();
    let mut next = page.next.as_ref().map(ToString::to_string);
    if !visibility.nodes {
        page.items.iter_mut().for_each(UsageRow::redact_location);
        next = next.and_then(|next| api.seal.encrypt(&next));
    }
    Ok(Json(UsageList {
        api_version: API_VERSION.to_owned(),
        kind: "UsageList".to_owned(),
        revision: fleet.revision,
        continue_token: next,
        items: page.items,
    }))
}

/// Summarize current allocations by namespace and type
#[utoipa::path(
    get,
    path = "/api/v1/usage/summary",
    tag = "fleet",
    responses(
        (status = 200, description = "Allocations of each namespace, ordered by namespace and type", body = UsageSummary),
        (status = 400, description = "Unknown parameter", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn summary(
    State(api): State<Api>,
    pairs: QueryPairs,
) -> Result<Json<UsageSummary>, ApiError> {
    pairs.expect_empty()?;
    let fleet = api.view.fleet();
    let mut summary = Summary::new(&fleet, api.view.clock().now());
    // Other tasks share this thread.
    while summary.step() {
        yield_now().await;
    }
    let totals = summary.totals();
    Ok(Json(UsageSummary {
        api_version: API_VERSION.to_owned(),
        kind: "UsageSummary".to_owned(),
        revision: fleet.revision,
        stale_nodes: totals.stale_nodes,
        incomplete: totals.is_truncated,
        items: totals
            .teams
            .iter()
            .map(|((namespace, kind), usage)| UsageSum::new(namespace, kind.as_ref(), usage.held))
            .collect(),
    }))
}

/// Decrypts the continuation token and rejects the node filter, for readers who are not allowed to see nodes.
fn decrypt_parameters(
    seal: &TokenCipher,
    pairs: Vec<(String, String)>,
) -> Result<Vec<(String, String)>, ApiError> {
    let pairs = pairs.into_iter().map(|(name, value)| match name.as_str() {
        "node" if !value.trim().is_empty() => {
            let nodes = AccessReview::all(Verb::List, Resource::Nodes);
            let detail = format!("the parameter node requires the permission to {nodes}");
            Err(ApiError::new(ProblemKind::Forbidden, detail).with_parameter("node"))
        }
        "continue" if !value.trim().is_empty() => {
            let opened = seal.decrypt(value.trim()).ok_or_else(|| {
                let detail =
                    "the parameter continue is invalid; restart from the first page without it";
                ApiError::new(ProblemKind::InvalidParameter, detail).with_parameter("continue")
            });
            opened.map(|value| (name, value))
        }
        _ => Ok((name, value)),
    });
    pairs.collect()
}
