//! Plans of layouts. Requests do not change anything.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use octavo_documents::api::{LayoutNames, Problem};
use octavo_documents::plan::{self, Document};
use octavo_files::config_files::LayoutLookupError;
use octavo_planner::plan::{Disruption, Policy};
use octavo_store::dry_run::dry_run;
use octavo_store::fleet::Node;

use super::nodes::{QueryPairs, find_node, inventory};
use super::openapi::DisruptionWord;
use super::problem::{ApiError, ProblemKind};
use super::{Api, rows};

/// Layouts whose plan can be asked for
#[utoipa::path(
    get,
    path = "/api/v1/nodes/{name}/layouts",
    tag = "fleet",
    params(("name" = String, Path, description = "The Kubernetes node's name", example = "gpu-07")),
    responses(
        (status = 200, description = "Their names", body = LayoutNames),
        (status = 400, description = "This cannot be a node's name", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is no such node", body = Problem, content_type = "application/problem+json"),
        (status = 500, description = "What is known of it cannot be read", body = Problem, content_type = "application/problem+json")
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
    let inventory = inventory(node)?;
    let current = api.view.layouts();
    let names = current.names(&inventory);
    Ok(Json(rows::layouts(node, names, current.notice)))
}

/// What a layout would do to a node
#[utoipa::path(
    get,
    path = "/api/v1/nodes/{name}/plan",
    tag = "fleet",
    params(
        ("name" = String, Path, description = "The Kubernetes node's name", example = "gpu-07"),
        ("layout" = String, Query, description = "A name that `/api/v1/nodes/{name}/layouts` lists", example = "all-balanced"),
        ("allow" = Option<DisruptionWord>, Query, description = "The most that a change of MIG mode may cost; more is `blocked`")
    ),
    responses(
        (status = 200, description = "The plan; `outcome` says whether it can be carried out", body = Document),
        (status = 400, description = "A parameter is missing, not known or cannot be as given", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is no such node, or no such layout", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The layout cannot be meant for this node", body = Problem, content_type = "application/problem+json"),
        (status = 500, description = "What is known of the node cannot be read", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn plan(
    State(api): State<Api>,
    QueryPairs(pairs): QueryPairs,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<Document>, ApiError> {
    let asked = PlanParameters::read(pairs)?;
    let fleet = api.view.fleet();
    let node = find_node(&fleet, name)?;
    let inventory = inventory(node)?;
    let current = api.view.layouts();
    let run = dry_run(&current, &asked.layout, &inventory, asked.policy);
    let mut run = run.map_err(|error| refusal(&error, node))?;
    run.warnings.extend(current.notice);
    if node.freshness.is_stale(api.view.clock().now()) {
        run.warnings.push(
            "the node is stale: this is a plan from what it had when it was last heard of"
                .to_owned(),
        );
    }
    Ok(Json(plan::document(
        &plan::PlanInputs {
            inventory: &inventory,
            node: Some(node.name.as_str()),
            layout: &asked.layout,
            targets: &run.targets,
            holders: &[],
            warnings: &run.warnings,
            // Interrupted changes are part of the node's status.
            interrupted: &BTreeMap::new(),
        },
        &run.plan,
    )))
}

fn refusal(error: &LayoutLookupError, node: &Node) -> ApiError {
    match error {
        LayoutLookupError::NoSuchLayout { .. } => {
            let detail = format!(
                "{error}; /api/v1/nodes/{}/layouts lists them all",
                node.name
            );
            ApiError::new(ProblemKind::UnknownLayout, detail).with_parameter("layout")
        }
        LayoutLookupError::Unusable(_) => {
            ApiError::new(ProblemKind::UnknownLayout, error.to_string()).with_parameter("layout")
        }
        LayoutLookupError::DoesNotFit { .. } => {
            ApiError::new(ProblemKind::UnsuitableLayout, error.to_string()).with_parameter("layout")
        }
    }
}

/// Parsed parameters.
#[derive(Debug)]
struct PlanParameters {
    layout: String,
    policy: Policy,
}

impl PlanParameters {
    fn read(pairs: Vec<(String, String)>) -> Result<Self, ApiError> {
        let (mut layout, mut allow) = (None, None);
        for (name, value) in pairs {
            let field = match name.as_str() {
                "layout" => &mut layout,
                "allow" => &mut allow,
                _ => return Err(ApiError::unknown_parameter(&name, "layout, allow")),
            };
            if field.replace(value).is_some() {
                let detail = format!("{name} is given more than once");
                return Err(
                    ApiError::new(ProblemKind::InvalidParameter, detail).with_parameter(&name)
                );
            }
        }
        let layout = layout.filter(|layout| !layout.is_empty()).ok_or_else(|| {
            let detail =
                "which layout? say layout=NAME; the path that ends with /layouts lists the names";
            ApiError::new(ProblemKind::InvalidParameter, detail).with_parameter("layout")
        })?;
        let policy = match allow.filter(|allow| !allow.is_empty()) {
            None => Policy::default(),
            Some(word) => Policy {
                max_disruption: disruption(&word)?,
            },
        };
        Ok(Self { layout, policy })
    }
}

fn disruption(word: &str) -> Result<Disruption, ApiError> {
    let known = Disruption::ALL.into_iter().find(|one| one.as_str() == word);
    known.ok_or_else(|| {
        let words = Disruption::ALL.map(Disruption::as_str).join(", ");
        let word: String = word.chars().take(64).collect();
        let detail = format!("{word:?} is none of {words}");
        ApiError::new(ProblemKind::InvalidParameter, detail).with_parameter("allow")
    })
}
