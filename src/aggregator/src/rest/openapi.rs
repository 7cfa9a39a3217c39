//! The OpenAPI document, and the schemas of enumerated parameters.

use axum::extract::State as Shared;
use axum::http::header;
use axum::response::IntoResponse;
use octavo_fleet::access::{Method, RouteRule};
use octavo_fleet::api::Event;
use octavo_fleet::problem::Problem;
use octavo_fleet::summary::{NodeState, Sharing};
use octavo_history::{Metric, Span, Step};
use octavo_ledger::CostOrder;
use octavo_model::reason::Reason;
use octavo_planner::plan::{Disruption, Policy};
use octavo_planner::reconcile::ApplyState;
use octavo_store::history::Grouping;
use octavo_store::query::{DEFAULT_LIMIT, MAX_LIMIT, NO_STATE, Sort, SortKey};
use octavo_store::usage::Sort as UsageSort;
use utoipa::openapi::schema::{AdditionalProperties, Object, ObjectBuilder, Schema, Type};
use utoipa::openapi::{
    ContentBuilder, KnownFormat, Ref, RefOr, Response, ResponseBuilder, SchemaFormat,
};
use utoipa::{OpenApi, PartialSchema, ToSchema};

use super::Api;

/// The document without its paths, which the router adds.
#[derive(Debug, OpenApi)]
#[openapi(
    info(
        title = "Octavo",
        description = "Accelerators of a Kubernetes fleet: nodes, types, availability and usage. New versions add fields \
            and values but never remove or change them."
    ),
    tags(
        (name = "fleet", description = "Nodes, types, availability and usage of the fleet"),
        (name = "profiles", description = "Hardware profiles: matching nodes, available capacity and findings"),
        (name = "operations", description = "Health and metrics of the aggregator")
    ),
    components(schemas(Problem, Event, State, SharingWord, LayoutStateWord, SortWord, UsageSortWord, CostSortWord, Limit, DisruptionWord, MetricWord, WindowWord, StepWord, GroupingWord))
)]
pub(super) struct Document;

/// Merges the parts of objects with flattened fields into one object, as clients see it.
pub(super) fn merge_flattened_fields(document: &mut utoipa::openapi::OpenApi) {
    let components = document.components.iter_mut();
    for schema in components.flat_map(|components| components.schemas.values_mut()) {
        if let RefOr::T(Schema::AllOf(parts)) = schema
            && let description = parts.description.clone()
            && let Some(mut object) = merged(schema)
        {
            object.description = description;
            *schema = RefOr::T(Schema::Object(object));
        }
    }
}

/// Returns an object with the fields of all parts of `schema`; `None` if a part is a reference or not an object.
fn merged(schema: &RefOr<Schema>) -> Option<Object> {
    match schema {
        RefOr::T(Schema::Object(object)) => Some(object.clone()),
        RefOr::T(Schema::AllOf(parts)) => {
            let parts = parts.items.iter().map(merged);
            let parts = parts.collect::<Option<Vec<Object>>>()?;
            parts.into_iter().reduce(|mut object, part| {
                object.properties.extend(part.properties);
                object.required.extend(part.required);
                object
            })
        }
        RefOr::T(_) | RefOr::Ref(_) => None,
    }
}

/// Removes `additionalProperties: false` from the schemas. Octavo parses inventories strictly, but clients of the API
/// must accept new fields.
pub(super) fn allow_additional_fields(document: &mut utoipa::openapi::OpenApi) {
    let components = document.components.iter_mut();
    for schema in components.flat_map(|components| components.schemas.values_mut()) {
        if let RefOr::T(Schema::Object(object)) = schema
            && let Some(AdditionalProperties::FreeForm(false)) =
                object.additional_properties.as_deref()
        {
            object.additional_properties = None;
        }
    }
}

/// Adds the refusals that are possible for every path, and those of request bodies.
pub(super) fn document_server_refusals(document: &mut utoipa::openapi::OpenApi) {
    for item in document.paths.paths.values_mut() {
        for operation in [&mut item.get, &mut item.post].into_iter().flatten() {
            let all = &mut operation.responses.responses;
            let of_body = BODY_REFUSALS.iter().filter(|_| operation.request_body.is_some());
            for &(status, words) in SERVER_REFUSALS.iter().chain(of_body) {
                let response = RefOr::T(refusal(words, None));
                all.entry(status.to_owned()).or_insert(response);
            }
            let response = ResponseBuilder::new()
                .description("Request line and headers exceed 16 KiB")
                .build();
            all.insert("431".to_owned(), RefOr::T(response));
        }
    }
}

