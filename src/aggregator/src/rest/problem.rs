//! Errors and problem documents. Source of the format: RFC 9457.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use octavo_access::guard::{AccessError, error};
use octavo_fleet::matching::RequestError;
use octavo_fleet::problem::Problem;
use octavo_store::query::QueryError;
use octavo_toolkit::error::chain;

/// Kinds of errors. Their references are stable, because clients distinguish errors by them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProblemKind {
    UnknownParameter,
    InvalidParameter,
    InvalidName,
    InvalidBody,
    WrongMediaType,
    WrongEncoding,
    BodyTooLong,
    BodyTooSlow,
    UnknownNode,
    UnknownLayout,
    UnsuitableLayout,
    UnknownProfile,
    UnknownPolicy,
    AmbiguousProfile,
    UnsuitableNodes,
    NoCluster,
    NoLedger,
    LedgerUnavailable,
    NoBudgets,
    NoPriceBook,
    CreationOff,
    ProfileExists,
    Rejected,
    ApiServerUnavailable,
    Busy,
    NotFound,
    MethodNotAllowed,
    TooManyStreams,
    TooManyConnections,
    NotReady,
    Unauthenticated,
    UntrustedProxy,
    Forbidden,
    CrossSite,
    UnknownHost,
    ReviewUnavailable,
    Internal,
}

/// Error of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ApiError {
    kind: ProblemKind,
    detail: String,
    parameter: Option<String>,
}

/// Error with the path of the request.
#[derive(Debug)]
pub(super) struct LocatedError {
    kind: ProblemKind,
    problem: Problem,
}

impl ProblemKind {
    /// Status code, last segment of the URI reference in the field `type`, and title.
    fn row(self) -> (u16, &'static str, &'static str) {
        match self {
            Self::UnknownParameter => (400, "unknown-parameter", "Unknown parameter"),
            Self::InvalidParameter => (400, "invalid-parameter", "Invalid parameter value"),
            Self::InvalidName => (400, "invalid-name", "Invalid node name"),
            Self::InvalidBody => (400, "invalid-body", "Invalid request body"),
            Self::WrongMediaType => (415, "wrong-media-type", "Request body is not JSON"),
            Self::WrongEncoding => (415, "wrong-encoding", "Request body is compressed"),
            Self::BodyTooLong => (413, "body-too-long", "Request body is too large"),
            Self::BodyTooSlow => (408, "body-too-slow", "Request body arrived too slowly"),
            Self::NoLedger => (404, "no-ledger", "No usage ledger"),
            Self::NoBudgets => (404, "no-budgets", "No budgets"),
            Self::NoPriceBook => (404, "no-price-book", "No price book"),
            Self::LedgerUnavailable => (503, "ledger-unavailable", "Usage ledger cannot be read"),
            Self::UnknownNode => (404, "unknown-node", "Node not found"),
            Self::UnknownLayout => (404, "unknown-layout", "Layout not found"),
            Self::UnsuitableLayout => (422, "unsuitable-layout", "Layout does not fit the node"),
            Self::UnknownProfile => (404, "unknown-profile", "Hardware profile not found"),
            Self::UnknownPolicy => (404, "unknown-policy", "Policy not found"),
            Self::AmbiguousProfile => (400, "ambiguous-profile", "Ambiguous hardware profile name"),
            Self::UnsuitableNodes => {
                (422, "unsuitable-nodes", "No hardware profile can be created for these nodes")
            }
            Self::NoCluster => (503, "no-cluster", "Cluster state not available"),
            Self::CreationOff => (403, "creation-off", "Creation of hardware profiles is disabled"),
            Self::ProfileExists => (409, "profile-exists", "Hardware profile already exists"),
            Self::Rejected => (422, "not-taken", "Hardware profile rejected by the cluster"),
            Self::ApiServerUnavailable => (503, "no-answer", "No response from the API server"),
            Self::Busy => (503, "busy", "Too many profile creations in progress"),
            Self::NotFound => (404, "not-found", "Not found"),
            Self::MethodNotAllowed => (405, "method-not-allowed", "Method not allowed"),
            Self::TooManyStreams => (503, "too-many-streams", "Too many open event streams"),
            Self::TooManyConnections => (503, "too-many-connections", "Too many open connections"),
            Self::NotReady => (503, "not-ready", "Not ready"),
            Self::Unauthenticated => (401, "unauthenticated", "Not authenticated"),
            Self::UntrustedProxy => (400, "untrusted-proxy", "Forwarded identity rejected"),
            Self::Forbidden => (403, "forbidden", "Permission denied"),
            Self::CrossSite => (403, "cross-site", "Cross-site request rejected"),
            Self::UnknownHost => (421, "unknown-host", "Unknown host name"),
            Self::ReviewUnavailable => (503, "unchecked", "Permission cannot be checked"),
            Self::Internal => (500, "internal", "Internal error"),
        }
    }

