//! Liveness and readiness probes.

use std::time::Duration;

use axum::extract::{FromRef, State};
use octavo_fleet::problem::Problem;
use octavo_store::clock::Moment;
use octavo_store::view::FleetView;
use tokio::sync::watch;

use super::problem::{ApiError, ProblemKind};
use super::{Api, ApiContext};

/// State that decides about readiness.
#[derive(Debug, Clone)]
pub(super) struct Readiness {
    servers: watch::Receiver<bool>,
    view: FleetView,
}

/// Maximum delay of readiness by the start of the fleet: most agents have reconnected by then, and there may be none.
const READY_AFTER: Duration = Duration::from_secs(15);

impl Readiness {
    pub(super) fn new(context: &ApiContext) -> Self {
        Self { servers: context.ready.clone(), view: context.view.clone() }
    }
}

impl FromRef<Api> for Readiness {
    fn from_ref(api: &Api) -> Self {
        api.readiness.clone()
    }
}

/// Liveness probe
#[utoipa::path(
    get,
    path = "/healthz",
    tag = "operations",
    responses((status = 200, description = "The process is running", body = String, content_type = "text/plain; charset=utf-8", example = "ok\n"))
)]
pub(super) async fn live() -> &'static str {
    "ok\n"
}

/// Readiness probe: all servers run and, after a start, the nodes have reported again
///
/// The aggregator waits at most 15 s after its start for the nodes.
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "operations",
    responses(
        (status = 200, description = "Ready", body = String, content_type = "text/plain; charset=utf-8", example = "ok\n"),
        (status = 503, description = "Not ready", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn ready(State(readiness): State<Readiness>) -> Result<&'static str, ApiError> {
    if !*readiness.servers.borrow() {
        let detail = "the aggregator is not ready: it is starting its servers or shutting down";
        return Err(ApiError::new(ProblemKind::NotReady, detail));
    }
    let since = Moment::default().age(readiness.view.clock().now());
    match readiness.view.startup() {
        // The probe is not authenticated, so it does not reveal the number of nodes.
        Some(_) if since < READY_AFTER => {
            let detail = "the aggregator is starting and not all nodes have reported yet";
            Err(ApiError::new(ProblemKind::NotReady, detail))
        }
        Some(_) | None => Ok("ok\n"),
    }
}

/// Readiness probe of a standby. It is ready to become the leader, and a rollout must not wait for that.
pub(super) async fn ready_standby() -> &'static str {
    "standby\n"
}
