//! Creation of a hardware profile in the cluster, for authorized users.

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use octavo_access::creation::{
    CREATION_DISABLED, CreateError, CreateRequest, ProfileCreator, Requester,
};
use octavo_documents::api::{API_VERSION, Problem};
use octavo_documents::hardware_profiles::create_request::{ProfileMade, ProfileOrder, field_path};
use octavo_documents::hardware_profiles::object;
use octavo_kube::hardware_profiles::{
    Applied, DryRun, ErrorCategory, Existing, Outcome, WriteError, key,
};
use octavo_toolkit::error::chain;

use super::Api;
use super::body::JsonBody;
use super::nodes::QueryPairs;
use super::problem::{ApiError, ProblemKind};
use super::profiles::draft_failure;

/// Make a hardware profile in the cluster, or let the API server check it
#[utoipa::path(
    post,
    path = "/api/v1/profiles",
    tag = "profiles",
    params(
        ("dryRun" = Option<String>, Query, description = "`All`: the API server checks it as if it were made, and nothing is", example = "All")
    ),
    request_body(content = ProfileOrder, description = "What the profile shall be; what is not said is drafted from what the nodes have"),
    responses(
        (status = 200, description = "It could be made; or it was there already, and was put in the place of another or is as it shall be", body = ProfileMade),
        (status = 201, description = "It is made", body = ProfileMade),
        (status = 400, description = "The document or a parameter cannot be meant; `parameter` names the field", body = Problem, content_type = "application/problem+json"),
        (status = 403, description = "You may not make one there, or nothing is made by this aggregator", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "There is one of this name; `detail` says whose, and what would differ", body = Problem, content_type = "application/problem+json"),
        (status = 408, description = "The document arrived too slowly", body = Problem, content_type = "application/problem+json"),
        (status = 413, description = "The document is too long", body = Problem, content_type = "application/problem+json"),
        (status = 415, description = "The document is not JSON, or compressed", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "No profile can be made of these nodes so, or the cluster does not take it", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "No cluster is followed now, or the API server gives no answer", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn create(
    State(api): State<Api>,
    maker: Option<Extension<ProfileCreator>>,
    who: Requester,
    QueryPairs(pairs): QueryPairs,
    JsonBody(asked): JsonBody<ProfileOrder>,
) -> Result<Response, ApiError> {
    let Some(Extension(maker)) = maker else {
        return Err(ApiError::new(ProblemKind::CreationOff, CREATION_DISABLED));
    };
    let dry = dry_run(&pairs)?;
    let wrong = |error: octavo_documents::hardware_profiles::create_request::InvalidFieldError| {
        ApiError::new(ProblemKind::InvalidBody, error.problem).with_parameter(error.field)
    };
    let (wish, reason) = (
        asked.draft_request().map_err(wrong)?,
        asked.reason().map_err(wrong)?,
    );
    let drafted = api.view.profiles().draft(api.view.fleet(), wish).await;
    let drafted = drafted.map_err(|why| draft_failure(why, field_path, "tolerations"))?;
    let existing = if asked.replace {
        Existing::Replace
    } else {
        Existing::Keep
    };
    let order = CreateRequest {
        object: object(&drafted.profile),
        reason,
        existing,
        dry_run: dry,
    };
    let made = maker
        .create(&who, order)
        .await
        .map_err(|why| failure(why, dry))?;
    let notes = drafted.notes.iter().map(ToString::to_string).collect();
    Ok(answer(made, dry, notes))
}

fn answer(made: Applied, dry: DryRun, notes: Vec<String>) -> Response {
    let is_new = made.outcome == Outcome::Created && dry == DryRun::No;
    let key = key(&made.object);
    let document = ProfileMade {
        api_version: API_VERSION.to_owned(),
        kind: "ProfileMade".to_owned(),
        outcome: made.outcome.word().to_owned(),
        dry_run: dry == DryRun::Server,
        profile: made.object,
        differences: made.differences,
        notes,
    };
    let status = if is_new {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
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
            let detail = format!("{value:?} is not All");
            Err(ApiError::new(ProblemKind::InvalidParameter, detail).with_parameter("dryRun"))
        }
        [(name, _)] if name != "dryRun" => Err(ApiError::unknown_parameter(name, "dryRun")),
        _ => {
            let detail = "dryRun alone is a parameter, once; the rest is in the document";
            Err(ApiError::new(ProblemKind::InvalidParameter, detail).with_parameter("dryRun"))
        }
    }
}

fn failure(why: CreateError, dry: DryRun) -> ApiError {
    let unknown = if why.may_have_succeeded(dry) {
        "; it is not known whether it was made"
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
            let kind = match error.trouble() {
                ErrorCategory::Conflict => ProblemKind::ProfileExists,
                ErrorCategory::Rejected => ProblemKind::Rejected,
                ErrorCategory::Unavailable => ProblemKind::ApiServerUnavailable,
            };
            let hint = match &error {
                WriteError::Taken { ours: true, .. } => {
                    "\nSay `replace: true` to put the new one in its place, or give it another name."
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