/// Adds the refusals of authentication and authorization to the operations that require them: 401, 403, 503.
pub(super) fn document_access_refusals(document: &mut utoipa::openapi::OpenApi) {
    for (path, item) in &mut document.paths.paths {
        let both = [(Method::Read, &mut item.get), (Method::Post, &mut item.post)];
        for (method, operation) in both {
            let Some(operation) = operation else { continue };
            let asks =
                RouteRule::find(method, path).is_none_or(|row| row.review(path, None).is_some());
            if !asks {
                continue;
            }
            let all = &mut operation.responses.responses;
            for (status, words) in REFUSALS {
                let before = match all.remove(status) {
                    Some(RefOr::T(response)) => Some(response),
                    Some(RefOr::Ref(_)) | None => None,
                };
                all.insert(status.to_owned(), RefOr::T(refusal(words, before)));
            }
        }
    }
}

/// Refusals that are possible for every path.
const SERVER_REFUSALS: [(&str, &str); 2] = [
    ("405", "Method not supported; the `Allow` header lists the supported methods"),
    ("421", "Unknown host name in the request"),
];

/// Refusals of a request body.
const BODY_REFUSALS: [(&str, &str); 3] = [
    ("408", "The request body arrived too slowly"),
    ("413", "The request body is too large"),
    ("415", "The request body is not JSON or is compressed"),
];

/// Refusals of authentication and authorization.
const REFUSALS: [(&str, &str); 3] = [
    ("401", "Missing or rejected credentials"),
    ("403", "Missing permission, or a cross-site request"),
    ("503", "Permission cannot be checked because the API server did not respond"),
];

/// Problem response, merged with another meaning of the same status.
fn refusal(words: &str, before: Option<Response>) -> Response {
    let Some(mut response) = before else {
        let problem = Ref::from_schema_name(Problem::name());
        let problem = ContentBuilder::new().schema(Some(problem)).build();
        return ResponseBuilder::new()
            .description(words)
            .content("application/problem+json", problem)
            .build();
    };
    let words = words.chars().next().map(|first| {
        let rest = words.strip_prefix(first).unwrap_or_default();
        format!("{}{rest}", first.to_lowercase())
    });
    response.description = format!("{}, or {}", response.description, words.unwrap_or_default());
    response
}

/// OpenAPI document of this API
#[utoipa::path(
    get,
    path = "/openapi.json",
    tag = "operations",
    responses((status = 200, description = "The OpenAPI document", body = Object, content_type = "application/json"))
)]
pub(super) async fn document(Shared(api): Shared<Api>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], api.document)
}

/// Declares the types of enumerated parameters, each with its schema.
macro_rules! schemas {
    ($($(#[$doc:meta])* $name:ident: $schema:expr;)*) => {$(
        $(#[$doc])*
        pub(super) struct $name;

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                RefOr::T(Schema::Object($schema.build()))
            }
        }

        impl ToSchema for $name {}
    )*};
}

schemas! {
    /// State of a node.
    State: words(NodeState::ALL.map(NodeState::as_str));
    /// Sharing mode of a node.
    SharingWord: words(Sharing::ALL.map(Sharing::as_str));
    /// Layout state of a node.
    LayoutStateWord: words([NO_STATE].into_iter().chain(ApplyState::REASONS.map(Reason::as_str)));
    /// Order of nodes.
    SortWord: sort_words();
    /// Order of holders in the usage list.
    UsageSortWord: words(UsageSort::ALL.map(UsageSort::as_str))
        .default(Some(UsageSort::default().as_str().into()));
    /// Order of groups of usage and cost.
    CostSortWord: words(CostOrder::ALL.map(CostOrder::as_str))
        .default(Some(CostOrder::Cost.as_str().into()));
    /// Metric of a series.
    MetricWord: words(Metric::ALL.map(Metric::as_str))
        .default(Some(Metric::default().as_str().into()));
    /// Time range of a series.
    WindowWord: words(Span::ALL.map(Span::as_str)).default(Some(Span::default().as_str().into()));
    /// Time between two values of a series.
    StepWord: words(Step::ALL.map(Step::as_str));
    /// Grouping of devices into series.
    GroupingWord: words(Grouping::ALL.map(Grouping::as_str))
        .default(Some(Grouping::default().as_str().into()));
    /// Number of nodes per page.
    Limit: ObjectBuilder::new()
        .schema_type(Type::Integer)
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int32)))
        .minimum(Some(1))
        .maximum(Some(MAX_LIMIT))
        .default(Some(DEFAULT_LIMIT.into()));
    /// Disruption caused by a change of MIG mode.
    DisruptionWord: words(Disruption::ALL.map(Disruption::as_str))
        .default(Some(Policy::default().max_disruption.as_str().into()));
}

fn words<'a>(words: impl IntoIterator<Item = &'a str>) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words))
}

fn sort_words() -> ObjectBuilder {
    let both = |key| [false, true].map(|descending| Sort { key, descending }.to_string());
    let all: Vec<String> = SortKey::ALL.iter().copied().flat_map(both).collect();
    words(all.iter().map(String::as_str)).default(Some(Sort::default().to_string().into()))
}
