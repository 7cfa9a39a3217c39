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
    AmbiguousProfile,
    UnsuitableNodes,
    NoCluster,
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
    /// Status code, and URI reference in the field `type`.
    fn row(self) -> (u16, &'static str) {
        match self {
            Self::UnknownParameter => (400, "/problems/unknown-parameter"),
            Self::InvalidParameter => (400, "/problems/invalid-parameter"),
            Self::InvalidName => (400, "/problems/invalid-name"),
            Self::InvalidBody => (400, "/problems/invalid-body"),
            Self::WrongMediaType => (415, "/problems/wrong-media-type"),
            Self::WrongEncoding => (415, "/problems/wrong-encoding"),
            Self::BodyTooLong => (413, "/problems/body-too-long"),
            Self::BodyTooSlow => (408, "/problems/body-too-slow"),
            Self::UnknownNode => (404, "/problems/unknown-node"),
            Self::UnknownLayout => (404, "/problems/unknown-layout"),
            Self::UnsuitableLayout => (422, "/problems/unsuitable-layout"),
            Self::UnknownProfile => (404, "/problems/unknown-profile"),
            Self::AmbiguousProfile => (400, "/problems/ambiguous-profile"),
            Self::UnsuitableNodes => (422, "/problems/unsuitable-nodes"),
            Self::NoCluster => (503, "/problems/no-cluster"),
            Self::CreationOff => (403, "/problems/creation-off"),
            Self::ProfileExists => (409, "/problems/profile-exists"),
            Self::Rejected => (422, "/problems/not-taken"),
            Self::ApiServerUnavailable => (503, "/problems/no-answer"),
            Self::Busy => (503, "/problems/busy"),
            Self::NotFound => (404, "/problems/not-found"),
            Self::MethodNotAllowed => (405, "/problems/method-not-allowed"),
            Self::TooManyStreams => (503, "/problems/too-many-streams"),
            Self::TooManyConnections => (503, "/problems/too-many-connections"),
            Self::NotReady => (503, "/problems/not-ready"),
            Self::Unauthenticated => (401, "/problems/unauthenticated"),
            Self::UntrustedProxy => (400, "/problems/untrusted-proxy"),
            Self::Forbidden => (403, "/problems/forbidden"),
            Self::CrossSite => (403, "/problems/cross-site"),
            Self::UnknownHost => (421, "/problems/unknown-host"),
            Self::ReviewUnavailable => (503, "/problems/unchecked"),
            Self::Internal => (500, "/problems/internal"),
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::UnknownParameter => "Unknown parameter",
            Self::InvalidParameter => "Invalid parameter value",
            Self::InvalidName => "Invalid node name",
            Self::InvalidBody => "Invalid request body",
            Self::WrongMediaType => "Request body is not JSON",
            Self::WrongEncoding => "Request body is compressed",
            Self::BodyTooLong => "Request body is too large",
            Self::BodyTooSlow => "Request body arrived too slowly",
            Self::UnknownNode => "Node not found",
            Self::UnknownLayout => "Layout not found",
            Self::UnsuitableLayout => "Layout does not fit the node",
            Self::UnknownProfile => "Hardware profile not found",
            Self::AmbiguousProfile => "Ambiguous hardware profile name",
            Self::UnsuitableNodes => "No hardware profile can be created for these nodes",
            Self::NoCluster => "Cluster state not available",
            Self::CreationOff => "Creation of hardware profiles is disabled",
            Self::ProfileExists => "Hardware profile already exists",
            Self::Rejected => "Hardware profile rejected by the cluster",
            Self::ApiServerUnavailable => "No response from the API server",
            Self::Busy => "Too many profile creations in progress",
            Self::NotFound => "Not found",
            Self::MethodNotAllowed => "Method not allowed",
            Self::TooManyStreams => "Too many open event streams",
            Self::TooManyConnections => "Too many open connections",
            Self::NotReady => "Not ready",
            Self::Unauthenticated => "Not authenticated",
            Self::UntrustedProxy => "Forwarded identity rejected",
            Self::Forbidden => "Permission denied",
            Self::CrossSite => "Cross-site request rejected",
            Self::UnknownHost => "Unknown host name",
            Self::ReviewUnavailable => "Permission cannot be checked",
            Self::Internal => "Internal error",
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
        let (status, reference) = self.kind.row();
        LocatedError {
            kind: self.kind,
            problem: Problem {
                kind: reference.to_owned(),
                title: self.kind.title().to_owned(),
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
