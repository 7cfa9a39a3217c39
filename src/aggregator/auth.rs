//! Who may report: an agent shows its pod's token, and the API server says what that is worth.
//!
//! ```text
//!  report --> token? --> known? --> asked about already? --> TokenReview, few at a time --> Rule::judge --> node
//! ```
//!
//! What does not look like a token is refused unseen; of the others the API server is asked seldom, as `asking`
//! says.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

use super::asking::{Asking, Fingerprint, Health, Words};
use super::stats::Stats;
use crate::domain::credential::{Denial, Review, Rule, Token, TokenError};
use crate::domain::error::chain;
use crate::domain::id::NodeName;
use crate::k8s::token_review::{ReviewError, Reviewer};

/// Lets agents in, or not. Clones are one gate.
#[derive(Debug, Clone)]
pub struct Gate(Option<Arc<Checks>>);

/// Who says what a token is worth.
#[tonic::async_trait]
pub trait Ask: fmt::Debug + Send + Sync {
    /// What it is worth now.
    async fn ask(&self, token: &Token) -> Result<Review, ReviewError>;
}

/// Why an agent is not let in.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refused {
    /// It shows nothing.
    #[error("a token is needed: an agent shows its pod's, with --aggregator-token")]
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
    /// It is the token of another node's agent.
    #[error("node {said}: the token is that of an agent on node {proven}")]
    OtherNode {
        /// What it says to be.
        said: NodeName,
        /// What it is.
        proven: NodeName,
    },
    /// Nobody knows now.
    #[error("the token cannot be checked now; come again")]
    Unchecked,
}

#[derive(Debug)]
struct Checks {
    rule: Rule,
    ask: Box<dyn Ask>,
    stats: Stats,
    asking: Asking<NodeName, Denial>,
}

/// Good tokens that are remembered: of more nodes, the one asked about first is asked about again. About 4 MiB.
const MOST_GOOD: usize = 20_000;

const WORDS: Words = Words {
    away: "agents' tokens cannot be reviewed",
    meanwhile: "agents that come are sent away until they can, streams that are open and tokens accepted within 60s still count",
    back: "the API server reviews agents' tokens again",
};

impl Gate {
    /// Whoever comes is let in as whom it says to be.
    pub fn open() -> Self {
        Self(None)
    }

    /// Those are let in whose token the rule accepts.
    pub fn checked(rule: Rule, ask: Box<dyn Ask>, stats: Stats) -> Self {
        Self(Some(Arc::new(Checks {
            rule,
            ask,
            stats,
            asking: Asking::new(Health::new(WORDS), MOST_GOOD),
        })))
    }

    /// The node that whoever sent this has proven to be, where that is asked for.
    pub async fn admit(&self, metadata: &MetadataMap) -> Result<Option<NodeName>, Refused> {
        let Some(checks) = &self.0 else {
            return Ok(None);
        };
        let token = bearer(metadata)?;
        let key = Fingerprint::of([token.expose()]);
        let question = Arc::clone(checks).verdict(token);
        match checks.asking.about(key, question).await {
            Some(Ok(node)) => Ok(Some(node)),
            Some(Err(denial)) => Err(denial.into()),
            None => Err(Refused::Unchecked),
        }
    }
}

/// The one token that is shown.
fn bearer(metadata: &MetadataMap) -> Result<Token, Refused> {
    let mut all = metadata.get_all("authorization").iter();
    let value = all.next().ok_or(Refused::NoToken)?;
    if all.next().is_some() {
        return Err(Refused::NotBearer);
    }
    let text = value.to_str().map_err(|_odd| Refused::NotBearer)?;
    let (scheme, token) = text.split_once(' ').ok_or(Refused::NotBearer)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(Refused::NotBearer);
    }
    Ok(token.parse()?)
}

impl Checks {
    async fn verdict(
        self: Arc<Self>,
        token: Token,
    ) -> Result<Result<NodeName, Denial>, ReviewError> {
        let review = self.ask.ask(&token).await;
        let verdict = review.map(|review| self.rule.judge(&review));
        self.stats.reviewed(match &verdict {
            Ok(Ok(_)) => "accepted",
            Ok(Err(_)) => "denied",
            Err(_) => "failed",
        });
        verdict
    }
}

impl Refused {
    /// In one word, for counting.
    pub fn word(&self) -> &'static str {
        match self {
            Self::NoToken | Self::NotBearer | Self::Token(_) | Self::Denied(_) => "unauthenticated",
            Self::OtherNode { .. } => "not_its_node",
            Self::Unchecked => "unchecked",
        }
    }

    /// What the peer is told.
    pub fn status(&self) -> Status {
        let code = match self {
            Self::NoToken | Self::NotBearer | Self::Token(_) | Self::Denied(_) => {
                Code::Unauthenticated
            }
            Self::OtherNode { .. } => Code::PermissionDenied,
            Self::Unchecked => Code::Unavailable,
        };
        Status::new(code, chain(self))
    }
}

#[tonic::async_trait]
impl Ask for Reviewer {
    async fn ask(&self, token: &Token) -> Result<Review, ReviewError> {
        self.review(token).await
    }
}

#[cfg(test)]
mod tests;
