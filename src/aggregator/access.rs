//! The gate in front of everything that is read over HTTP: who somebody is, and whether the cluster's roles let them see that.
//!
//! ```text
//!  request --> of another site's page? --> its row in the table --> who? --> may they? --> Sight --> pages, API
//! ```
//!
//! The table is [`domain::access`](crate::domain::access)'s; what it does not have is refused. The API server is asked whose a token
//! is and what its owner may do, seldom, as `asking` says. Handlers are given a [`Sight`]: what of their answer may be
//! shown; and an [`Identity`], for those who change something. Without a checker everybody sees everything, and other sites' pages
//! still change nothing.

mod checks;
mod lasting;
pub(super) mod refused;
mod shown;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method as HttpMethod, Uri, header};
use axum::middleware::Next;
use axum::response::Response;

use self::checks::Checks;
use self::lasting::Right;
pub use self::refused::Refused;
use super::audit::{Audit, Refusal};
use super::availability::Counter;
use super::peer::Peer;
use super::stats::Stats;
use super::{pages, rest};
use crate::config::aggregator::Proxies;
use crate::domain::access::crossing::{self, UnknownHost, Whence};
use crate::domain::access::{Caller, Proof, Question, Sight};
use crate::domain::credential::{Audience, Token};
use crate::domain::error::chain;
use crate::k8s::access_review::Asker;
use crate::k8s::token_review::ReviewError;

/// Lets readers see what they may. Clones are one guard.
#[derive(Debug, Clone)]
pub struct Guard {
    checks: Option<Arc<Checks>>,
    /// Names that requests may be for, beside this machine's own; `None` where that is not asked.
    hosts: Option<Arc<[String]>>,
    audit: Audit,
    stats: Stats,
}

/// Who says whose a token is, and what somebody may do.
#[tonic::async_trait]
pub trait Ask: fmt::Debug + Send + Sync {
    /// Whose it is now.
    async fn whose(&self, token: &Token) -> Result<Proof, ReviewError>;
    /// Whether they may do this now.
    async fn may(&self, caller: &Caller, question: &Question) -> Result<bool, ReviewError>;
}

/// Who is believed to be whom.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Believed {
    /// For whom tokens have to be; for the API server itself where there is none.
    pub audience: Option<Audience>,
    /// Proxies that say who somebody is.
    pub proxies: Option<Proxies>,
}

/// Who makes a request; nobody where nobody is asked who they are. An extension of every request that was let in.
#[derive(Debug, Clone, Default)]
pub struct Identity(pub Option<Arc<Caller>>);

/// The right to follow the fleet; for ever where nobody is asked who they are.
#[derive(Debug, Default)]
pub(super) struct Following(Option<Right>);

impl Following {
    /// Returns once whoever has it may not follow any more, asked again every half minute.
    pub(super) async fn ended(self) -> Refused {
        if let Some(right) = self.0
            && let Some(refused) = right.ended().await
        {
            return refused;
        }
        std::future::pending().await
    }
}

impl Guard {
    /// Everybody sees everything.
    pub fn open(stats: Stats) -> Self {
        Self {
            checks: None,
            hosts: None,
            audit: Audit::default(),
            stats,
        }
    }

    /// The same for a server that this machine alone reaches: it answers requests for this machine and for these names only.
    #[must_use]
    pub fn with_hosts(self, names: &[String]) -> Self {
        Self {
            hosts: Some(names.into()),
            ..self
        }
    }

    /// The cluster's roles decide.
    pub fn checked(believed: Believed, ask: Box<dyn Ask>, counter: Counter, stats: Stats) -> Self {
        let checks = Checks::new(believed, ask, counter, stats.clone());
        Self {
            checks: Some(Arc::new(checks)),
            hosts: None,
            audit: Audit::default(),
            stats,
        }
    }

    /// Whether whoever sent a request with these headers may follow the fleet by gRPC, as by the stream of events; and so long.
    pub(super) async fn follows(
        &self,
        headers: &HeaderMap,
        peer: IpAddr,
    ) -> Result<Following, Refused> {
        let Some(checks) = &self.checks else {
            return Ok(Following(None));
        };
        let shown = shown::read(headers, Some(peer), checks.believed.proxies.as_ref());
        let events = Uri::from_static("/api/v1/events");
        let admitted = checks.admit(&HttpMethod::GET, &events, &shown).await;
        let admitted = admitted.map_err(|(caller, refused)| {
            self.tell(
                HttpMethod::GET.as_str(),
                "gRPC Watch",
                Some(peer),
                (caller.as_deref(), &refused),
            );
            refused
        })?;
        Ok(Following(Some(Right {
            checks: Arc::clone(checks),
            method: HttpMethod::GET,
            uri: events,
            shown,
            sight: admitted.sight,
        })))
    }

