//! Nodes and types.

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use octavo_access::visibility::ReaderVisibility;
use octavo_fleet::access::Visibility;
use octavo_fleet::api::{ClusterNodeList, NodeDetail, NodeList, TypeList};
use octavo_fleet::cluster::ClusterNode;
use octavo_fleet::problem::Problem;
use octavo_model::API_VERSION;
use octavo_model::id::NodeName;
use octavo_store::fleet::{Fleet, Node};
use octavo_store::query::{self, Query};
use octavo_stream::status::NodeStatus;
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
            let detail = format!("unknown parameter {name:?}; this path has no parameters");
            Err(ApiError::new(ProblemKind::UnknownParameter, detail).with_parameter(&name))
        })
    }
}

/// List nodes
#[utoipa::path(
    get,
    path = "/api/v1/nodes",
    tag = "fleet",
    params(
        ("search" = Option<String>, Query, description = "Part of the node name", example = "gpu-07"),
        ("type" = Option<Vec<String>>, Query, style = Form, explode = false, description = "Types; the node has at least one device of one of them. `unknown`: devices of unknown type", example = json!(["nvidia-h200-141gb"])),
        ("state" = Option<Vec<openapi::State>>, Query, style = Form, explode = false, description = "State of the node"),
        ("problem" = Option<Vec<String>>, Query, style = Form, explode = false, description = "Words of problems; the node has at least one of them: a reason that needs attention, a health state of a device, or `drain`", example = json!(["failing"])),
        ("sharing" = Option<Vec<openapi::SharingWord>>, Query, style = Form, explode = false, description = "Sharing mode of the node's devices"),
        ("layout" = Option<Vec<String>>, Query, style = Form, explode = false, description = "Names of layouts; the node's desired layout is one of them", example = json!(["serving"])),
        ("layoutState" = Option<Vec<openapi::LayoutStateWord>>, Query, style = Form, explode = false, description = "Layout state of the node; `none`: no layout applies to its devices"),
        ("selector" = Option<String>, Query, description = "Kubernetes label selector, applied to the labels that the agent reports", example = "octavo.dev/type in (nvidia-h200-141gb,nvidia-h100-80gb),!octavo.dev/mig-capable"),
        ("sort" = Option<openapi::SortWord>, Query, description = "Sort key; nodes with equal keys are sorted by name"),
        ("limit" = Option<openapi::Limit>, Query, description = "Maximum number of nodes on a page"),
        ("continue" = Option<String>, Query, description = "Value of `continue` from the previous page; filters and sort order must be the same")
    ),
    responses(
        (status = 200, description = "Page of nodes", body = NodeList),
        (status = 400, description = "Unknown or invalid parameter", body = Problem, content_type = "application/problem+json")
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
        cluster: api.view.cluster_name().map(ToString::to_string),
        revision: fleet.revision,
        total: page.total,
        starting: api.view.startup(),
        continue_token: page.next.as_ref().map(ToString::to_string),
        items: items.map(|node| rows::row(node, clock, now)).collect(),
    }))
}

/// Get a node with its inventory, layout, allocations and usage
#[utoipa::path(
    get,
    path = "/api/v1/nodes/{name}",
    tag = "fleet",
    params(("name" = String, Path, description = "Name of the Kubernetes node", example = "gpu-07")),
    responses(
        (status = 200, description = "The node", body = NodeDetail),
        (status = 400, description = "Invalid node name", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "Node not found", body = Problem, content_type = "application/problem+json"),
        (status = 500, description = "The stored status of the node cannot be decoded", body = Problem, content_type = "application/problem+json")
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
    let detail = rows::detail(node, status, clock, clock.now());
    Ok(Json(detail))
}

/// Finds the node named in the path.
pub(super) fn find_node(
    fleet: &Fleet,
    name: Result<Path<String>, PathRejection>,
) -> Result<&Node, ApiError> {
    let Path(name) = name.map_err(|_| {
        ApiError::new(ProblemKind::InvalidName, "the name in the path is not UTF-8")
            .with_parameter("name")
    })?;
    let name: NodeName = name.parse().map_err(|_| {
        let start: String = name.chars().take(64).collect();
        let detail = format!(
            "{start:?} is not a valid node name: use at most 253 lowercase letters, digits, '-' and '.'"
        );
        ApiError::new(ProblemKind::InvalidName, detail).with_parameter("name")
    })?;
    fleet.nodes.get(&name).map(AsRef::as_ref).ok_or_else(|| {
        let detail = format!(
            "no agent has reported node {name}; /api/v1/nodes?search={name} lists similar names"
        );
        ApiError::new(ProblemKind::UnknownNode, detail).with_parameter("name")
    })
}

/// Decodes the status of `node`.
pub(super) fn status(node: &Node) -> Result<NodeStatus, ApiError> {
    node.status().map_err(|error| {
        let detail = format!("cannot decode the status of node {}: {}", node.name, chain(&error));
        ApiError::new(ProblemKind::Internal, detail)
    })
}

/// List the nodes with accelerators as the API server reports them
#[utoipa::path(
    get,
    path = "/api/v1/cluster-nodes",
    tag = "fleet",
    responses(
        (status = 200, description = "Labels, taints and resources of the nodes in `/api/v1/nodes`, ordered by name", body = ClusterNodeList),
        (status = 400, description = "Unknown parameter; this path has none", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "Cluster state not available", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn cluster_nodes(
    State(api): State<Api>,
    pairs: QueryPairs,
) -> Result<Json<ClusterNodeList>, ApiError> {
    pairs.expect_empty()?;
    let profiles = api.view.profiles();
    let cluster = profiles.cluster();
    let cluster = cluster.map_err(|why| ApiError::new(ProblemKind::NoCluster, why))?;
    let fleet = api.view.listed();
    let is_listed = |node: &&ClusterNode| {
        let name: Option<NodeName> = node.name.parse().ok();
        name.is_some_and(|name| fleet.nodes.get(&name).is_some())
    };
    Ok(Json(ClusterNodeList {
        api_version: API_VERSION.to_owned(),
        kind: "ClusterNodeList".to_owned(),
        // Readers of this path may list nodes.
        notice: profiles.cluster_notice(&Visibility::everything()),
        items: cluster.nodes.values().map(AsRef::as_ref).filter(is_listed).cloned().collect(),
    }))
}

/// List the accelerator types of the fleet
#[utoipa::path(
    get,
    path = "/api/v1/types",
    tag = "fleet",
    responses(
        (status = 200, description = "All types, ordered by name", body = TypeList),
        (status = 400, description = "Unknown parameter; this path has none", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn types(
    State(api): State<Api>,
    ReaderVisibility(visibility): ReaderVisibility,
    pairs: QueryPairs,
) -> Result<Json<TypeList>, ApiError> {
    pairs.expect_empty()?;
    let fleet = api.view.listed();
    let all = api.view.types(&fleet, api.view.clock().now());
    Ok(Json(TypeList {
        cluster: api.view.cluster_name().map(ToString::to_string),
        starting: { api.view.startup() }.map(|now| now.visible_to(&visibility)),
        ..rows::types(&fleet, &all, &visibility.types)
    }))
}
