//! Whether the process lives, and whether it serves.

use axum::extract::State;

use super::Api;
use super::problem::{Failure, Kind};
use crate::wire::api::Problem;

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

/// Whether all servers are up
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "operations",
    responses(
        (status = 200, description = "They are", body = String, content_type = "text/plain; charset=utf-8", example = "ok\n"),
        (status = 503, description = "Not yet", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn ready(State(api): State<Api>) -> Result<&'static str, Failure> {
    if *api.ready.borrow() {
        Ok("ok\n")
    } else {
        let detail = "not all servers are up, or the process is ending";
        Err(Failure::new(Kind::NotReady, detail))
    }
}
