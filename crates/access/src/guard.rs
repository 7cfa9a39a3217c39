//! HTTP access control: authenticates each request and authorizes it against the cluster's RBAC roles.
//!
//! ```text
//!  request --> cross-site? --> row of the access table --> authentication --> authorization --> Visibility --> pages, API
//! ```
//!
//! The table is [`octavo_fleet::access`]; a request that matches no row is refused. The API server
//! authenticates tokens and authorizes callers; [`cached_lookup`](crate::cached_lookup) caches its answers and limits the number of requests. Handlers
//! receive a [`Visibility`], which limits what their response may contain, and an [`Identity`], for requests that change
//! something. Without a checker, every client sees everything; cross-site requests still cannot change anything.

mod checks;
mod credentials;
pub mod error;
mod grant;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method as HttpMethod, Uri, header};
use axum::middleware::Next;
use axum::response::Response;
use octavo_fleet::access::cross_site::{self, RequestOrigin, UnknownHost};
use octavo_fleet::access::{AccessReview, Caller, Visibility};
use octavo_fleet::credential::{Audience, Token, TokenReview};
use octavo_kube::access_review::AccessReviewer;
use octavo_kube::token_review::ReviewError;
use octavo_store::availability::Counter;
use octavo_store::peer::Peer;
use octavo_store::stats::Stats;
use octavo_toolkit::error::chain;

use self::checks::Checks;
pub use self::error::AccessError;
use self::grant::Grant;
use super::audit::{AuditLog, Refusal};
use super::trusted_proxies::TrustedProxies;

/// Authorizes read access. Clones share one guard.
#[derive(Debug, Clone)]
pub struct Guard {
    checks: Option<Arc<Checks>>,
    /// Accepted `Host` names besides those of this machine; `None` disables the check.
    hosts: Option<Arc<[String]>>,
    audit: AuditLog,
    stats: Stats,
}

/// Authenticates tokens and authorizes callers; implemented by the client of the API server.
#[tonic::async_trait]
pub trait ReviewAccess: fmt::Debug + Send + Sync {
    /// Returns the current owner of `token`.
    async fn authenticate(&self, token: &Token) -> Result<TokenReview, ReviewError>;
    /// Returns whether the API server currently allows `question` for `caller`.
    async fn is_allowed(
        &self,
        caller: &Caller,
        question: &AccessReview,
    ) -> Result<bool, ReviewError>;
}

/// Trusted sources of caller identities.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TrustedIdentitySources {
    /// Audience that tokens must have; the API server's own audience if `None`.
    pub audience: Option<Audience>,
    /// Proxies trusted to name the caller.
    pub proxies: Option<TrustedProxies>,
}

/// Caller of a request; `None` if authentication is disabled. An extension of every request that passed the guard.
#[derive(Debug, Clone, Default)]
pub struct Identity(pub Option<Arc<Caller>>);

/// Permission to watch the fleet; never expires if authentication is disabled.
#[derive(Debug, Default)]
pub struct WatchPermission(Option<Grant>);

impl WatchPermission {
    /// Returns when the client loses the permission, which is checked every 30 seconds.
    pub async fn ended(self) -> AccessError {
        if let Some(right) = self.0
            && let Some(refused) = right.revoked().await
        {
            return refused;
        }
        std::future::pending().await
    }
}

impl Guard {
    /// Creates a guard without authentication: every client sees everything.
    pub fn open(stats: Stats) -> Self {
        Self { checks: None, hosts: None, audit: AuditLog::default(), stats }
    }

    /// Rejects requests for hosts other than this machine and `names`; for a server that is reachable from this machine
    /// only.
    #[must_use]
    pub fn with_hosts(self, names: &[String]) -> Self {
        Self { hosts: Some(names.into()), ..self }
    }

    /// Writes changes and refusals to this audit log.
    #[must_use]
    pub fn with_audit(self, audit: AuditLog) -> Self {
        Self { audit, ..self }
    }

    /// Creates a guard that authorizes requests against the cluster's RBAC roles.
    pub fn with_reviewer(
        believed: TrustedIdentitySources,
        ask: Box<dyn ReviewAccess>,
        counter: Counter,
        stats: Stats,
    ) -> Self {
        let checks = Checks::new(believed, ask, counter, stats.clone());
        Self { checks: Some(Arc::new(checks)), hosts: None, audit: AuditLog::default(), stats }
    }

    /// Authorizes the sender of `headers` to watch the fleet over gRPC. Requires the same permission as the stream of
    /// events.
    pub async fn authorize_watch(
        &self,
        headers: &HeaderMap,
        peer: IpAddr,
    ) -> Result<WatchPermission, AccessError> {
        let Some(checks) = &self.checks else {
            return Ok(WatchPermission(None));
        };
        let shown =
            credentials::from_headers(headers, Some(peer), checks.trusted_sources.proxies.as_ref());
        let events = Uri::from_static("/api/v1/events");
        let admitted = checks.admit(&HttpMethod::GET, &events, &shown).await;
        let admitted = admitted.map_err(|(caller, refused)| {
            self.record_refusal(
                HttpMethod::GET.as_str(),
                "gRPC Watch",
                Some(peer),
                (caller.as_deref(), &refused),
            );
            refused
        })?;
        Ok(WatchPermission(Some(Grant {
            checks: Arc::clone(checks),
            method: HttpMethod::GET,
            uri: events,
            shown,
            visibility: admitted.visibility,
        })))
    }

