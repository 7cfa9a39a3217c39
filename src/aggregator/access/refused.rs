//! Reasons for refusing a request. Pages and problem documents show the same text.

use thiserror::Error;
use tonic::{Code, Status};

use crate::domain::access::Question;
use crate::domain::access::caller::ForwardedError;
use crate::domain::access::crossing::{Crossing, UnknownHost};
use crate::domain::credential::{Denial, TokenError};
use crate::domain::error::chain;

/// Reason for refusing a request.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refused {
    /// Cross-site request that would change something.
    #[error(transparent)]
    Crossing(#[from] Crossing),
    /// Request for an unknown host.
    #[error(transparent)]
    Host(#[from] UnknownHost),
    /// No credentials.
    #[error("a token is needed: Authorization: Bearer TOKEN, of an account of the cluster")]
    NoToken,
    /// Credentials other than a single bearer token.
    #[error("the authorization is not one bearer token")]
    NotBearer,
    /// Malformed token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// Token rejected by the API server.
    #[error(transparent)]
    Denied(#[from] Denial),
    /// Forwarded identity from an untrusted proxy.
    #[error(
        "X-Forwarded-User and X-Forwarded-Groups are believed of trusted proxies only, and this came from elsewhere"
    )]
    Untrusted,
    /// Forwarded groups, which are not enabled for the proxy.
    #[error(
        "X-Forwarded-Groups is not believed: the aggregator was started without --trusted-proxy-groups"
    )]
    Groups,
    /// Unreadable forwarded identity.
    #[error("X-Forwarded-User or X-Forwarded-Groups is there twice or is no text")]
    Unreadable,
    /// Invalid forwarded identity.
    #[error("the proxy's word cannot be used")]
    Forwarded(#[from] ForwardedError),
    /// Caller lacks this permission.
    #[error("you may not {0}: ask who runs the cluster for a role that has it; `{cmd}` says whether you do", cmd = .0.command())]
    Forbidden(Question),
    /// Path without any visible resource.
    #[error("there is nothing here")]
    Unlisted,
    /// Method that the path does not support.
    #[error("{method} is not possible here; possible: {allowed}")]
    Method {
        /// Requested method.
        method: String,
        /// Supported methods.
        allowed: &'static str,
    },
    /// The API server does not answer.
    #[error("who you are and what you may see cannot be checked now; come again")]
    Unchecked,
}

/// Category of a refusal; determines the HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::aggregator) enum Kind {
    /// Missing or rejected credentials: 401.
    Unauthenticated,
    /// Rejected identity from a proxy: 400.
    BadProxy,
    /// Missing permission: 403.
    Forbidden,
    /// Cross-site request: 403.
    Crossing,
    /// Misdirected request: 421.
    Host,
    /// 404.
    NotFound,
    /// 405.
    Method,
    /// 503.
    Unchecked,
}

impl Refused {
    /// Returns the category.
    pub(in crate::aggregator) fn kind(&self) -> Kind {
        match self {
            Self::Crossing(_) => Kind::Crossing,
            Self::Host(_) => Kind::Host,
            Self::NoToken
            | Self::NotBearer
            | Self::Token(_)
            | Self::Denied(_)
            | Self::Forwarded(ForwardedError::NoUser) => Kind::Unauthenticated,
            Self::Untrusted
            | Self::Groups
            | Self::Unreadable
            | Self::Forwarded(ForwardedError::User | ForwardedError::Groups) => Kind::BadProxy,
            Self::Forbidden(_) => Kind::Forbidden,
            Self::Unlisted => Kind::NotFound,
            Self::Method { .. } => Kind::Method,
            Self::Unchecked => Kind::Unchecked,
        }
    }

    /// Methods that the path supports, for an unsupported method.
    pub(in crate::aggregator) fn allowed(&self) -> Option<&'static str> {
        if let Self::Method { allowed, .. } = self {
            Some(allowed)
        } else {
            None
        }
    }

    /// Value of the metrics label.
    pub(in crate::aggregator) fn word(&self) -> &'static str {
        match self.kind() {
            Kind::Unauthenticated => "unauthenticated",
            Kind::BadProxy => "untrusted_proxy",
            Kind::Forbidden => "forbidden",
            Kind::Crossing => "cross_site",
            Kind::Host => "unknown_host",
            Kind::NotFound => "not_found",
            Kind::Method => "method",
            Kind::Unchecked => "unchecked",
        }
    }

    /// Converts the refusal to a gRPC status.
    pub(in crate::aggregator) fn status(&self) -> Status {
        let code = match self.kind() {
            Kind::Unauthenticated => Code::Unauthenticated,
            Kind::BadProxy | Kind::Host => Code::InvalidArgument,
            Kind::Forbidden | Kind::Crossing => Code::PermissionDenied,
            Kind::NotFound | Kind::Method => Code::Unimplemented,
            Kind::Unchecked => Code::Unavailable,
        };
        Status::new(code, chain(self))
    }

    /// Returns whether to write the refusal to the audit log: it concerns the caller rather than a mistyped address or
    /// the server.
    pub(super) fn is_worth_a_line(&self) -> bool {
        match self.kind() {
            Kind::Unauthenticated
            | Kind::BadProxy
            | Kind::Forbidden
            | Kind::Crossing
            | Kind::Host => true,
            Kind::NotFound | Kind::Method | Kind::Unchecked => false,
        }
    }
}
