//! Error responses, as the API server sends them.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use thiserror::Error;

use super::kinds::ObjectKey;

/// A refused request.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct Refusal {
    /// The HTTP status.
    pub code: u16,
    reason: &'static str,
    message: String,
    /// The reason and the message of the cause.
    cause: Option<(&'static str, String)>,
}

impl Refusal {
    fn new(code: u16, reason: &'static str, message: String) -> Self {
        Self { code, reason, message, cause: None }
    }

    /// The path is not served.
    pub(super) fn no_such_path() -> Self {
        let message = "the server could not find the requested resource".to_owned();
        Self::new(404, "NotFound", message)
    }

    /// The object does not exist.
    pub(super) fn not_found(key: &ObjectKey) -> Self {
        let (_, plural) = key.kind.api();
        Self::new(404, "NotFound", format!("{plural} \"{}\" not found", key.name))
    }

    /// The object already exists.
    pub(super) fn exists(key: &ObjectKey) -> Self {
        let (_, plural) = key.kind.api();
        Self::new(409, "AlreadyExists", format!("{plural} \"{}\" already exists", key.name))
    }

    /// The request conflicts with the current state.
    pub(super) fn conflict(message: String) -> Self {
        Self::new(409, "Conflict", message)
    }

    /// The object is invalid.
    pub(super) fn invalid(message: &str) -> Self {
        Self::new(422, "Invalid", message.to_owned())
    }

    /// The request is malformed.
    pub(super) fn bad_request(message: String) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// The method is not supported by this server.
    pub(super) fn method_not_allowed() -> Self {
        let message = "the simulated API server does not support this method".to_owned();
        Self::new(405, "MethodNotAllowed", message)
    }

    /// The patch has a type that is not supported.
    pub(super) fn unsupported_patch() -> Self {
        let message = "the simulated API server supports server-side apply and merge patches only";
        Self::new(415, "UnsupportedMediaType", message.to_owned())
    }

    /// The resource version has expired.
    pub(super) fn expired(version: u64) -> Self {
        Self::new(410, "Expired", format!("too old resource version: {version}"))
    }

    /// A disruption budget forbids the eviction.
    pub(super) fn budget(name: &str) -> Self {
        let message =
            "Cannot evict pod as it would violate the pod's disruption budget.".to_owned();
        let cause =
            format!("The disruption budget {name} needs 1 healthy pods and has 1 currently");
        Self {
            cause: Some(("DisruptionBudget", cause)),
            ..Self::new(429, "TooManyRequests", message)
        }
    }

    /// Returns the `Status` object.
    pub(super) fn status(&self) -> Value {
        let causes = self.cause.iter();
        let causes = causes.map(|(reason, message)| json!({"reason": reason, "message": message}));
        let causes: Vec<Value> = causes.collect();
        json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": {"causes": causes},
            "code": self.code,
        })
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let code = StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (code, Json(self.status())).into_response()
    }
}
