//! Errors and problem documents. Source of the format: RFC 9457.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use octavo_access::access::{AccessError, error};
use octavo_documents::api::Problem;
use octavo_fleet::matching::RequestError;
use octavo_store::availability::AvailabilityQueryError;
use octavo_store::query::QueryError;
use octavo_store::usage::UsageQueryError;
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
    /// URI reference in the field `type`.
    pub(super) fn reference(self) -> &'static str {
        match self {
            Self::UnknownParameter => "/problems/unknown-parameter",
            Self::InvalidParameter => "/problems/invalid-parameter",
            Self::InvalidName => "/problems/invalid-name",
            Self::InvalidBody => "/problems/invalid-body",
            Self::WrongMediaType => "/problems/wrong-media-type",
            Self::WrongEncoding => "/problems/wrong-encoding",
            Self::BodyTooLong => "/problems/body-too-long",
            Self::BodyTooSlow => "/problems/body-too-slow",
            Self::UnknownNode => "/problems/unknown-node",
            Self::UnknownLayout => "/problems/unknown-layout",
            Self::UnsuitableLayout => "/problems/unsuitable-layout",
            Self::UnknownProfile => "/problems/unknown-profile",
            Self::AmbiguousProfile => "/problems/ambiguous-profile",
            Self::UnsuitableNodes => "/problems/unsuitable-nodes",
            Self::NoCluster => "/problems/no-cluster",
            Self::CreationOff => "/problems/creation-off",
            Self::ProfileExists => "/problems/profile-exists",
            Self::Rejected => "/problems/not-taken",
            Self::ApiServerUnavailable => "/problems/no-answer",
            Self::Busy => "/problems/busy",
            Self::NotFound => "/problems/not-found",
            Self::MethodNotAllowed => "/problems/method-not-allowed",
            Self::TooManyStreams => "/problems/too-many-streams",
            Self::TooManyConnections => "/problems/too-many-connections",
            Self::NotReady => "/problems/not-ready",
            Self::Unauthenticated => "/problems/unauthenticated",
            Self::UntrustedProxy => "/problems/untrusted-proxy",
            Self::Forbidden => "/problems/forbidden",
            Self::CrossSite => "/problems/cross-site",
            Self::UnknownHost => "/problems/unknown-host",
            Self::ReviewUnavailable => "/problems/unchecked",
            Self::Internal => "/problems/internal",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::UnknownParameter => "There is no such parameter",
            Self::InvalidParameter => "A parameter has a value that it cannot have",
            Self::InvalidName => "This cannot be the name of a node",
            Self::InvalidBody => "The document that was sent cannot be meant",
            Self::WrongMediaType => "The document that was sent is not JSON",
            Self::WrongEncoding => "The document that was sent is compressed",
            Self::BodyTooLong => "The document that was sent is too long",
            Self::BodyTooSlow => "The request body arrived too slowly",
            Self::UnknownNode => "There is no node of this name",
            Self::UnknownLayout => "There is no layout of this name",
            Self::UnsuitableLayout => "The layout does not suit the node",
            Self::UnknownProfile => "There is no hardware profile of this name",
            Self::AmbiguousProfile => "Several hardware profiles have this name",
            Self::UnsuitableNodes => "No hardware profile can be made of these nodes",
            Self::NoCluster => "No cluster is followed now",
            Self::CreationOff => "This aggregator makes no hardware profiles",
            Self::ProfileExists => "There is a hardware profile of this name",
            Self::Rejected => "The cluster does not take this hardware profile",
            Self::ApiServerUnavailable => "The API server gives no answer",
            Self::Busy => "Other profiles are being made",
            Self::NotFound => "There is nothing here",
            Self::MethodNotAllowed => "This method is not possible here",
            Self::TooManyStreams => "Too many event streams are open",
            Self::TooManyConnections => "Too many connections are open",
            Self::NotReady => "It does not serve yet, or no longer",
            Self::Unauthenticated => "It is not known who you are",
            Self::UntrustedProxy => "The word of a proxy cannot be taken",
            Self::Forbidden => "You may not see or do this",
            Self::CrossSite => "Another site made this request",
            Self::UnknownHost => "This server is not known by that host name",
            Self::ReviewUnavailable => "Nobody can say now whether you may see or do this",
            Self::Internal => "Something is wrong on this side",
        }
    }

    fn status(self) -> StatusCode {
        match self {
            Self::UnknownParameter
            | Self::InvalidParameter
            | Self::InvalidName
            | Self::AmbiguousProfile
            | Self::UntrustedProxy
            | Self::InvalidBody => StatusCode::BAD_REQUEST,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Forbidden | Self::CrossSite | Self::CreationOff => StatusCode::FORBIDDEN,
            Self::ProfileExists => StatusCode::CONFLICT,
            Self::WrongMediaType | Self::WrongEncoding => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::BodyTooLong => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BodyTooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::UnknownNode | Self::UnknownLayout | Self::UnknownProfile | Self::NotFound => {
                StatusCode::NOT_FOUND
            }
            Self::UnsuitableLayout | Self::UnsuitableNodes | Self::Rejected => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::UnknownHost => StatusCode::MISDIRECTED_REQUEST,
            Self::TooManyStreams
            | Self::TooManyConnections
            | Self::NotReady
            | Self::NoCluster
            | Self::ApiServerUnavailable
            | Self::Busy
            | Self::ReviewUnavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Value of `Retry-After` in seconds, if a retry may succeed.
    fn retry_after(self) -> Option<&'static str> {
        match self {
            Self::TooManyStreams
            | Self::TooManyConnections
            | Self::NoCluster
            | Self::ApiServerUnavailable
            | Self::Busy => Some("10"),
            Self::NotReady | Self::ReviewUnavailable => Some("1"),
            Self::UnknownParameter
            | Self::InvalidParameter
            | Self::InvalidName
            | Self::InvalidBody
            | Self::WrongMediaType
            | Self::WrongEncoding
            | Self::BodyTooLong
            | Self::BodyTooSlow
            | Self::UnknownNode
            | Self::UnknownLayout
            | Self::UnsuitableLayout
            | Self::UnknownProfile
            | Self::AmbiguousProfile
            | Self::UnsuitableNodes
            | Self::CreationOff
            | Self::ProfileExists
            | Self::Rejected
            | Self::NotFound
            | Self::MethodNotAllowed
            | Self::Unauthenticated
            | Self::UntrustedProxy
            | Self::Forbidden
            | Self::CrossSite
            | Self::UnknownHost
            | Self::Internal => None,
        }
    }
}

