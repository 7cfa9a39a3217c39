//! REST API: the fleet as JSON, the OpenAPI document, metrics and probes.
//!
//! The document at `/openapi.json` is generated from the declarations of the routes, so it cannot name a path that does
//! not exist. Every error is a problem document (RFC 9457). Each response is based on one immutable snapshot of the
//! fleet. The aggregator serves this router beside that of the pages.

mod attachment;
mod audit;
pub mod availability;
mod body;
mod budgets;
mod changes;
mod cost;
mod creation;
mod demand;
mod estimates;
mod events;
mod focus;
mod matching;
pub mod metrics;
mod nodes;
mod openapi;
mod plans;
mod policies;
mod probes;
mod problem;
mod profile_events;
mod profile_filter;
mod profiles;
mod response_cache;
pub mod rows;
mod series;
mod slo;
mod sse;
mod strict_json;
mod token_cipher;
mod usage;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderValue, Method, Uri, Version, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use bytes::Bytes;
use octavo_access::guard::AccessError;
use octavo_store::availability::Counter;
use octavo_store::offers::PartitionCache;
use octavo_store::view::FleetView;
use prometheus_client::registry::Registry;
use tokio::sync::{Semaphore, watch};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::probes::Readiness;
use self::problem::{ApiError, ProblemKind};
use self::response_cache::ResponseCache;
use self::token_cipher::TokenCipher;

/// Dependencies of the API.
#[derive(Debug, Clone)]
pub struct ApiContext {
    /// The fleet.
    pub view: FleetView,
    /// Availability counts.
    pub availability: Counter,
    /// Metrics for `/metrics`; see [`metrics::register`] for those of the fleet.
    pub registry: Arc<Registry>,
    /// Whether all servers are up.
    pub ready: watch::Receiver<bool>,
    /// Maximum number of event streams. Each uses a task and, while its reader is slow, an old snapshot of the fleet.
    pub max_streams: usize,
}

/// State shared by the handlers.
#[derive(Debug, Clone)]
struct Api {
    view: FleetView,
    availability: Counter,
    registry: Arc<Registry>,
    readiness: Readiness,
    streams: Arc<Semaphore>,
    /// Cache of partitions by node, for matching.
    partitions: Arc<PartitionCache>,
    seal: Arc<TokenCipher>,
    answers: Arc<ResponseCache>,
    /// Serialized OpenAPI document; empty in the instance that generates it.
    document: Bytes,
}

/// Routes under `/api`, `/openapi.json`, `/healthz`, `/readyz` and `/metrics` only, so that the router can be merged
/// with that of the pages.
pub fn router(context: ApiContext) -> Router {
    let (router, mut document) = OpenApiRouter::with_openapi(openapi::Document::openapi())
        .routes(routes!(nodes::list))
        .routes(routes!(nodes::get))
        .routes(routes!(changes::changes))
        .routes(routes!(plans::layouts))
        .routes(routes!(plans::plan))
        .routes(routes!(plans::plan_nodes))
        .routes(routes!(policies::policies))
        .routes(routes!(policies::policy))
        .routes(routes!(policies::policy_plan))
        .routes(routes!(policies::plan_policy))
        .routes(routes!(nodes::types))
        .routes(routes!(nodes::cluster_nodes))
        .routes(routes!(matching::find))
        .routes(routes!(estimates::estimate))
        .routes(routes!(slo::meet))
        .routes(routes!(usage::usage))
        .routes(routes!(availability::availability))
        .routes(routes!(demand::demand))
        .routes(routes!(profiles::hardware_profiles))
        .routes(routes!(profiles::profiles, creation::create))
        .routes(routes!(profiles::profile))
        .routes(routes!(profiles::profile_in_namespace))
        .routes(routes!(profiles::profile_draft, profiles::posted_draft))
        .routes(routes!(profile_events::follow_profiles))
        .routes(routes!(usage::summary))
        .routes(routes!(cost::cost))
        .routes(routes!(focus::focus))
        .routes(routes!(audit::audit))
        .routes(routes!(budgets::budgets))
        .routes(routes!(series::series))
        .routes(routes!(events::follow))
        .routes(routes!(openapi::document))
        .routes(routes!(probes::live))
        .routes(routes!(probes::ready))
        .routes(routes!(metrics::scrape))
        .split_for_parts();
    openapi::merge_flattened_fields(&mut document);
    openapi::allow_additional_fields(&mut document);
    openapi::document_access_refusals(&mut document);
    openapi::document_server_refusals(&mut document);
    let api = Api {
        readiness: Readiness::new(&context),
        view: context.view,
        availability: context.availability,
        registry: context.registry,
        partitions: Arc::default(),
        streams: Arc::new(Semaphore::new(context.max_streams.min(Semaphore::MAX_PERMITS))),
        seal: Arc::new(TokenCipher::new()),
        answers: Arc::default(),
        document: serde_json::to_vec(&document).unwrap_or_default().into(),
    };
    router
        .route("/api/v1/policies/plan", get(policies::get_named_plan))
        .method_not_allowed_fallback(method_not_allowed)
        .route("/api", any(not_found))
        .route("/api/", any(not_found))
        .route("/api/{*rest}", any(not_found))
        .layer(from_fn(finalize_response))
        .with_state(api)
}