    /// Checks that the caller is allowed to do what `question` names; always succeeds if authentication is disabled.
    pub(super) async fn authorize(
        &self,
        identity: &Identity,
        question: AccessReview,
    ) -> Result<(), AccessError> {
        let Some(checks) = &self.checks else {
            return Ok(());
        };
        let caller = identity.0.as_ref().ok_or(AccessError::NoToken)?;
        if checks.is_allowed(caller, question.clone()).await? {
            return Ok(());
        }
        Err(AccessError::Forbidden(question))
    }

    /// Returns whether authentication is disabled.
    pub(super) fn is_auth_disabled(&self) -> bool {
        self.checks.is_none()
    }

    /// The audit log for changes and refusals.
    pub fn audit(&self) -> &AuditLog {
        &self.audit
    }
}

/// Creates the response to a refused request for a path.
pub type RefusalResponse = fn(&AccessError, &str) -> Response;

/// Middleware that guards every HTTP route.
pub async fn check(
    State((guard, refusal)): State<(Guard, RefusalResponse)>,
    mut request: Request,
    next: Next,
) -> Response {
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let peer = request.extensions().get::<Peer>();
    let peer = peer.map(|peer| peer.address().ip());
    let refuse = |caller: Option<Arc<Caller>>, refused: &AccessError| {
        let caller = (caller.as_deref(), refused);
        guard.record_refusal(method.as_str(), uri.path(), peer, caller);
        refusal(refused, uri.path())
    };
    if let Err(refused) = guard.check_host(&request) {
        return refuse(None, &refused.into());
    }
    if let Err(crossing) = check_same_site(&request) {
        return refuse(None, &crossing.into());
    }
    let Some(checks) = &guard.checks else {
        request.extensions_mut().insert(Visibility::everything());
        request.extensions_mut().insert(Identity::default());
        return next.run(request).await;
    };
    let shown =
        credentials::from_headers(request.headers(), peer, checks.trusted_sources.proxies.as_ref());
    let admitted = checks.admit(&method, &uri, &shown).await;
    let admitted = match admitted {
        Ok(admitted) => admitted,
        Err((caller, refused)) => return refuse(caller, &refused),
    };
    request.extensions_mut().insert(admitted.visibility.clone());
    let identity = Identity(admitted.caller);
    request.extensions_mut().insert(identity);
    let response = next.run(request).await;
    let right =
        Grant { checks: Arc::clone(checks), method, uri, shown, visibility: admitted.visibility };
    grant::end_on_revocation(response, right)
}

/// Rejects unsafe requests that come from another site's page.
fn check_same_site(request: &Request) -> Result<(), cross_site::CrossSiteRequest> {
    if request.method().is_safe() {
        return Ok(());
    }
    // An unreadable header counts as present, with a value that matches no page of ours.
    let text = |name: &str| {
        let value = request.headers().get(name);
        value.map(|value| value.to_str().unwrap_or_default())
    };
    cross_site::check_same_site(RequestOrigin {
        site: text("sec-fetch-site"),
        origin: text(header::ORIGIN.as_str()),
        host: requested_host(request.uri(), request.headers()),
    })
}

/// Returns the requested host and port as sent. HTTP/2 carries them in the URI. An unreadable name is returned as an
/// empty string.
pub fn requested_host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    let field = headers.get(header::HOST);
    let field = field.map(|host| host.to_str().unwrap_or_default());
    uri.authority().map(Authority::as_str).or(field)
}

impl Guard {
    /// Checks that the request is for a host name of this server. Probes are exempt because their responses reveal
    /// nothing.
    fn check_host(&self, request: &Request) -> Result<(), UnknownHost> {
        let Some(names) = &self.hosts else {
            return Ok(());
        };
        if matches!(request.uri().path(), "/healthz" | "/readyz") {
            return Ok(());
        }
        cross_site::check_host(requested_host(request.uri(), request.headers()), names)
    }

    /// Counts a refusal and, if it concerns the caller, writes it to the audit log.
    pub(super) fn record_refusal(
        &self,
        verb: &str,
        object: &str,
        peer: Option<IpAddr>,
        (caller, refused): (Option<&Caller>, &AccessError),
    ) {
        self.stats.count_http_refusal(refused.label());
        let who = caller.map(Caller::shown);
        let peer = peer.map(|peer| peer.to_string());
        if refused.is_audited() {
            self.audit.refused(&Refusal {
                caller: who.as_deref().unwrap_or_default(),
                peer: peer.as_deref().unwrap_or("unknown"),
                verb,
                object,
                why: &chain(refused),
            });
        }
    }
}

#[tonic::async_trait]
impl ReviewAccess for AccessReviewer {
    async fn authenticate(&self, token: &Token) -> Result<TokenReview, ReviewError> {
        self.tokens.review(token).await
    }

    async fn is_allowed(
        &self,
        caller: &Caller,
        question: &AccessReview,
    ) -> Result<bool, ReviewError> {
        self.is_authorized(caller, question).await
    }
}
