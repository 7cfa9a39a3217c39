//! Accelerator policies, and previews of their roll-out. Requests do not change anything.

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use octavo_fleet::problem::Problem;
use octavo_model::id::NodeName;
use octavo_policy::crd::{GROUP, KIND, VERSION};
use octavo_policy::document::{PolicyDetail, PolicyList, PolicyManifest, PolicyPlanDocument};
use octavo_policy::validation::problems;
use octavo_policy::{Policy, PolicySpec};
use octavo_store::policies::{PolicyView, documents};
use serde_json::Value;

use super::Api;
use super::body::JsonBody;
use super::nodes::QueryPairs;
use super::problem::{ApiError, ProblemKind};

/// Reason why no policy can be planned.
const DISABLED: &str =
    "policies are disabled; start the aggregator with --follow-cluster and --policies";

/// List the accelerator policies with their progress
#[utoipa::path(
    get,
    path = "/api/v1/policies",
    tag = "fleet",
    responses(
        (status = 200, description = "All policies, ordered by name", body = PolicyList),
        (status = 400, description = "Unknown parameter; this path has none", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn policies(
    State(api): State<Api>,
    pairs: QueryPairs,
) -> Result<Json<PolicyList>, ApiError> {
    pairs.expect_empty()?;
    Ok(Json(documents::list(api.view.policies())))
}

/// Get an accelerator policy with its nodes
#[utoipa::path(
    get,
    path = "/api/v1/policies/{name}",
    tag = "fleet",
    params(("name" = String, Path, description = "Name of the policy", example = "inference")),
    responses(
        (status = 200, description = "Spec, status and nodes of the policy", body = PolicyDetail),
        (status = 400, description = "Unknown parameter; this path has none", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "Policy not found", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn policy(
    State(api): State<Api>,
    pairs: QueryPairs,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<PolicyDetail>, ApiError> {
    pairs.expect_empty()?;
    let name = name.map(|Path(name)| name).unwrap_or_default();
    detail(&api, &name).map(Json)
}

/// Serves the policy with the name `plan`, whose path is also that of [`plan_policy`].
pub(super) async fn get_named_plan(
    State(api): State<Api>,
    pairs: QueryPairs,
) -> Result<Json<PolicyDetail>, ApiError> {
    pairs.expect_empty()?;
    detail(&api, "plan").map(Json)
}

/// Plan the next waves of an accelerator policy (dry run)
#[utoipa::path(
    get,
    path = "/api/v1/policies/{name}/plan",
    tag = "fleet",
    params(("name" = String, Path, description = "Name of the policy", example = "inference")),
    responses(
        (status = 200, description = "Waves of the roll-out, and the effect of the layout on their nodes", body = PolicyPlanDocument),
        (status = 400, description = "Unknown parameter; this path has none", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "Policy not found", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn policy_plan(
    State(api): State<Api>,
    pairs: QueryPairs,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<PolicyPlanDocument>, ApiError> {
    pairs.expect_empty()?;
    let name = name.map(|Path(name)| name).unwrap_or_default();
    let view = api.view.policies().ok_or_else(|| unknown(&name))?.clone();
    let policy = view.known().all.get(&name).map(|policy| Policy::clone(policy));
    let policy = policy.ok_or_else(|| unknown(&name))?;
    preview(&api, view, policy).await
}

/// Plan an accelerator policy that the cluster does not have yet, or a change of one (dry run)
#[utoipa::path(
    post,
    path = "/api/v1/policies/plan",
    tag = "fleet",
    request_body(content = PolicyManifest, description = "The policy, as in its manifest"),
    responses(
        (status = 200, description = "Waves of the roll-out, and the effect of the layout on their nodes", body = PolicyPlanDocument),
        (status = 400, description = "Invalid policy; `parameter` names the field", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "Policies are disabled, or the cluster is unknown", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn plan_policy(
    State(api): State<Api>,
    pairs: QueryPairs,
    JsonBody(document): JsonBody<Value>,
) -> Result<Json<PolicyPlanDocument>, ApiError> {
    pairs.expect_empty()?;
    let manifest = manifest(&document)?;
    let no_cluster = |why: &str| ApiError::new(ProblemKind::NoCluster, why);
    let view = api.view.policies().ok_or_else(|| no_cluster(DISABLED))?.clone();
    if view.cluster().current_at.is_none() {
        return Err(no_cluster("the nodes of the cluster are not known yet"));
    }
    let policy = view.after(manifest);
    preview(&api, view, policy).await
}

async fn preview(
    api: &Api,
    view: PolicyView,
    policy: Policy,
) -> Result<Json<PolicyPlanDocument>, ApiError> {
    let (fleet, now) = (api.view.fleet(), api.view.clock().now());
    let job = api.view.plan(move |layouts| view.preview(&policy, layouts, (&fleet, now)));
    let failed = |_panicked| ApiError::new(ProblemKind::Internal, "the policy cannot be planned");
    job.await.map(Json).map_err(failed)
}

fn detail(api: &Api, name: &str) -> Result<PolicyDetail, ApiError> {
    let fleet = api.view.fleet();
    let fleet = (&fleet, api.view.clock().now());
    let found = api.view.policies().and_then(|view| view.detail(name, fleet));
    found.ok_or_else(|| unknown(name))
}

fn unknown(name: &str) -> ApiError {
    let name: String = name.chars().take(64).collect();
    let detail = format!("policy {name:?} not found; /api/v1/policies lists all policies");
    ApiError::new(ProblemKind::UnknownPolicy, detail).with_parameter("name")
}

fn invalid(field: &str, why: impl Into<String>) -> ApiError {
    ApiError::new(ProblemKind::InvalidBody, why).with_parameter(field)
}

/// Reads a manifest as strictly as the API server.
fn manifest(document: &Value) -> Result<PolicyManifest, ApiError> {
    let manifest: PolicyManifest = serde_path_to_error::deserialize(document)
        .map_err(|error| invalid(&error.path().to_string(), error.inner().to_string()))?;
    if manifest.api_version != format!("{GROUP}/{VERSION}") {
        return Err(invalid("apiVersion", format!("use {GROUP}/{VERSION}")));
    }
    if manifest.kind != KIND {
        return Err(invalid("kind", format!("use {KIND}")));
    }
    // Names of nodes and of policies have the same syntax.
    if let Err(error) = manifest.metadata.name.parse::<NodeName>() {
        return Err(invalid("metadata.name", error.to_string()));
    }
    let given = document.get("spec").unwrap_or(&Value::Null);
    if let Some(field) = unknown_field(given, &manifest.spec) {
        return Err(invalid(&field, "unknown field"));
    }
    match problems(&manifest.spec).as_slice() {
        [] => Ok(manifest),
        [first, others @ ..] => {
            let others: Vec<String> = others.iter().map(|one| format!("; {one}")).collect();
            Err(invalid(&first.field, format!("{}{}", first.message, others.concat())))
        }
    }
}

/// Path of a field that the spec does not have: reading ignored it.
fn unknown_field(given: &Value, spec: &PolicySpec) -> Option<String> {
    let read = serde_json::to_value(spec).unwrap_or_default();
    difference(given, &read, "spec")
}

/// Path of a value that has no counterpart. Empty values are not written.
fn difference(given: &Value, read: &Value, path: &str) -> Option<String> {
    match (given, read) {
        (Value::Object(given), Value::Object(read)) => given.iter().find_map(|(key, value)| {
            let path = format!("{path}.{key}");
            match read.get(key) {
                Some(read) => difference(value, read, &path),
                None => (!is_empty(value)).then_some(path),
            }
        }),
        (Value::Array(given), Value::Array(read)) => {
            given.iter().zip(read).enumerate().find_map(|(index, (given, read))| {
                difference(given, read, &format!("{path}[{index}]"))
            })
        }
        (Value::Array(_), Value::Object(_)) => Some(path.to_owned()),
        _ => None,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(all) => all.is_empty(),
        Value::Object(all) => all.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}
