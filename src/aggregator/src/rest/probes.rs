//! Liveness and readiness probes.

use std::time::Duration;

use axum::extract::{FromRef, State};
use octavo_documents::api::Problem;
use octavo_store::clock::Moment;
use octavo_store::view::View;
use tokio::sync::watch;

use super::problem::{ApiError, ProblemKind};
use super::{Api, ApiContext};

/// State that decides about readiness.
#[derive(Debug, Clone)]
pub(super) struct Readiness {
    servers: watch::Receiver<bool>,
    view: View,
}

/// Maximum delay of readiness by the start of the fleet: most agents have reconnected by then, and there may be none.
const READY_AFTER: Duration = Duration::from_secs(15);

impl Readiness {
    pub(super) fn new(context: &ApiContext) -> Self {
        Self {
            servers: context.ready.clone(),
            view: context.view.clone(),
        }
    }
}

impl FromRef<Api> for Readiness {
    fn from_ref(api: &Api) -> Self {
        api.readiness.clone()
    }
}

/// Whether the process lives
#[utoipa::path(
    get,
    path = "/healthz",
    tag = "operations",
    responses((status = 200, description = "It does", body = String, content_type = "text/plain; charset=utf-8", example = "ok\n"))
)]
pub(super) async fn live() -> &'static str {
    "ok\n"
}

/// Whether all servers are up, and the fleet has returned after a start
///
/// The wait for the fleet ends 15 s after the start, whatever agents do.
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "operations",
    responses(
        (status = 200, description = "They are, and it has", body = String, content_type = "text/plain; charset=utf-8", example = "ok\n"),
        (status = 503, description = "Not yet", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn ready(State(readiness): State<Readiness>) -> Result<&'static str, ApiError> {
    if !*readiness.servers.borrow() {
        let detail = "not all servers are up, or the process is ending";
        return Err(ApiError::new(ProblemKind::NotReady, detail));
    }
    let since = Moment::default().age(readiness.view.clock().now());
    match readiness.view.startup() {
        // The probe is not authenticated, so it does not reveal the number of nodes.
        Some(_) if since < READY_AFTER => {
            let detail = "the aggregator is starting: not all nodes have reported";
            Err(ApiError::new(ProblemKind::NotReady, detail))
        }
        Some(_) | None => Ok("ok\n"),
    }
}
