//! Why somebody is not shown what they asked for, and what they are told: the same words on a page and in a problem document.

use thiserror::Error;
use tonic::{Code, Status};

use crate::domain::access::Question;
use crate::domain::access::caller::ForwardedError;
use crate::domain::access::crossing::{Crossing, UnknownHost};
use crate::domain::credential::{Denial, TokenError};
use crate::domain::error::chain;

/// Why a request goes no further.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refused {
    /// It would change something and is another site's.
    #[error(transparent)]
    Crossing(#[from] Crossing),
    /// It is for a host that is not known here.
    #[error(transparent)]
    Host(#[from] UnknownHost),
    /// It shows nothing.
    #[error("a token is needed: Authorization: Bearer TOKEN, of an account of the cluster")]
    NoToken,
    /// It shows something else.
    #[error("the authorization is not one bearer token")]
    NotBearer,
    /// What it shows cannot be a token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The token does not count here.
    #[error(transparent)]
    Denied(#[from] Denial),
    /// It says who somebody is, and is no proxy's that is believed.
    #[error(
        "X-Forwarded-User and X-Forwarded-Groups are believed of trusted proxies only, and this came from elsewhere"
    )]
    Untrusted,
    /// The proxy says groups, and nobody said that it may.
    #[error(
        "X-Forwarded-Groups is not believed: the aggregator was started without --trusted-proxy-groups"
    )]
    Groups,
    /// The proxy's word cannot be read.
    #[error("X-Forwarded-User or X-Forwarded-Groups is there twice or is no text")]
    Unreadable,
    /// The proxy's word names nobody.
    #[error("the proxy's word cannot be used")]
    Forwarded(#[from] ForwardedError),
    /// They may not.
    #[error("you may not {0}: ask who runs the cluster for a role that has it; `{cmd}` says whether you do", cmd = .0.command())]
    Forbidden(Question),
    /// There is nothing there that anybody may see.
    #[error("there is nothing here")]
    Unlisted,
    /// There is something there, and not to be had so.
    #[error("{method} is not possible here; possible: {allowed}")]
    Method {
        /// What was tried.
        method: String,
        /// What may be.
        allowed: &'static str,
    },
    /// Nobody knows now.
    #[error("who you are and what you may see cannot be checked now; come again")]
    Unchecked,
}

/// Kinds that are told apart by who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::aggregator) enum Kind {
    /// Who somebody is was not shown, or not believed: 401.
    Unauthenticated,
    /// A proxy's word that cannot be taken: 400.
    BadProxy,
    /// They may not: 403.
    Forbidden,
    /// Another site's page: 403.
    Crossing,
    /// Another host was meant: 421.
    Host,
    /// 404.
    NotFound,
    /// 405.
    Method,
    /// 503.
    Unchecked,
}

impl Refused {
    /// Which kind it is of.
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

    /// What may be done there, where that is what is wrong.
    pub(in crate::aggregator) fn allowed(&self) -> Option<&'static str> {
        if let Self::Method { allowed, .. } = self {
            Some(allowed)
        } else {
            None
        }
    }

    /// In one word, for counting.
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

    /// What a peer is told who asked by gRPC.
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

    /// Whether it says something about who asked, rather than about a mistyped address or about us.
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
