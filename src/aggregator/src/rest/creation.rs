//! Creation of a hardware profile in the cluster, for authorized users.

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use octavo_access::creation::{
    CREATION_DISABLED, CreateError, CreateRequest, ProfileCreator, Requester,
};
use octavo_fleet::hardware_profile::create_request::{ProfileOrder, field_path};
use octavo_fleet::hardware_profile::document::ProfileMade;
use octavo_fleet::hardware_profile::object::object;
use octavo_fleet::problem::Problem;
use octavo_kube::hardware_profiles::{
    Applied, DryRun, ErrorCategory, Existing, Outcome, WriteError, key,
};
use octavo_model::API_VERSION;
use octavo_toolkit::error::chain;

use super::Api;
use super::body::JsonBody;
use super::nodes::QueryPairs;
use super::problem::{ApiError, ProblemKind};
use super::profiles::draft_failure;

/// Create a hardware profile in the cluster, or validate it with a dry run
#[utoipa::path(
    post,
    path = "/api/v1/profiles",
    tag = "profiles",
    params(
        ("dryRun" = Option<String>, Query, description = "`All`: the API server validates the request without creating the profile", example = "All")
    ),
    request_body(content = ProfileOrder, description = "Fields of the profile; missing fields are derived from the nodes"),
    responses(
        (status = 200, description = "The dry run succeeded, or the existing profile was replaced or is already up to date", body = ProfileMade),
        (status = 201, description = "The profile was created", body = ProfileMade),
        (status = 400, description = "Invalid body or parameter; `parameter` names the field", body = Problem, content_type = "application/problem+json"),
        (status = 403, description = "You cannot create profiles in this namespace, or creation is disabled", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "A profile with this name exists; `detail` shows its owner and the differences", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "No profile can be created for these nodes, or the cluster rejected it", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "Cluster state is not available, or the API server did not respond", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn create(
    State(api): State<Api>,
    creator: Option<Extension<ProfileCreator>>,
    who: Requester,
    QueryPairs(pairs): QueryPairs,
    JsonBody(request): JsonBody<ProfileOrder>,
) -> Result<Response, ApiError> {
    let Some(Extension(creator)) = creator else {
        return Err(ApiError::new(ProblemKind::CreationOff, CREATION_DISABLED));
    };
    let dry = dry_run(&pairs)?;
    let (draft, reason) = (request.draft_request()?, request.reason()?);
    let drafted = api.view.profiles().draft(api.view.fleet(), draft).await;
    let drafted = drafted.map_err(|why| draft_failure(why, field_path, "tolerations"))?;
    let existing = if request.replace { Existing::Replace } else { Existing::Keep };
    let order = CreateRequest { object: object(&drafted.profile), reason, existing, dry_run: dry };
    let made = creator.create(&who, order).await.map_err(|why| failure(why, dry))?;
    let notes = drafted.notes.iter().map(ToString::to_string).collect();
    Ok(answer(made, dry, notes))
}

fn answer(made: Applied, dry: DryRun, notes: Vec<String>) -> Response {
    let is_new = made.outcome == Outcome::Created && dry == DryRun::No;
    let key = key(&made.object);
    let document = ProfileMade {
        api_version: API_VERSION.to_owned(),
        kind: "ProfileMade".to_owned(),
        outcome: made.outcome.reason().to_owned(),
        dry_run: dry == DryRun::Server,
        profile: made.object,
        differences: made.differences,
        notes,
    };
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let mut response = (status, Json(document)).into_response();
    let place = HeaderValue::try_from(format!("/api/v1/profiles/{key}"));
    if let (true, Ok(place)) = (is_new, place) {
        response.headers_mut().insert(header::LOCATION, place);
    }
    response
}

fn dry_run(pairs: &[(String, String)]) -> Result<DryRun, ApiError> {
    match pairs {
        [] => Ok(DryRun::No),
        [(name, value)] if name == "dryRun" && value == "All" => Ok(DryRun::Server),
        [(name, value)] if name == "dryRun" => {
            let value: String = value.chars().take(64).collect();
            let detail =
                format!("the parameter dryRun cannot be {value:?}; the only valid value is All");
            Err(ApiError::new(ProblemKind::InvalidParameter, detail).with_parameter("dryRun"))
        }
        [(name, _)] if name != "dryRun" => Err(ApiError::unknown_parameter(name, "dryRun")),
        _ => {
            let detail = "dryRun can be given once and is the only query parameter; send all other fields in the body";
            Err(ApiError::new(ProblemKind::InvalidParameter, detail).with_parameter("dryRun"))
        }
    }
}

fn failure(why: CreateError, dry: DryRun) -> ApiError {
    let unknown = if why.may_have_succeeded(dry) {
        "; it is unknown whether the profile was created: check it before you retry"
    } else {
        ""
    };
    match why {
        CreateError::NoNamespace => {
            ApiError::new(ProblemKind::InvalidBody, why.to_string()).with_parameter("namespace")
        }
        CreateError::NotLocal(_) => ApiError::new(ProblemKind::CrossSite, why.to_string()),
        CreateError::Unauthorized(refused) => ApiError::from(&refused),
        CreateError::Busy => ApiError::new(ProblemKind::Busy, why.to_string()),
        CreateError::Panicked => ApiError::new(ProblemKind::Internal, format!("{why}{unknown}")),
        CreateError::Write(error) => {
            let kind = match error.category() {
                ErrorCategory::Conflict => ProblemKind::ProfileExists,
                ErrorCategory::Rejected => ProblemKind::Rejected,
                ErrorCategory::Unavailable => ProblemKind::ApiServerUnavailable,
            };
            let hint = match &error {
                WriteError::Taken { ours: true, .. } => {
                    "\nSet `replace: true` to replace it, or choose another name."
                }
                WriteError::Taken { .. }
                | WriteError::NoKind
                | WriteError::TimedOut(_)
                | WriteError::Refused { .. } => unknown,
            };
            ApiError::new(kind, format!("{}{hint}", chain(&error)))
        }
    }
}
