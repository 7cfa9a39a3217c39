//! Authentication of agents: an agent presents its pod's service account token, and the API server reviews it.
//!
//! ```text
//!  report --> token? --> cached? --> pending? --> TokenReview (limited concurrency) --> node
//! ```
//!
//! Text that cannot be a token is refused without a request. Other tokens are reviewed through [`octavo_access::cached_lookup`].

use std::fmt;
use std::sync::Arc;

use octavo_access::cached_lookup::{ApiServerHealth, CachedLookup, Fingerprint, LogMessages};
use octavo_fleet::credential::{AcceptanceRule, Denial, Token, TokenError, TokenReview};
use octavo_kube::token_review::{ReviewError, TokenReviewer};
use octavo_model::id::NodeName;
use octavo_store::stats::Stats;
use octavo_toolkit::error::chain;
use thiserror::Error;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

/// Authenticates agents. Clones share one gate.
#[derive(Debug, Clone)]
pub struct Gate(Option<Arc<Checks>>);

/// Reviewer of tokens; implemented by the client of the API server.
#[tonic::async_trait]
pub trait ReviewToken: fmt::Debug + Send + Sync {
    /// Reviews `token` now.
    async fn ask(&self, token: &Token) -> Result<TokenReview, ReviewError>;
}

/// Reason for refusing an agent.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AuthError {
    /// No credentials.
    #[error(
        "no token in the request; start the agent with --aggregator-token and a service account token of its pod"
    )]
    NoToken,
    /// Credentials other than a single bearer token.
    #[error("the Authorization metadata must be a single bearer token")]
    InvalidAuthorization,
    /// Malformed token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// Token rejected by the API server or by the rule.
    #[error(transparent)]
    Denied(#[from] Denial),
    /// Token of another node's agent.
    #[error(
        "node {reported} does not match the token, which was issued to an agent on node {proven}"
    )]
    OtherNode {
        /// Node named in the report.
        reported: NodeName,
        /// Node proven by the token.
        proven: NodeName,
    },
    /// The API server does not answer.
    #[error("cannot review the token because the API server did not respond; retry later")]
    ReviewUnavailable,
}

#[derive(Debug)]
struct Checks {
    rule: AcceptanceRule,
    ask: Box<dyn ReviewToken>,
    stats: Stats,
    lookup: CachedLookup<NodeName, Denial>,
}

/// Capacity of the cache of accepted tokens, about 4 MiB. With more nodes, the oldest entry is evicted and reviewed
/// again.
const MAX_ACCEPTED_TOKENS: usize = 20_000;

const LOG_MESSAGES: LogMessages = LogMessages {
    failed: "cannot review agents' tokens",
    consequence: "open streams and tokens accepted within the last 60s remain valid; all other agents are rejected until \
        the API server responds",
    recovered: "token reviews for agents work again",
};

impl Gate {
    /// Creates a gate that accepts every agent without authentication.
    pub fn without_auth() -> Self {
        Self(None)
    }

    /// Creates a gate that accepts agents whose token satisfies `rule`.
    pub fn with_reviewer(rule: AcceptanceRule, ask: Box<dyn ReviewToken>, stats: Stats) -> Self {
        Self(Some(Arc::new(Checks {
            rule,
            ask,
            stats,
            lookup: CachedLookup::new(ApiServerHealth::new(LOG_MESSAGES), MAX_ACCEPTED_TOKENS),
        })))
    }

    /// Returns the node proven by the token; `None` if authentication is disabled.
    pub async fn admit(&self, metadata: &MetadataMap) -> Result<Option<NodeName>, AuthError> {
        let Some(checks) = &self.0 else {
            return Ok(None);
        };
        let token = bearer(metadata)?;
        let key = Fingerprint::from_parts([token.expose()]);
        let question = Arc::clone(checks).verdict(token);
        match checks.lookup.get_or_request(key, question).await {
            Some(Ok(node)) => Ok(Some(node)),
            Some(Err(denial)) => Err(denial.into()),
            None => Err(AuthError::ReviewUnavailable),
        }
    }
}

/// Returns the single bearer token.
fn bearer(metadata: &MetadataMap) -> Result<Token, AuthError> {
    let mut all = metadata.get_all("authorization").iter();
    let value = all.next().ok_or(AuthError::NoToken)?;
    if all.next().is_some() {
        return Err(AuthError::InvalidAuthorization);
    }
    let text = value.to_str().map_err(|_odd| AuthError::InvalidAuthorization)?;
    let (scheme, token) = text.split_once(' ').ok_or(AuthError::InvalidAuthorization)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(AuthError::InvalidAuthorization);
    }
    Ok(token.parse()?)
}

impl Checks {
    async fn verdict(
        self: Arc<Self>,
        token: Token,
    ) -> Result<Result<NodeName, Denial>, ReviewError> {
        let review = self.ask.ask(&token).await;
        let verdict = review.map(|review| self.rule.authenticate(&review));
        self.stats.count_token_review(match &verdict {
            Ok(Ok(_)) => "accepted",
            Ok(Err(_)) => "denied",
            Err(_) => "failed",
        });
        verdict
    }
}

impl AuthError {
    /// Value of the metrics label.
    pub fn label(&self) -> &'static str {
        match self {
            Self::NoToken | Self::InvalidAuthorization | Self::Token(_) | Self::Denied(_) => {
                "unauthenticated"
            }
            Self::OtherNode { .. } => "not_its_node",
            Self::ReviewUnavailable => "unchecked",
        }
    }

    /// Converts the refusal to a gRPC status.
    pub fn status(&self) -> Status {
        let code = match self {
            Self::NoToken | Self::InvalidAuthorization | Self::Token(_) | Self::Denied(_) => {
                Code::Unauthenticated
            }
            Self::OtherNode { .. } => Code::PermissionDenied,
            Self::ReviewUnavailable => Code::Unavailable,
        };
        Status::new(code, chain(self))
    }
}

#[tonic::async_trait]
impl ReviewToken for TokenReviewer {
    async fn ask(&self, token: &Token) -> Result<TokenReview, ReviewError> {
        self.review(token).await
    }
}

#[cfg(test)]
mod tests;
