//! Plans of layouts. Requests do not change anything.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use octavo_files::config_files::LayoutLookupError;
use octavo_fleet::api::LayoutNames;
use octavo_fleet::node_plan::{NodePlanList, NodePlanTotals};
use octavo_fleet::problem::Problem;
use octavo_model::API_VERSION;
use octavo_model::text::MAX_WORD_BYTES;
use octavo_planner::plan::document::{PlanDocument, PlanInputs};
use octavo_planner::plan::{Disruption, Policy};
use octavo_store::dry_run::{self, MAX_PLANNED_NODES, dry_run};
use octavo_store::fleet::Node;
use octavo_store::query::{self, Query};

use super::nodes::{QueryPairs, find_node, status};
use super::openapi::{self, DisruptionWord};
use super::problem::{ApiError, ProblemKind};
use super::profiles::single_values;
use super::{Api, rows};

/// List the layouts that can be planned for a node
#[utoipa::path(
    get,
    path = "/api/v1/nodes/{name}/layouts",
    tag = "fleet",
    params(("name" = String, Path, description = "Name of the Kubernetes node", example = "gpu-07")),
    responses(
        (status = 200, description = "Names of the layouts", body = LayoutNames),
        (status = 400, description = "Invalid node name", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "Node not found", body = Problem, content_type = "application/problem+json"),
        (status = 500, description = "The stored status of the node cannot be decoded", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn layouts(
    State(api): State<Api>,
    pairs: QueryPairs,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<LayoutNames>, ApiError> {
    pairs.expect_empty()?;
    let fleet = api.view.fleet();
    let node = find_node(&fleet, name)?;
    let status = status(node)?;
    let current = api.view.layouts();
    let names = current.names(&status.inventory);
    Ok(Json(rows::layouts(node, names, current.notice)))
}

/// Plan a layout for a node (dry run)
#[utoipa::path(
    get,
    path = "/api/v1/nodes/{name}/plan",
    tag = "fleet",
    params(
        ("name" = String, Path, description = "Name of the Kubernetes node", example = "gpu-07"),
        ("layout" = String, Query, description = "Name of a layout from `/api/v1/nodes/{name}/layouts`", example = "all-balanced"),
        ("allow" = Option<DisruptionWord>, Query, description = "Maximum disruption of a MIG mode change; a plan that needs more is `blocked`")
    ),
    responses(
        (status = 200, description = "The plan; `outcome` shows whether it can be executed", body = PlanDocument),
        (status = 400, description = "Missing, unknown or invalid parameter", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "Node or layout not found", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The layout does not fit this node", body = Problem, content_type = "application/problem+json"),
        (status = 500, description = "The stored status of the node cannot be decoded", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn plan(
    State(api): State<Api>,
    QueryPairs(pairs): QueryPairs,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<PlanDocument>, ApiError> {
    let (layout, policy) = parse(pairs)?;
    let fleet = api.view.fleet();
    let node = find_node(&fleet, name)?;
    let status = status(node)?;
    let current = api.view.layouts();
    let run = dry_run(&current, &layout, &status, policy);
    let mut run = run.map_err(|error| refusal(&error, node))?;
    run.warnings.extend(current.notice);
    if node.freshness.is_stale(api.view.clock().now()) {
        run.warnings
            .push("the node is stale: the plan is based on its last reported state".to_owned());
    }
    Ok(Json(PlanDocument::new(
        &PlanInputs {
            inventory: &status.inventory,
            node: Some(node.name.as_str()),
            layout: &layout,
            targets: &run.targets,
            holders: &run.holders,
            warnings: &run.warnings,
            // Interrupted changes are part of the node's status.
            interrupted: &BTreeMap::new(),
        },
        &run.plan,
    )))
}

/// Plan a layout for all nodes of a selection (dry run)
///
/// The other parameters select and order nodes as in `/api/v1/nodes`. At most 100 nodes are planned per page. A dry run
/// changes nothing.
#[utoipa::path(
    get,
    path = "/api/v1/layouts/{name}/plan",
    tag = "fleet",
    params(
        ("name" = String, Path, description = "Name of a layout of the file, or of one that is generated for the devices of nodes", example = "all-balanced"),
        ("search" = Option<String>, Query, description = "Part of the node name", example = "gpu-07"),
        ("type" = Option<Vec<String>>, Query, style = Form, explode = false, description = "Types; the node has at least one device of one of them. `unknown`: devices of unknown type", example = json!(["nvidia-h200-141gb"])),
        ("state" = Option<Vec<openapi::State>>, Query, style = Form, explode = false, description = "State of the node"),
        ("problem" = Option<Vec<String>>, Query, style = Form, explode = false, description = "Words of problems; the node has at least one of them: a reason that needs attention, a health state of a device, or `drain`", example = json!(["failing"])),
        ("sharing" = Option<Vec<openapi::SharingWord>>, Query, style = Form, explode = false, description = "Sharing mode of the node's devices"),
        ("layout" = Option<Vec<String>>, Query, style = Form, explode = false, description = "Names of layouts; the node's desired layout is one of them", example = json!(["serving"])),
        ("layoutState" = Option<Vec<openapi::LayoutStateWord>>, Query, style = Form, explode = false, description = "Layout state of the node; `none`: no layout applies to its devices"),
        ("selector" = Option<String>, Query, description = "Kubernetes label selector, applied to the labels that the agent reports"),
        ("sort" = Option<openapi::SortWord>, Query, description = "Sort key; nodes with equal keys are sorted by name"),
        ("limit" = Option<openapi::Limit>, Query, description = "Maximum number of nodes on a page, which has at most 100"),
        ("continue" = Option<String>, Query, description = "Value of `continue` from the previous page; the other parameters must be the same")
    ),
    responses(
        (status = 200, description = "Effect of the layout on each node of the page", body = NodePlanList),
        (status = 400, description = "Unknown or invalid parameter", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn plan_nodes(
    State(api): State<Api>,
    QueryPairs(pairs): QueryPairs,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<NodePlanList>, ApiError> {
    let layout = layout_name(name)?;
    let query = Query::parse(pairs)?;
    let query = Query { limit: query.limit.min(MAX_PLANNED_NODES), ..query };
    let (fleet, now) = (api.view.listed(), api.view.clock().now());
    let page = query::find(&fleet, &query, now);
    let (name, nodes) = (layout.clone(), page.items);
    let planned = api.view.plan(move |layouts| {
        (dry_run::plan_nodes(layouts, &name, &nodes, now), layouts.notice.clone())
    });
    let (items, notice) = planned.await.map_err(|error| {
        ApiError::new(ProblemKind::Internal, format!("the dry run failed: {error}"))
    })?;
    Ok(Json(NodePlanList {
        api_version: API_VERSION.to_owned(),
        kind: "NodePlanList".to_owned(),
        revision: fleet.revision,
        layout,
        total: page.total,
        continue_token: page.next.as_ref().map(ToString::to_string),
        notice,
        totals: NodePlanTotals::of_rows(&items),
        items,
    }))
}

/// Decodes the name of a layout in the path.
fn layout_name(name: Result<Path<String>, PathRejection>) -> Result<String, ApiError> {
    let name = name.ok().map(|Path(name)| name).filter(|name| name.len() <= MAX_WORD_BYTES);
    name.ok_or_else(|| {
        let detail = format!(
            "the name of the layout in the path is not UTF-8 or exceeds {MAX_WORD_BYTES} bytes"
        );
        ApiError::new(ProblemKind::InvalidParameter, detail).with_parameter("name")
    })
}

fn refusal(error: &LayoutLookupError, node: &Node) -> ApiError {
    match error {
        LayoutLookupError::NoSuchLayout { .. } => {
            let detail = format!("{error}; /api/v1/nodes/{}/layouts lists all layouts", node.name);
            ApiError::new(ProblemKind::UnknownLayout, detail).with_parameter("layout")
        }
        LayoutLookupError::ExactInstances(_) | LayoutLookupError::Unusable(_) => {
            ApiError::new(ProblemKind::UnknownLayout, error.to_string()).with_parameter("layout")
        }
        LayoutLookupError::DoesNotFit { .. } => {
            ApiError::new(ProblemKind::UnsuitableLayout, error.to_string()).with_parameter("layout")
        }
    }
}

/// Parses the parameters: name of the layout, and policy.
fn parse(pairs: Vec<(String, String)>) -> Result<(String, Policy), ApiError> {
    let [layout, allow] = single_values(pairs, ["layout", "allow"])?;
    let layout = layout.ok_or_else(|| {
        let detail =
            "the parameter layout is missing; set layout=NAME with a name from the path that ends with /layouts";
        ApiError::new(ProblemKind::InvalidParameter, detail).with_parameter("layout")
    })?;
    let policy = match allow {
        None => Policy::default(),
        Some(word) => Policy { max_disruption: disruption(&word)? },
    };
    Ok((layout, policy))
}

fn disruption(word: &str) -> Result<Disruption, ApiError> {
    let known = Disruption::ALL.into_iter().find(|one| one.as_str() == word);
    known.ok_or_else(|| {
        let words = Disruption::ALL.map(Disruption::as_str).join(", ");
        let word: String = word.chars().take(64).collect();
        let detail = format!("the parameter allow cannot be {word:?}; valid values: {words}");
        ApiError::new(ProblemKind::InvalidParameter, detail).with_parameter("allow")
    })
}