    /// Whether who makes a request may do this, which the cluster's roles say; everybody may where nobody is asked who they are.
    pub(super) async fn may(&self, identity: &Identity, question: Question) -> Result<(), Refused> {
        let Some(checks) = &self.checks else {
            return Ok(());
        };
        let caller = identity.0.as_ref().ok_or(Refused::NoToken)?;
        if checks.may(caller, question.clone()).await? {
            return Ok(());
        }
        Err(Refused::Forbidden(question))
    }

    /// Whether nobody is asked who they are.
    pub(super) fn is_open(&self) -> bool {
        self.checks.is_none()
    }

    /// Where changes are told of, and what was refused.
    pub fn audit(&self) -> &Audit {
        &self.audit
    }
}

/// The layer around everything that is served.
pub async fn check(State(guard): State<Guard>, mut request: Request, next: Next) -> Response {
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let peer = request.extensions().get::<Peer>();
    let peer = peer.map(|peer| peer.address().ip());
    if let Err(refused) = guard.of_this_host(&request) {
        return guard.refuse(&method, &uri, peer, &(None, refused.into()));
    }
    if let Err(crossing) = of_this_site(&request) {
        return guard.refuse(&method, &uri, peer, &(None, crossing.into()));
    }
    let Some(checks) = &guard.checks else {
        request.extensions_mut().insert(Sight::everything());
        request.extensions_mut().insert(Identity::default());
        return next.run(request).await;
    };
    let shown = shown::read(request.headers(), peer, checks.believed.proxies.as_ref());
    let admitted = checks.admit(&method, &uri, &shown).await;
    let admitted = match admitted {
        Ok(admitted) => admitted,
        Err(refused) => return guard.refuse(&method, &uri, peer, &refused),
    };
    request.extensions_mut().insert(admitted.sight.clone());
    let identity = Identity(admitted.caller);
    request.extensions_mut().insert(identity);
    let response = next.run(request).await;
    let right = Right {
        checks: Arc::clone(checks),
        method,
        uri,
        shown,
        sight: admitted.sight,
    };
    lasting::guarded(response, right)
}

/// Whether a request that may change something is of a page of ours, or of none.
fn of_this_site(request: &Request) -> Result<(), crossing::Crossing> {
    if request.method().is_safe() {
        return Ok(());
    }
    // What cannot be read is there, and is none of ours.
    let word = |name: &str| {
        let value = request.headers().get(name);
        value.map(|value| value.to_str().unwrap_or_default())
    };
    crossing::judge(Whence {
        site: word("sec-fetch-site"),
        origin: word(header::ORIGIN.as_str()),
        host: host(request.uri(), request.headers()),
    })
}

/// Which host and port a request is for, in its own words: HTTP/2 has them in the address. A name that cannot be read is an empty one.
pub(super) fn host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    let field = headers.get(header::HOST);
    let field = field.map(|host| host.to_str().unwrap_or_default());
    uri.authority().map(Authority::as_str).or(field)
}

impl Guard {
    /// Whether a request is for a host that this server is known by. Probes are answered for any: they tell nothing.
    fn of_this_host(&self, request: &Request) -> Result<(), UnknownHost> {
        let Some(names) = &self.hosts else {
            return Ok(());
        };
        if matches!(request.uri().path(), "/healthz" | "/readyz") {
            return Ok(());
        }
        crossing::host_is_known(host(request.uri(), request.headers()), names)
    }

    fn refuse(
        &self,
        method: &HttpMethod,
        uri: &Uri,
        peer: Option<IpAddr>,
        refused: &(Option<Arc<Caller>>, Refused),
    ) -> Response {
        let (caller, refused) = refused;
        let path = uri.path();
        self.tell(method.as_str(), path, peer, (caller.as_deref(), refused));
        if is_for_programs(path) {
            rest::refusal(refused, path)
        } else {
            pages::refusal(refused)
        }
    }

    /// Counts a refusal, and tells of it if it is worth that.
    pub(super) fn tell(
        &self,
        verb: &str,
        object: &str,
        peer: Option<IpAddr>,
        (caller, refused): (Option<&Caller>, &Refused),
    ) {
        self.stats.unseen(refused.word());
        let who = caller.map(Caller::shown);
        let peer = peer.map(|peer| peer.to_string());
        if refused.is_worth_a_line() {
            self.audit.refused(&Refusal {
                who: who.as_deref().unwrap_or_default(),
                peer: peer.as_deref().unwrap_or("unknown"),
                verb,
                object,
                why: &chain(refused),
            });
        }
    }
}

/// Whether who asks for it reads problem documents rather than pages.
fn is_for_programs(path: &str) -> bool {
    let of_api = path.strip_prefix("/api");
    of_api.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        || matches!(path, "/metrics" | "/openapi.json" | "/healthz" | "/readyz")
}

#[tonic::async_trait]
impl Ask for Asker {
    async fn whose(&self, token: &Token) -> Result<Proof, ReviewError> {
        self.whose(token).await
    }

    async fn may(&self, caller: &Caller, question: &Question) -> Result<bool, ReviewError> {
        self.may(caller, question).await
    }
}

#[cfg(test)]
mod tests;
