//! Nodes and types.

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use octavo_access::visibility::ReaderVisibility;
use octavo_documents::api::{API_VERSION, NodeDetail, NodeList, Problem, TypeList};
use octavo_fleet::access::Sight;
use octavo_model::id::NodeName;
use octavo_model::inventory::Inventory;
use octavo_store::fleet::{Fleet, Node};
use octavo_store::query::{self, Query};
use octavo_stream::status::{self, NodeStatus};
use octavo_toolkit::error::chain;

use super::problem::{ApiError, ProblemKind};
use super::{Api, openapi, rows};

/// Decoded query parameters, in order.
pub(super) struct QueryPairs(pub(super) Vec<(String, String)>);

impl<S: Sync> FromRequestParts<S> for QueryPairs {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        axum::extract::Query::try_from_uri(&parts.uri)
            .map(|axum::extract::Query(pairs)| Self(pairs))
            .map_err(|error| ApiError::new(ProblemKind::InvalidParameter, chain(&error)))
    }
}

impl QueryPairs {
    /// Rejects parameters, for paths that have none.
    pub(super) fn expect_empty(self) -> Result<(), ApiError> {
        self.0.into_iter().next().map_or(Ok(()), |(name, _)| {
            let name: String = name.chars().take(64).collect();
            let detail = format!("there are no parameters here, and {name:?} was given");
            Err(ApiError::new(ProblemKind::UnknownParameter, detail).with_parameter(&name))
        })
    }
}

/// Nodes: filtered, ordered, in pages
#[utoipa::path(
    get,
    path = "/api/v1/nodes",
    tag = "fleet",
    params(
        ("search" = Option<String>, Query, description = "A part of the name", example = "gpu-07"),
        ("type" = Option<Vec<String>>, Query, style = Form, explode = false, description = "Types of which a node has at least one device; `unknown` for devices that nobody knows", example = json!(["nvidia-h200-141gb"])),
        ("state" = Option<Vec<openapi::State>>, Query, style = Form, explode = false, description = "How the node is"),
        ("sharing" = Option<Vec<openapi::SharingWord>>, Query, style = Form, explode = false, description = "How its devices are given out"),
        ("layout" = Option<Vec<String>>, Query, style = Form, explode = false, description = "Names of layouts, of which the node shall have one", example = json!(["serving"])),
        ("layoutState" = Option<Vec<openapi::LayoutStateWord>>, Query, style = Form, explode = false, description = "How the node stands with regard to its layout; `none` where no layout asks anything of its devices"),
        ("selector" = Option<String>, Query, description = "A Kubernetes label selector over the labels that the node says of itself", example = "octavo.dev/type in (nvidia-h200-141gb,nvidia-h100-80gb),!octavo.dev/mig-capable"),
        ("sort" = Option<openapi::SortWord>, Query, description = "The order; equal ones by name"),
        ("limit" = Option<openapi::Limit>, Query, description = "Nodes on a page"),
        ("continue" = Option<String>, Query, description = "What the page before said as `continue`; filters and order must be the same")
    ),
    responses(
        (status = 200, description = "A page of nodes", body = NodeList),
        (status = 400, description = "A parameter is not known or cannot be as given", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn list(
    State(api): State<Api>,
    QueryPairs(pairs): QueryPairs,
) -> Result<Json<NodeList>, ApiError> {
    let query = Query::parse(pairs)?;
    let (fleet, clock) = (api.view.listed(), api.view.clock());
    let now = clock.now();
    let page = query::find(&fleet, &query, now);
    let items = page.items.iter();
    Ok(Json(NodeList {
        api_version: API_VERSION.to_owned(),
        kind: "NodeList".to_owned(),
        revision: fleet.revision,
        total: page.total,
        starting: { api.view.startup() }.map(|now| now.document(&Sight::everything())),
        continue_token: page.next.as_ref().map(ToString::to_string),
        items: items.map(|node| rows::row(node, clock, now)).collect(),
    }))
}

/// One node with all that is known of it
#[utoipa::path(
    get,
    path = "/api/v1/nodes/{name}",
    tag = "fleet",
    params(("name" = String, Path, description = "The Kubernetes node's name", example = "gpu-07")),
    responses(
        (status = 200, description = "The node", body = NodeDetail),
        (status = 400, description = "This cannot be a node's name", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is no such node", body = Problem, content_type = "application/problem+json"),
        (status = 500, description = "What is known of it cannot be read", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn get(
    State(api): State<Api>,
    pairs: QueryPairs,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<NodeDetail>, ApiError> {
    pairs.expect_empty()?;
    let fleet = api.view.listed();
    let node = find_node(&fleet, name)?;
    let status = status(node)?;
    let clock = api.view.clock();
    let detail = rows::detail(node, &status, clock, clock.now());
    Ok(Json(detail))
}

/// Finds the node named in the path.
pub(super) fn find_node(
    fleet: &Fleet,
    name: Result<Path<String>, PathRejection>,
) -> Result<&Node, ApiError> {
    let Path(name) = name.map_err(|_| {
        ApiError::new(
            ProblemKind::InvalidName,
            "the name in the path is not UTF-8",
        )
        .with_parameter("name")
    })?;
    let name: NodeName = name.parse().map_err(|_| {
        let start: String = name.chars().take(64).collect();
        let detail = format!(
            "{start:?} is not a node name: lower-case letters, digits, '-' and '.', at most 253 of them"
        );
        ApiError::new(ProblemKind::InvalidName, detail).with_parameter("name")
    })?;
    fleet.nodes.get(&name).map(AsRef::as_ref).ok_or_else(|| {
        let detail = format!(
            "no agent of a node {name} has reported; /api/v1/nodes?search={name} lists the nodes there are"
        );
        ApiError::new(ProblemKind::UnknownNode, detail).with_parameter("name")
    })
}

/// Decodes the inventory of `node`.
pub(super) fn inventory(node: &Node) -> Result<Inventory, ApiError> {
    status(node).map(|status| status.inventory)
}

fn status(node: &Node) -> Result<NodeStatus, ApiError> {
    if !node.has_agent() {
        return Ok(NodeStatus::without_agent());
    }
    status::decode(&node.parts).map_err(|error| {
        let detail = format!(
            "the status of {} cannot be read: {}",
            node.name,
            chain(&error)
        );
        ApiError::new(ProblemKind::Internal, detail)
    })
}

/// Types of devices over the whole fleet: those that the reader may see
#[utoipa::path(
    get,
    path = "/api/v1/types",
    tag = "fleet",
    responses(
        (status = 200, description = "All types, ordered by name", body = TypeList),
        (status = 400, description = "There are no parameters", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn types(
    State(api): State<Api>,
    ReaderVisibility(sight): ReaderVisibility,
    pairs: QueryPairs,
) -> Result<Json<TypeList>, ApiError> {
    pairs.expect_empty()?;
    let fleet = api.view.listed();
    let all = api.view.types(&fleet, api.view.clock().now());
    Ok(Json(TypeList {
        starting: { api.view.startup() }.map(|now| now.document(&sight)),
        ..rows::types(&fleet, &all, &sight.types)
    }))
}