impl ApiError {
    pub(super) fn new(kind: ProblemKind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: detail.into(),
            parameter: None,
        }
    }

    /// Reports an unknown parameter and lists the `known` ones.
    pub(super) fn unknown_parameter(name: &str, known: &str) -> Self {
        let name: String = name.chars().take(64).collect();
        let detail = format!("there is no parameter {name:?}; there are {known}");
        Self::new(ProblemKind::UnknownParameter, detail).with_parameter(&name)
    }

    /// Sets the offending parameter.
    pub(super) fn with_parameter(mut self, parameter: &str) -> Self {
        self.parameter = Some(parameter.to_owned());
        self
    }

    /// Adds the path of the request.
    pub(super) fn at_path(self, path: &str) -> LocatedError {
        LocatedError {
            kind: self.kind,
            problem: Problem {
                kind: self.kind.reference().to_owned(),
                title: self.kind.title().to_owned(),
                status: self.kind.status().as_u16(),
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
            QueryError::Unknown { .. } => ProblemKind::UnknownParameter,
            QueryError::Repeated(_)
            | QueryError::Value { .. }
            | QueryError::Type { .. }
            | QueryError::Selector(_)
            | QueryError::Continue(_) => ProblemKind::InvalidParameter,
        };
        Self::new(kind, chain(&error)).with_parameter(error.parameter())
    }
}

impl From<UsageQueryError> for ApiError {
    fn from(error: UsageQueryError) -> Self {
        let kind = match error {
            UsageQueryError::Unknown(_) => ProblemKind::UnknownParameter,
            UsageQueryError::Repeated(_)
            | UsageQueryError::Value { .. }
            | UsageQueryError::Continue(_) => ProblemKind::InvalidParameter,
        };
        Self::new(kind, chain(&error)).with_parameter(error.parameter())
    }
}

impl From<AvailabilityQueryError> for ApiError {
    fn from(error: AvailabilityQueryError) -> Self {
        let kind = match error {
            AvailabilityQueryError::Unknown(_) => ProblemKind::UnknownParameter,
            AvailabilityQueryError::Value { .. } | AvailabilityQueryError::TooMany(_) => {
                ProblemKind::InvalidParameter
            }
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
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        if let Some(seconds) = self.kind.retry_after() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(seconds));
        }
        if self.kind == ProblemKind::Unauthenticated {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
