//! Hardware profiles: reachable nodes, available devices, findings, and drafts of new ones.

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use octavo_access::visibility::ReaderVisibility;
use octavo_files::hardware_profiles::yaml;
use octavo_fleet::access::Visibility;
use octavo_fleet::hardware_profile::create_request::{ProfileOrder, field_path};
use octavo_fleet::hardware_profile::document::{
    HardwareProfileList, ProfileDetail, ProfileDraft, ProfileList, ProfileRow,
};
use octavo_fleet::hardware_profile::object::object;
use octavo_fleet::hardware_profile::{
    CountError, CountOverride, Draft, DraftError, ProfileAnnotations,
};
use octavo_fleet::problem::Problem;
use octavo_model::API_VERSION;
use octavo_store::profiles::{ProfileDraftError, ProfileReport};

use super::Api;
use super::body::JsonBody;
use super::nodes::QueryPairs;
use super::problem::{ApiError, ProblemKind};
use super::profile_filter::ProfileFilter;
use super::response_cache::{ResponseKey, TaggedDocument};

/// List the enabled hardware profiles with their availability
#[utoipa::path(
    get,
    path = "/api/hardware-profiles",
    tag = "profiles",
    responses(
        (status = 200, description = "Enabled profiles, ordered by namespace and name", body = HardwareProfileList),
        (status = 304, description = "Not modified since the version in `If-None-Match`"),
        (status = 400, description = "Unknown parameter; this path has none", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn hardware_profiles(
    State(api): State<Api>,
    ReaderVisibility(visibility): ReaderVisibility,
    pairs: QueryPairs,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    pairs.expect_empty()?;
    let report = current_report(&api).await;
    let key = ResponseKey {
        path: "/api/hardware-profiles",
        filter: ProfileFilter::default(),
        types: visibility.types.clone(),
        notice: api.view.profiles_notice(&visibility),
    };
    let answer = api.answers.get_or_create(&report, key, |key| {
        let rows = report.visible_to(&visibility).map(|(row, _)| row);
        let enabled = rows.filter(|row| row.enabled);
        TaggedDocument::serialize(&HardwareProfileList {
            api_version: API_VERSION.to_owned(),
            kind: "HardwareProfileList".to_owned(),
            notice: key.notice.clone(),
            items: enabled.map(ProfileRow::short).collect(),
        })
    })?;
    Ok(answer.into_response_for(&headers))
}

/// List all hardware profiles with their matching nodes and findings
#[utoipa::path(
    get,
    path = "/api/v1/profiles",
    tag = "profiles",
    params(
        ("type" = Option<String>, Query, description = "Type of the profiles", example = "nvidia-h200-141gb"),
        ("namespace" = Option<String>, Query, description = "Namespace of the profiles", example = "opendatahub")
    ),
    responses(
        (status = 200, description = "All profiles, ordered by namespace and name", body = ProfileList),
        (status = 304, description = "Not modified since the version in `If-None-Match`"),
        (status = 400, description = "Unknown or invalid parameter", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn profiles(
    State(api): State<Api>,
    ReaderVisibility(visibility): ReaderVisibility,
    QueryPairs(pairs): QueryPairs,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let [type_name, namespace] = single_values(pairs, ["type", "namespace"])?;
    let report = current_report(&api).await;
    let key = ResponseKey {
        path: "/api/v1/profiles",
        filter: ProfileFilter { type_name, namespace },
        types: visibility.types.clone(),
        notice: api.view.profiles_notice(&visibility),
    };
    let answer = api.answers.get_or_create(&report, key, |key| {
        let rows = report.visible_to(&visibility).map(|(row, _)| row);
        let rows = rows.filter(|row| key.filter.matches(row));
        TaggedDocument::serialize(&ProfileList {
            api_version: API_VERSION.to_owned(),
            kind: "ProfileList".to_owned(),
            source: report.source.into(),
            notice: key.notice.clone(),
            items: rows.cloned().collect(),
        })
    })?;
    Ok(answer.into_response_for(&headers))
}

/// Get a hardware profile by name
#[utoipa::path(
    get,
    path = "/api/v1/profiles/{name}",
    tag = "profiles",
    params(("name" = String, Path, description = "Name of the profile", example = "large-gpu")),
    responses(
        (status = 200, description = "The profile", body = ProfileDetail),
        (status = 304, description = "Not modified since the version in `If-None-Match`"),
        (status = 400, description = "The name exists in several namespaces, or the request has parameters", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "Profile not found", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn profile(
    State(api): State<Api>,
    ReaderVisibility(visibility): ReaderVisibility,
    pairs: QueryPairs,
    headers: HeaderMap,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiError> {
    pairs.expect_empty()?;
    let Path(name) = name.map_err(|_| invalid_utf8())?;
    respond_with_profile((&api, &visibility), &headers, (None, &name)).await
}

/// Get a hardware profile by namespace and name
#[utoipa::path(
    get,
    path = "/api/v1/profiles/{namespace}/{name}",
    tag = "profiles",
    params(
        ("namespace" = String, Path, description = "Namespace of the profile", example = "opendatahub"),
        ("name" = String, Path, description = "Name of the profile", example = "large-gpu")
    ),
    responses(
        (status = 200, description = "The profile", body = ProfileDetail),
        (status = 304, description = "Not modified since the version in `If-None-Match`"),
        (status = 400, description = "Unknown parameter; this path has none", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "Profile not found", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn profile_in_namespace(
    State(api): State<Api>,
    ReaderVisibility(visibility): ReaderVisibility,
    pairs: QueryPairs,
    headers: HeaderMap,
    key: Result<Path<(String, String)>, PathRejection>,
) -> Result<Response, ApiError> {
    pairs.expect_empty()?;
    let Path((namespace, name)) = key.map_err(|_| invalid_utf8())?;
    respond_with_profile((&api, &visibility), &headers, (Some(&namespace), &name)).await
}

/// Draft a hardware profile for nodes or a type; nothing is created
#[utoipa::path(
    get,
    path = "/api/v1/profile-draft",
    tag = "profiles",
    params(
        ("nodes" = Option<String>, Query, description = "Comma-separated node names", example = "gpu-07,gpu-08"),
        ("type" = Option<String>, Query, description = "Type; selects all nodes with it, or those of `nodes` that have it", example = "nvidia-h200-141gb"),
        ("resource" = Option<String>, Query, description = "Resource that the profile requests; required if the nodes offer several", example = "nvidia.com/mig-3g.71gb"),
        ("name" = Option<String>, Query, description = "Name of the profile; default: derived from the type", example = "large-gpu"),
        ("namespace" = Option<String>, Query, description = "Namespace; default: the namespace of the existing profiles if they share one", example = "opendatahub"),
        ("displayName" = Option<String>, Query, description = "Display name", example = "Large GPU"),
        ("counts" = Option<String>, Query, description = "Comma-separated counts as `RESOURCE:MIN:DEFAULT:MAX`; omitted values are taken from the draft", example = "nvidia.com/gpu:1:2:4"),
        ("tolerate" = Option<String>, Query, description = "Comma-separated taints to tolerate; `none`: no tolerations", example = "nvidia.com/gpu=true:NoSchedule")
    ),
    responses(
        (status = 200, description = "The drafted object, with notes for review", body = ProfileDraft),
        (status = 400, description = "Missing, unknown or invalid parameter", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "No profile can be created for these nodes", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "Cluster state not available", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn profile_draft(
    State(api): State<Api>,
    QueryPairs(pairs): QueryPairs,
) -> Result<Json<ProfileDraft>, ApiError> {
    let request = to_request(pairs)?.draft_request().map_err(|error| {
        ApiError::new(ProblemKind::InvalidParameter, error.problem).with_parameter(error.field)
    })?;
    let drafted = api.view.profiles().draft(api.view.fleet(), request).await;
    let of_counts = |_: &CountError| "counts".to_owned();
    let drafted = drafted.map_err(|why| draft_failure(why, of_counts, "tolerate"))?;
    Ok(Json(document(drafted)))
}

/// Draft a hardware profile from a request body; nothing is created
#[utoipa::path(
    post,
    path = "/api/v1/profile-draft",
    tag = "profiles",
    request_body(content = ProfileOrder, description = "Same fields as `POST /api/v1/profiles`; `reason` and `replace` are ignored"),
    responses(
        (status = 200, description = "The drafted object, with notes for review", body = ProfileDraft),
        (status = 400, description = "Invalid body, or the request has parameters; `parameter` names the field", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "No profile can be created for these nodes", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "Cluster state not available", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn posted_draft(
    State(api): State<Api>,
    pairs: QueryPairs,
    JsonBody(order): JsonBody<ProfileOrder>,
) -> Result<Json<ProfileDraft>, ApiError> {
    pairs.expect_empty()?;
    let request = order.draft_request()?;
    let drafted = api.view.profiles().draft(api.view.fleet(), request).await;
    let drafted = drafted.map_err(|why| draft_failure(why, field_path, "tolerations"))?;
    Ok(Json(document(drafted)))
}

fn document(drafted: Draft) -> ProfileDraft {
    let profile = object(&drafted.profile);
    ProfileDraft {
        api_version: API_VERSION.to_owned(),
        kind: "ProfileDraft".to_owned(),
        yaml: yaml(&profile),
        profile,
        nodes: drafted.nodes,
        notes: drafted.notes.iter().map(ToString::to_string).collect(),
    }
}

async fn current_report(api: &Api) -> std::sync::Arc<ProfileReport> {
    api.view.profiles().recent_report(api.view.fleet()).await
}

async fn respond_with_profile(
    (api, visibility): (&Api, &Visibility),
    headers: &HeaderMap,
    (namespace, name): (Option<&str>, &str),
) -> Result<Response, ApiError> {
    let report = current_report(api).await;
    let found: Vec<&(ProfileRow, ProfileAnnotations)> = report
        .visible_to(visibility)
        .filter(|(row, _)| row.name == name && namespace.is_none_or(|of| row.namespace == of))
        .collect();
    let (row, annotations) = match found.as_slice() {
        [] => {
            let name: String = name.chars().take(64).collect();
            let detail =
                format!("hardware profile {name:?} not found; /api/v1/profiles lists all profiles");
            return Err(ApiError::new(ProblemKind::UnknownProfile, detail).with_parameter("name"));
        }
        // If a namespace has profiles of both kinds, the current kind sorts first and is returned.
        [first, others @ ..]
            if others.iter().all(|(row, _)| row.namespace == first.0.namespace) =>
        {
            first
        }
        all => {
            let namespaces: Vec<&str> = all.iter().map(|(row, _)| row.namespace.as_str()).collect();
            let detail = format!(
                "several namespaces have a profile with this name: {}; use /api/v1/profiles/NAMESPACE/NAME",
                namespaces.join(", ")
            );
            return Err(ApiError::new(ProblemKind::AmbiguousProfile, detail).with_parameter("name"));
        }
    };
    let answer = TaggedDocument::serialize(&ProfileDetail {
        api_version: API_VERSION.to_owned(),
        kind: "Profile".to_owned(),
        notice: api.view.profiles_notice(visibility),
        row: row.clone(),
        created_by: annotations.by.clone(),
        reason: annotations.reason.clone(),
    })?;
    Ok(answer.into_response_for(headers))
}

fn invalid_utf8() -> ApiError {
    ApiError::new(ProblemKind::UnknownProfile, "the name in the path is not UTF-8")
        .with_parameter("name")
}

/// Values of parameters that allow one value each; an empty value counts as absent.
pub(super) fn single_values<const N: usize>(
    pairs: Vec<(String, String)>,
    names: [&str; N],
) -> Result<[Option<String>; N], ApiError> {
    let mut values = [const { None }; N];
    for (name, value) in pairs {
        let known = names.iter().position(|known| *known == name);
        let Some(field) = known.and_then(|at| values.get_mut(at)) else {
            return Err(ApiError::unknown_parameter(&name, &names.join(", ")));
        };
        if field.replace(value).is_some() {
            let detail = format!("the parameter {name} can be given only once");
            return Err(ApiError::new(ProblemKind::InvalidParameter, detail).with_parameter(&name));
        }
    }
    Ok(values.map(|value| value.filter(|value| !value.is_empty())))
}

/// Converts the parameters to the equivalent request document.
fn to_request(pairs: Vec<(String, String)>) -> Result<ProfileOrder, ApiError> {
    let names =
        ["nodes", "type", "resource", "name", "namespace", "displayName", "counts", "tolerate"];
    let [nodes, type_name, resource, name, namespace, display_name, counts, tolerate] =
        single_values(pairs, names)?;
    let listed = |text: Option<String>| -> Option<Vec<String>> {
        let text = text?;
        let all = text.split(',').map(str::trim);
        let all = all.filter(|one| !one.is_empty());
        Some(all.map(str::to_owned).collect())
    };
    let counts = listed(counts).unwrap_or_default().into_iter().map(|text| {
        let counts: Result<CountOverride, _> = text.parse();
        counts.map_err(|error| {
            ApiError::new(ProblemKind::InvalidParameter, error.to_string()).with_parameter("counts")
        })
    });
    Ok(ProfileOrder {
        nodes: listed(nodes).unwrap_or_default(),
        type_name,
        resource,
        name,
        namespace,
        display_name,
        counts: counts.collect::<Result<_, _>>()?,
        tolerations: listed(tolerate),
        ..ProfileOrder::default()
    })
}

/// Error of drafting a profile. `at` names the field of an invalid count, and `taints` the field of tolerated taints.
pub(super) fn draft_failure(
    why: ProfileDraftError,
    at: impl Fn(&CountError) -> String,
    taints: &str,
) -> ApiError {
    match why {
        ProfileDraftError::NoCluster(why) => ApiError::new(ProblemKind::NoCluster, why),
        ProfileDraftError::Refused(DraftError::Counts(error)) => {
            ApiError::new(ProblemKind::UnsuitableNodes, error.to_string())
                .with_parameter(&at(&error))
        }
        ProfileDraftError::Refused(why @ DraftError::NoSuchTaint { .. }) => {
            ApiError::new(ProblemKind::UnsuitableNodes, why.to_string()).with_parameter(taints)
        }
        ProfileDraftError::Refused(why) => {
            ApiError::new(ProblemKind::UnsuitableNodes, why.to_string())
        }
    }
}
