//! Failures, and the documents that tell them. Source of the form: RFC 9457.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::aggregator::query::QueryError;
use crate::aggregator::usage::UsageQueryError;
use crate::domain::error::chain;
use crate::wire::api::Problem;

/// What kinds of failure there are. The words are promised: clients tell failures apart by them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    UnknownParameter,
    InvalidParameter,
    InvalidName,
    UnknownNode,
    UnknownLayout,
    UnsuitableLayout,
    NotFound,
    MethodNotAllowed,
    TooManyStreams,
    NotReady,
    Internal,
}

/// A request that cannot be answered as it was meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    kind: Kind,
    detail: String,
    parameter: Option<String>,
}

/// A failure that knows where it happened.
#[derive(Debug)]
pub(super) struct Located {
    kind: Kind,
    problem: Problem,
}

impl Kind {
    /// The reference that stands in `type`.
    pub(super) fn reference(self) -> &'static str {
        match self {
            Self::UnknownParameter => "/problems/unknown-parameter",
            Self::InvalidParameter => "/problems/invalid-parameter",
            Self::InvalidName => "/problems/invalid-name",
            Self::UnknownNode => "/problems/unknown-node",
            Self::UnknownLayout => "/problems/unknown-layout",
            Self::UnsuitableLayout => "/problems/unsuitable-layout",
            Self::NotFound => "/problems/not-found",
            Self::MethodNotAllowed => "/problems/method-not-allowed",
            Self::TooManyStreams => "/problems/too-many-streams",
            Self::NotReady => "/problems/not-ready",
            Self::Internal => "/problems/internal",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::UnknownParameter => "There is no such parameter",
            Self::InvalidParameter => "A parameter has a value that it cannot have",
            Self::InvalidName => "This cannot be the name of a node",
            Self::UnknownNode => "There is no node of this name",
            Self::UnknownLayout => "There is no layout of this name",
            Self::UnsuitableLayout => "The layout does not suit the node",
            Self::NotFound => "There is nothing here",
            Self::MethodNotAllowed => "This method is not possible here",
            Self::TooManyStreams => "Too many event streams are open",
            Self::NotReady => "Not all servers are up",
            Self::Internal => "Something is wrong on this side",
        }
    }

    fn status(self) -> StatusCode {
        match self {
            Self::UnknownParameter | Self::InvalidParameter | Self::InvalidName => {
                StatusCode::BAD_REQUEST
            }
            Self::UnknownNode | Self::UnknownLayout | Self::NotFound => StatusCode::NOT_FOUND,
            Self::UnsuitableLayout => StatusCode::UNPROCESSABLE_ENTITY,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::TooManyStreams | Self::NotReady => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Seconds after which it is worth another try.
    fn retry_after(self) -> Option<&'static str> {
        match self {
            Self::TooManyStreams => Some("10"),
            Self::NotReady => Some("1"),
            Self::UnknownParameter
            | Self::InvalidParameter
            | Self::InvalidName
            | Self::UnknownNode
            | Self::UnknownLayout
            | Self::UnsuitableLayout
            | Self::NotFound
            | Self::MethodNotAllowed
            | Self::Internal => None,
        }
    }
}

impl Failure {
    pub(super) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: detail.into(),
            parameter: None,
        }
    }

    /// A parameter that nobody knows, where these are known.
    pub(super) fn unknown_parameter(name: &str, known: &str) -> Self {
        let name: String = name.chars().take(64).collect();
        let detail = format!("there is no parameter {name:?}; there are {known}");
        Self::new(Kind::UnknownParameter, detail).of(&name)
    }

    /// The same, of this parameter.
    pub(super) fn of(mut self, parameter: &str) -> Self {
        self.parameter = Some(parameter.to_owned());
        self
    }

    /// The document, once it is known which path was asked for.
    pub(super) fn at(self, path: &str) -> Located {
        Located {
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

impl From<QueryError> for Failure {
    fn from(error: QueryError) -> Self {
        let kind = match error {
            QueryError::Unknown { .. } => Kind::UnknownParameter,
            QueryError::Repeated(_)
            | QueryError::Value { .. }
            | QueryError::Type { .. }
            | QueryError::Selector(_)
            | QueryError::Continue(_) => Kind::InvalidParameter,
        };
        Self::new(kind, chain(&error)).of(error.parameter())
    }
}

impl From<UsageQueryError> for Failure {
    fn from(error: UsageQueryError) -> Self {
        let kind = match error {
            UsageQueryError::Unknown(_) => Kind::UnknownParameter,
            UsageQueryError::Repeated(_)
            | UsageQueryError::Value { .. }
            | UsageQueryError::Continue(_) => Kind::InvalidParameter,
        };
        Self::new(kind, chain(&error)).of(error.parameter())
    }
}

/// Carried to the layer that knows the path.
impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = self.kind.status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl IntoResponse for Located {
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
        response
    }
}
