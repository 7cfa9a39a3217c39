//! Access control of every route.

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use octavo_access::guard::{AccessError, Guard, RefusalResponse, check};

use super::rest;

/// Returns a router whose requests pass `guard` first.
pub fn guarded(router: Router, guard: Guard) -> Router {
    router.layer(from_fn_with_state((guard, refusal as RefusalResponse), check))
}

/// Returns a problem document for paths of the API, and a page otherwise.
fn refusal(refused: &AccessError, path: &str) -> Response {
    if is_api_path(path) {
        rest::refusal_response(refused, path)
    } else {
        octavo_pages::refusal_page(refused)
    }
}

/// Returns whether clients of `path` expect problem documents rather than pages.
fn is_api_path(path: &str) -> bool {
    let of_api = path.strip_prefix("/api");
    of_api.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        || matches!(path, "/metrics" | "/openapi.json" | "/healthz" | "/readyz")
}

#[cfg(test)]
mod tests;
