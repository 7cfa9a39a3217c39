//! Usage of devices by pod over the whole fleet.

use axum::Json;
use axum::extract::State;
use octavo_access::visibility::ReaderVisibility;
use octavo_documents::api::{API_VERSION, Problem};
use octavo_documents::usage::{UsageList, UsageRow, UsageSum, UsageSummary};
use octavo_fleet::access::{AccessReview, Resource, Verb};
use octavo_store::usage::summary::Summary;
use octavo_store::usage::{Query, Search};
use tokio::task::yield_now;

use super::nodes::QueryPairs;
use super::problem::{ApiError, ProblemKind};
use super::token_cipher::TokenCipher;
use super::{Api, openapi};

/// Who uses what: containers on devices and partitions, filtered, ordered, in pages
///
/// Readers who may not list nodes are not told which node and device it is: `node`, `device`, `pci` and `uuid` are empty for them.
#[utoipa::path(
    get,
    path = "/api/v1/usage",
    tag = "fleet",
    params(
        ("node" = Option<String>, Query, description = "The name of a node", example = "gpu-07"),
        ("namespace" = Option<String>, Query, description = "A namespace", example = "team-a"),
        ("pod" = Option<String>, Query, description = "The name of a pod", example = "notebook-0"),
        ("over" = Option<bool>, Query, description = "Only those who use more than their share, or only those who do not"),
        ("sort" = Option<openapi::UsageSortWord>, Query, description = "The order: by node and device, or who uses most memory first"),
        ("limit" = Option<openapi::Limit>, Query, description = "Rows on a page"),
        ("continue" = Option<String>, Query, description = "What the page before said as `continue`; filters and order must be the same")
    ),
    responses(
        (status = 200, description = "A page of those who have something; it may have fewer rows than asked for, even none, while it says `continue`", body = UsageList),
        (status = 400, description = "A parameter is not known or cannot be as given", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn usage(
    State(api): State<Api>,
    ReaderVisibility(sight): ReaderVisibility,
    QueryPairs(pairs): QueryPairs,
) -> Result<Json<UsageList>, ApiError> {
    let pairs = if sight.nodes {
        pairs
    } else {
        decrypt_parameters(&api.seal, pairs)?
    };
    let query = Query::parse(pairs)?;
    let fleet = api.view.fleet();
    let mut search = Search::new(&fleet, &query, api.view.clock().now());
    // Other tasks share this thread.
    while search.step() {
        yield_now().await;
    }
    let mut page = search.page();
    let mut next = page.next.as_ref().map(ToString::to_string);
    if !sight.nodes {
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

/// How many devices, partitions and replicas of which type each namespace has now
#[utoipa::path(
    get,
    path = "/api/v1/usage/summary",
    tag = "fleet",
    responses(
        (status = 200, description = "What each namespace has, ordered by namespace and type", body = UsageSummary),
        (status = 400, description = "A parameter is not known", body = Problem, content_type = "application/problem+json")
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
    let told = summary.told();
    Ok(Json(UsageSummary {
        api_version: API_VERSION.to_owned(),
        kind: "UsageSummary".to_owned(),
        revision: fleet.revision,
        stale_nodes: told.stale_nodes,
        incomplete: told.is_truncated,
        items: told
            .holdings
            .iter()
            .map(|((namespace, kind), held)| UsageSum::new(namespace, kind.as_ref(), *held))
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
            let detail =
                format!("the parameter node is for readers who may {nodes}, and you may not");
            Err(ApiError::new(ProblemKind::Forbidden, detail).with_parameter("node"))
        }
        "continue" if !value.trim().is_empty() => {
            let opened = seal.decrypt(value.trim()).ok_or_else(|| {
                let detail = "the parameter continue cannot be used; begin again without it";
                ApiError::new(ProblemKind::InvalidParameter, detail).with_parameter("continue")
            });
            opened.map(|value| (name, value))
        }
        _ => Ok((name, value)),
    });
    pairs.collect()
}
