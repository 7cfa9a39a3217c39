//! Who uses what over the fleet.

use axum::Json;
use axum::extract::State;
use tokio::task::yield_now;

use super::nodes::Pairs;
use super::problem::Failure;
use super::{Api, openapi};
use crate::aggregator::usage::{Query, Search};
use crate::wire::api::{API_VERSION, Problem};
use crate::wire::usage::UsageList;

/// Who uses what: containers on devices and partitions, filtered, ordered, in pages
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
    Pairs(pairs): Pairs,
) -> Result<Json<UsageList>, Failure> {
    let query = Query::parse(pairs)?;
    let fleet = api.view.fleet();
    let mut search = Search::new(&fleet, &query, api.view.clock().now());
    // The one thread that answers is others' too.
    while search.step() {
        yield_now().await;
    }
    let page = search.page();
    Ok(Json(UsageList {
        api_version: API_VERSION.to_owned(),
        kind: "UsageList".to_owned(),
        revision: fleet.revision,
        continue_token: page.next.as_ref().map(ToString::to_string),
        items: page.items,
    }))
}