/// Routes for connections beyond the limit: the probes, and 503 for everything else.
pub fn probes(context: &ApiContext) -> Router {
    Router::new()
        .route("/healthz", get(probes::live))
        .route("/readyz", get(probes::ready))
        .fallback(too_many_connections)
        .layer(from_fn(finalize_response))
        .with_state(Readiness::new(context))
}

/// Routes of a standby: the probes, and 503 for everything else.
pub fn standby() -> Router {
    Router::new()
        .route("/healthz", get(probes::live))
        .route("/readyz", get(probes::ready_standby))
        .fallback(refuse_as_standby)
        .layer(from_fn(finalize_response))
}

async fn refuse_as_standby() -> ApiError {
    let detail = "this replica is a standby and has no data; connect to the Service instead";
    ApiError::new(ProblemKind::NotReady, detail)
}

async fn too_many_connections(version: Version) -> Response {
    let detail = "the limit of --max-connections is reached; retry later";
    let mut response = ApiError::new(ProblemKind::TooManyConnections, detail).into_response();
    if version < Version::HTTP_2 {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    }
    response
}

async fn method_not_allowed(method: Method) -> ApiError {
    let detail = format!(
        "method {method} is not supported for this path; the Allow header lists the supported methods"
    );
    ApiError::new(ProblemKind::MethodNotAllowed, detail)
}

async fn not_found(uri: Uri) -> ApiError {
    let path: String = uri.path().chars().take(200).collect();
    let detail = format!("path {path} does not exist; /openapi.json lists all paths");
    ApiError::new(ProblemKind::NotFound, detail)
}

/// Problem document for a refused request.
pub(super) fn refusal_response(refused: &AccessError, path: &str) -> Response {
    let mut response = ApiError::from(refused).at_path(path).into_response();
    if let Some(allowed) = refused.allowed_methods() {
        let headers = response.headers_mut();
        headers.insert(header::ALLOW, HeaderValue::from_static(allowed));
    }
    set_cache_headers(response)
}

/// Adds the path to problem documents, and headers against content sniffing and caching to every response.
async fn finalize_response(request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let mut response = next.run(request).await;
    if let Some(failure) = response.extensions_mut().remove::<ApiError>() {
        let allow = response.headers().get(header::ALLOW).cloned();
        let close = response.headers().get(header::CONNECTION).cloned();
        response = failure.at_path(&path).into_response();
        for (name, value) in [(header::ALLOW, allow), (header::CONNECTION, close)] {
            if let Some(value) = value {
                response.headers_mut().insert(name, value);
            }
        }
    }
    set_cache_headers(response)
}

fn set_cache_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // A response with an ETag may be stored for revalidation.
    let keep = if headers.contains_key(header::ETAG) { "no-cache" } else { "no-store" };
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(keep));
    response
}
