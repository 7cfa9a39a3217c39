//! Reasons for refusing a request. Pages and problem documents show the same text.

use octavo_fleet::access::AccessReview;
use octavo_fleet::access::authentication::ForwardedError;
use octavo_fleet::access::cross_site::{CrossSiteRequest, UnknownHost};
use octavo_fleet::credential::{Denial, TokenError};
use octavo_toolkit::error::chain;
use thiserror::Error;
use tonic::{Code, Status};

/// Reason for refusing a request.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AccessError {
    /// Cross-site request that would change something.
    #[error(transparent)]
    CrossSite(#[from] CrossSiteRequest),
    /// Request for an unknown host.
    #[error(transparent)]
    UnknownHost(#[from] UnknownHost),
    /// No credentials.
    #[error(
        "the request has no token; send the header Authorization: Bearer TOKEN with a token of the cluster"
    )]
    NoToken,
    /// Credentials other than a single bearer token.
    #[error("the Authorization header must be a single bearer token")]
    InvalidAuthorization,
    /// Malformed token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// Token rejected by the API server.
    #[error(transparent)]
    Denied(#[from] Denial),
    /// Forwarded identity from an untrusted proxy.
    #[error(
        "X-Forwarded-User and X-Forwarded-Groups are accepted only from trusted proxies, and the address of \
         this client is not one; set --trusted-proxy"
    )]
    UntrustedProxy,
    /// Forwarded groups, which are not enabled for the proxy.
    #[error(
        "X-Forwarded-Groups is not accepted because the aggregator was started without --trusted-proxy-groups"
    )]
    UntrustedGroups,
    /// Unreadable forwarded identity.
    #[error("X-Forwarded-User or X-Forwarded-Groups occurs twice or is not text")]
    UnreadableIdentity,
    /// Invalid forwarded identity.
    #[error("the identity forwarded by the proxy is invalid")]
    Forwarded(#[from] ForwardedError),
    /// Caller lacks this permission.
    #[error("you do not have the permission to {0}; ask a cluster administrator for a role with it, and check it \
        with `{cmd}`", cmd = .0.command())]
    Forbidden(AccessReview),
    /// Path without any visible resource.
    #[error("not found")]
    NotFound,
    /// Method that the path does not support.
    #[error("method {method} is not supported for this path; supported: {allowed}")]
    Method {
        /// Requested method.
        method: String,
        /// Supported methods.
        allowed: &'static str,
    },
    /// The API server does not answer.
    #[error(
        "cannot check your identity and permissions because the API server did not respond; retry later"
    )]
    ReviewUnavailable,
}

/// Category of a refusal; determines the HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessErrorKind {
    /// Missing or rejected credentials: 401.
    Unauthenticated,
    /// Rejected identity from a proxy: 400.
    UntrustedProxy,
    /// Missing permission: 403.
    Forbidden,
    /// Cross-site request: 403.
    CrossSite,
    /// Misdirected request: 421.
    Host,
    /// 404.
    NotFound,
    /// 405.
    Method,
    /// 503.
    ReviewUnavailable,
}

impl AccessError {
    /// Returns whether the caller lacks the permission to list the usage of all namespaces, and may have it in one.
    pub fn is_about_all_usage(&self) -> bool {
        *self == Self::Forbidden(AccessReview::usage(None))
    }

    /// Returns the category.
    pub fn kind(&self) -> AccessErrorKind {
        match self {
            Self::CrossSite(_) => AccessErrorKind::CrossSite,
            Self::UnknownHost(_) => AccessErrorKind::Host,
            Self::NoToken
            | Self::InvalidAuthorization
            | Self::Token(_)
            | Self::Denied(_)
            | Self::Forwarded(ForwardedError::NoUser) => AccessErrorKind::Unauthenticated,
            Self::UntrustedProxy
            | Self::UntrustedGroups
            | Self::UnreadableIdentity
            | Self::Forwarded(ForwardedError::UserTooLong | ForwardedError::TooManyGroups) => {
                AccessErrorKind::UntrustedProxy
            }
            Self::Forbidden(_) => AccessErrorKind::Forbidden,
            Self::NotFound => AccessErrorKind::NotFound,
            Self::Method { .. } => AccessErrorKind::Method,
            Self::ReviewUnavailable => AccessErrorKind::ReviewUnavailable,
        }
    }

    /// Methods that the path supports, for an unsupported method.
    pub fn allowed_methods(&self) -> Option<&'static str> {
        if let Self::Method { allowed, .. } = self { Some(allowed) } else { None }
    }

    /// Value of the metrics label.
    pub fn label(&self) -> &'static str {
        match self.kind() {
            AccessErrorKind::Unauthenticated => "unauthenticated",
            AccessErrorKind::UntrustedProxy => "untrusted_proxy",
            AccessErrorKind::Forbidden => "forbidden",
            AccessErrorKind::CrossSite => "cross_site",
            AccessErrorKind::Host => "unknown_host",
            AccessErrorKind::NotFound => "not_found",
            AccessErrorKind::Method => "method",
            AccessErrorKind::ReviewUnavailable => "unchecked",
        }
    }

    /// Converts the refusal to a gRPC status.
    pub fn status(&self) -> Status {
        let code = match self.kind() {
            AccessErrorKind::Unauthenticated => Code::Unauthenticated,
            AccessErrorKind::UntrustedProxy | AccessErrorKind::Host => Code::InvalidArgument,
            AccessErrorKind::Forbidden | AccessErrorKind::CrossSite => Code::PermissionDenied,
            AccessErrorKind::NotFound | AccessErrorKind::Method => Code::Unimplemented,
            AccessErrorKind::ReviewUnavailable => Code::Unavailable,
        };
        Status::new(code, chain(self))
    }

    /// Returns whether to write the refusal to the audit log: it concerns the caller rather than a mistyped address or
    /// the server.
    pub(super) fn is_audited(&self) -> bool {
        match self.kind() {
            AccessErrorKind::Unauthenticated
            | AccessErrorKind::UntrustedProxy
            | AccessErrorKind::Forbidden
            | AccessErrorKind::CrossSite
            | AccessErrorKind::Host => true,
            AccessErrorKind::NotFound
            | AccessErrorKind::Method
            | AccessErrorKind::ReviewUnavailable => false,
        }
    }
}
