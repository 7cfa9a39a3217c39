//! Who may report: an agent shows its pod's token, and the API server says what that is worth.
//!
//! ```text
//!  report --> token? --> known? --> asked about already? --> TokenReview, few at a time --> Rule::judge --> node
//! ```
//!
//! A review is a request to the API server, so their number is bounded whatever peers send: what does not look like a token is
//! refused unseen, an answer is remembered (a good one for a minute, a bad one for seconds), a token is asked about once however
//! many show it, few reviews run at once and few more wait. While the API server gives no answer it is asked once a second.

mod cache;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use thiserror::Error;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout};
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};
use tracing::{info, warn};

use self::cache::Cache;
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

/// The hash of a token: what is remembered has no secret in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Fingerprint([u8; 32]);

/// What asking about a token came to.
type Verdict = Result<NodeName, Refused>;

#[derive(Debug)]
struct Checks {
    rule: Rule,
    ask: Box<dyn Ask>,
    stats: Stats,
    slots: Semaphore,
    known: Mutex<Known>,
}

/// What is known of tokens.
#[derive(Debug)]
struct Known {
    good: Cache<NodeName>,
    bad: Cache<Denial>,
    /// Asked about now.
    pending: BTreeMap<Fingerprint, watch::Receiver<Option<Verdict>>>,
    /// When the API server last gave no answer, unless it gave one since.
    failed: Option<Instant>,
}

/// How long a token that was good is taken without being asked about again.
const GOOD_FOR: Duration = Duration::from_mins(1);
/// How long one that was not is refused without being asked about again.
const BAD_FOR: Duration = Duration::from_secs(5);
/// Good tokens that are remembered: of more nodes, the one asked about first is asked about again. About 4 MiB.
const MOST_GOOD: usize = 20_000;
/// Bad ones. They take no place of good ones.
const MOST_BAD: usize = 1000;
/// Reviews at once, and those that run or wait for their turn.
const MOST_AT_ONCE: usize = 16;
const MOST_PENDING: usize = 4096;
/// How long the API server is left alone after it gave no answer.
const PAUSE: Duration = Duration::from_secs(1);
/// How long an agent waits for its turn and its answer. Less than what a connection without a stream has.
const PATIENCE: Duration = Duration::from_secs(8);

impl Gate {
    /// Whoever comes is let in as whom it says to be.
    pub fn open() -> Self {
        Self(None)
    }

    /// Those are let in whose token the rule accepts.
    pub fn checked(rule: Rule, ask: Box<dyn Ask>, stats: Stats) -> Self {
        let known = Known {
            good: Cache::new(GOOD_FOR, MOST_GOOD),
            bad: Cache::new(BAD_FOR, MOST_BAD),
            pending: BTreeMap::new(),
            failed: None,
        };
        Self(Some(Arc::new(Checks {
            rule,
            ask,
            stats,
            slots: Semaphore::new(MOST_AT_ONCE),
            known: Mutex::new(known),
        })))
    }

    /// The node that whoever sent this has proven to be, where that is asked for.
    pub async fn admit(&self, metadata: &MetadataMap) -> Result<Option<NodeName>, Refused> {
        let Some(checks) = &self.0 else {
            return Ok(None);
        };
        let token = bearer(metadata)?;
        let mut answer = match checks.look_up(token) {
            Ok(verdict) => return verdict.map(Some),
            Err(pending) => pending,
        };
        let verdict = timeout(PATIENCE, answer.wait_for(Option::is_some)).await;
        match verdict {
            Ok(Ok(verdict)) => verdict.clone().unwrap_or(Err(Refused::Unchecked)).map(Some),
            Ok(Err(_gone)) => Err(Refused::Unchecked),
            Err(_late) => Err(Refused::Unchecked),
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
    /// What is known of a token, or where that will be said.
    fn look_up(
        self: &Arc<Self>,
        token: Token,
    ) -> Result<Verdict, watch::Receiver<Option<Verdict>>> {
        let key = Fingerprint::of(&token);
        let now = Instant::now();
        let mut known = self.known();
        if let Some(node) = known.good.get(&key, now) {
            return Ok(Ok(node));
        }
        if let Some(denial) = known.bad.get(&key, now) {
            return Ok(Err(denial.into()));
        }
        if let Some(pending) = known.pending.get(&key) {
            return Err(pending.clone());
        }
        if known.pending.len() >= MOST_PENDING || known.rests(now) {
            return Ok(Err(Refused::Unchecked));
        }
        let (tell, told) = watch::channel(None);
        known.pending.insert(key, told.clone());
        drop(known);
        // A task of its own: who asked first may go away, and others wait for the same.
        let checks = Arc::clone(self);
        tokio::spawn(async move {
            let verdict = checks.verdict(&token).await;
            checks.remember(key, &verdict);
            tell.send_replace(Some(verdict));
        });
        Err(told)
    }

    async fn verdict(&self, token: &Token) -> Verdict {
        let Ok(_slot) = self.slots.acquire().await else {
            return Err(Refused::Unchecked);
        };
        // Those that had to wait while it stopped answering need not find that out each for itself.
        if self.known().rests(Instant::now()) {
            return Err(Refused::Unchecked);
        }
        match self.ask.ask(token).await {
            Ok(review) => {
                self.answered();
                let verdict = self.rule.judge(&review);
                let outcome = if verdict.is_ok() {
                    "accepted"
                } else {
                    "denied"
                };
                self.stats.reviewed(outcome);
                Ok(verdict?)
            }
            Err(error) => {
                self.stats.reviewed("failed");
                self.failed(&error);
                Err(Refused::Unchecked)
            }
        }
    }

    fn remember(&self, key: Fingerprint, verdict: &Verdict) {
        let now = Instant::now();
        let mut known = self.known();
        known.pending.remove(&key);
        match verdict {
            Ok(node) => known.good.put(key, node.clone(), now),
            Err(Refused::Denied(denial)) => known.bad.put(key, denial.clone(), now),
            Err(_) => {}
        }
    }

    fn answered(&self) {
        if self.known().failed.take().is_some() {
            info!("the API server reviews agents' tokens again");
        }
    }

    fn failed(&self, error: &ReviewError) {
        if self.known().failed.replace(Instant::now()).is_none() {
            warn!(
                "agents' tokens cannot be reviewed: {}; agents that come are sent away until they can, streams that are open and tokens accepted within {GOOD_FOR:?} still count",
                chain(error)
            );
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Whether the API server is left alone.
    fn rests(&self, now: Instant) -> bool {
        self.failed.is_some_and(|at| now.duration_since(at) < PAUSE)
    }
}

impl Fingerprint {
    fn of(token: &Token) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, token.expose().as_bytes()).as_ref());
        Self(bytes)
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