    fn status(self) -> StatusCode {
        StatusCode::from_u16(self.row().0).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Value of `Retry-After` in seconds, if a retry may succeed.
    fn retry_after(self) -> Option<&'static str> {
        let is_brief = matches!(self, Self::NotReady | Self::ReviewUnavailable);
        let seconds = if is_brief { "1" } else { "10" };
        (self.status() == StatusCode::SERVICE_UNAVAILABLE).then_some(seconds)
    }
}

impl ApiError {
    pub(super) fn new(kind: ProblemKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), parameter: None }
    }

    /// Reports an unknown parameter and lists the `known` ones.
    pub(super) fn unknown_parameter(name: &str, known: &str) -> Self {
        let name: String = name.chars().take(64).collect();
        let detail = format!("unknown parameter {name:?}; valid parameters: {known}");
        Self::new(ProblemKind::UnknownParameter, detail).with_parameter(&name)
    }

    /// Sets the offending parameter.
    pub(super) fn with_parameter(mut self, parameter: &str) -> Self {
        self.parameter = Some(parameter.to_owned());
        self
    }

    /// Adds the path of the request.
    pub(super) fn at_path(self, path: &str) -> LocatedError {
        let (status, reference, title) = self.kind.row();
        LocatedError {
            kind: self.kind,
            problem: Problem {
                kind: format!("/problems/{reference}"),
                title: title.to_owned(),
                status,
                detail: self.detail,
                instance: path.to_owned(),
                parameter: self.parameter,
            },
        }
    }
}

impl From<QueryError> for ApiError {
    fn from(error: QueryError) -> Self {
        let kind = match error {
            QueryError::Unknown { .. } | QueryError::Misspelled { .. } => {
                ProblemKind::UnknownParameter
            }
            QueryError::Repeated(_)
            | QueryError::TooMany { .. }
            | QueryError::TooManyValues { .. }
            | QueryError::TooManyTypes { .. }
            | QueryError::Value { .. }
            | QueryError::Type { .. }
            | QueryError::Selector(_)
            | QueryError::Continue(_) => ProblemKind::InvalidParameter,
        };
        Self::new(kind, chain(&error)).with_parameter(error.parameter())
    }
}

impl From<RequestError> for ApiError {
    fn from(error: RequestError) -> Self {
        Self::new(ProblemKind::InvalidBody, error.problem).with_parameter(error.field)
    }
}

impl From<&AccessError> for ApiError {
    fn from(refused: &AccessError) -> Self {
        let kind = match refused.kind() {
            error::AccessErrorKind::Unauthenticated => ProblemKind::Unauthenticated,
            error::AccessErrorKind::UntrustedProxy => ProblemKind::UntrustedProxy,
            error::AccessErrorKind::Forbidden => ProblemKind::Forbidden,
            error::AccessErrorKind::CrossSite => ProblemKind::CrossSite,
            error::AccessErrorKind::Host => ProblemKind::UnknownHost,
            error::AccessErrorKind::NotFound => ProblemKind::NotFound,
            error::AccessErrorKind::Method => ProblemKind::MethodNotAllowed,
            error::AccessErrorKind::ReviewUnavailable => ProblemKind::ReviewUnavailable,
        };
        Self::new(kind, chain(refused))
    }
}

/// Carries the error to the middleware that adds the path.
impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.kind.status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl IntoResponse for LocatedError {
    fn into_response(self) -> Response {
        let mut response = (self.kind.status(), Json(self.problem)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.kind.retry_after() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(seconds));
        }
        if self.kind == ProblemKind::Unauthenticated {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
