//! Authentication of callers and authorization per path, by requests to the API server.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::Query;
use axum::http::{Method as HttpMethod, Uri};
use octavo_fleet::access::{
    AccessReview, Caller, MAX_TYPE_REVIEWS, Method, Resource, RouteRule, Verb, Visibility,
    VisibleTypes,
};
use octavo_fleet::availability::UnitType;
use octavo_fleet::credential::Denial;
use octavo_model::id::TypeName;
use octavo_store::availability::Counter;
use octavo_store::stats::Stats;
use tokio::task::JoinSet;

use super::credentials::Credentials;
use super::{AccessError, ReviewAccess, TrustedIdentitySources};
use crate::cached_lookup::{ApiServerHealth, CachedLookup, Fingerprint, LogMessages};

#[derive(Debug)]
pub(super) struct Checks {
    ask: Box<dyn ReviewAccess>,
    pub(super) trusted_sources: TrustedIdentitySources,
    counter: Counter,
    stats: Stats,
    callers: CachedLookup<Arc<Caller>, Denial>,
    grants: CachedLookup<(), ()>,
}

/// Caller and visibility of an authorized request.
#[derive(Debug, Clone)]
pub(super) struct Admission {
    pub(super) caller: Option<Arc<Caller>>,
    pub(super) visibility: Visibility,
}

/// Limits of the caches of authenticated tokens and of authorizations.
const MAX_CALLERS: usize = 2000;
const MAX_GRANTS: usize = 20_000;

const LOG_MESSAGES: LogMessages = LogMessages {
    failed: "cannot authorize HTTP clients",
    consequence: "clients authorized within the last 60s keep access; others must retry",
    recovered: "authorization of HTTP clients works again",
};

/// Refused caller, if known, and the reason.
pub(super) type RefusedCaller = (Option<Arc<Caller>>, AccessError);

impl Checks {
    pub(super) fn new(
        trusted_sources: TrustedIdentitySources,
        ask: Box<dyn ReviewAccess>,
        counter: Counter,
        stats: Stats,
    ) -> Self {
        let health = ApiServerHealth::new(LOG_MESSAGES);
        Self {
            ask,
            trusted_sources,
            counter,
            stats,
            callers: CachedLookup::new(health.clone(), MAX_CALLERS),
            grants: CachedLookup::new(health, MAX_GRANTS),
        }
    }

    /// Authenticates the caller and returns what they may see of the path.
    pub(super) async fn admit(
        self: &Arc<Self>,
        method: &HttpMethod,
        uri: &Uri,
        shown: &Result<Credentials, AccessError>,
    ) -> Result<Admission, RefusedCaller> {
        let path = uri.path();
        let row =
            Method::from_name(method.as_str()).and_then(|method| RouteRule::find(method, path));
        let question = row.map(|row| row.review(path, namespace(uri).as_deref()));
        if let Some(None) = question {
            return Ok(Admission { caller: None, visibility: Visibility::none() });
        }
        let caller = self.caller(shown).await.map_err(|refused| (None, refused))?;
        let (Some(row), Some(Some(question))) = (row, question) else {
            let refused =
                RouteRule::allowed_methods(path).map_or(AccessError::NotFound, |allowed| {
                    let method = method.as_str().chars().take(16).collect();
                    AccessError::Method { method, allowed }
                });
            return Err((Some(caller), refused));
        };
        let pods = row.shows_pods().then(|| AccessReview::usage(namespace(uri).as_deref()));
        match self.visibility(row, (question, pods), &caller).await {
            Ok(visibility) => Ok(Admission { caller: Some(caller), visibility }),
            Err(refused) => Err((Some(caller), refused)),
        }
    }

    async fn caller(
        self: &Arc<Self>,
        shown: &Result<Credentials, AccessError>,
    ) -> Result<Arc<Caller>, AccessError> {
        let token = match shown.clone()? {
            Credentials::Caller(caller) => return Ok(caller),
            Credentials::Token(token) => token,
        };
        let key = Fingerprint::from_parts([token.expose()]);
        let checks = Arc::clone(self);
        let question = async move {
            let proof = checks.ask.authenticate(&token).await;
            let audience = checks.trusted_sources.audience.as_ref();
            let owner = proof.map(|proof| proof.authenticate(audience).map(Arc::new));
            checks.stats.checked("token", outcome(owner.as_ref().ok().map(Result::is_ok)));
            owner
        };
        match self.callers.get_or_request(key, question).await {
            Some(Ok(caller)) => Ok(caller),
            Some(Err(denial)) => Err(denial.into()),
            None => Err(AccessError::ReviewUnavailable),
        }
    }

    /// Returns what the caller may see of a path with this row. `question` is the row's permission, and `pods` that of
    /// the pods that it also shows.
    async fn visibility(
        self: &Arc<Self>,
        row: &RouteRule,
        (question, pods): (AccessReview, Option<AccessReview>),
        caller: &Arc<Caller>,
    ) -> Result<Visibility, AccessError> {
        let all_nodes = AccessReview::all(Verb::List, Resource::Nodes);
        let nodes = row.shows_nodes() && self.is_allowed(caller, all_nodes).await?;
        let all_profiles = AccessReview::all(Verb::List, Resource::HardwareProfiles);
        let profiles = row.shows_profiles() && self.is_allowed(caller, all_profiles).await?;
        let (pods, required) = match pods {
            // A caller with permission in one namespace only learns that they have to name it.
            Some(pods) => (self.is_allowed(caller, pods.clone()).await?, pods),
            None => (false, question.clone()),
        };
        if (nodes && row.allows_by_nodes()) || self.is_allowed(caller, question).await? {
            return Ok(Visibility { types: VisibleTypes::All, nodes, profiles, pods });
        }
        let types = if row.allows_by_type() { self.types(caller).await? } else { BTreeSet::new() };
        if types.is_empty() && !pods {
            return Err(AccessError::Forbidden(required));
        }
        // A reader of single types also sees the profiles that are for those types only, in every view that lists
        // profiles.
        let profiles = profiles || (row.shows_profiles() && !types.is_empty());
        Ok(Visibility { types: VisibleTypes::Only(types), nodes, profiles, pods })
    }

    /// Returns the known types that the caller may see one by one.
    async fn types(
        self: &Arc<Self>,
        caller: &Arc<Caller>,
    ) -> Result<BTreeSet<TypeName>, AccessError> {
        let mut lookups = JoinSet::new();
        for name in self.type_names().await {
            let (checks, caller) = (Arc::clone(self), Arc::clone(caller));
            lookups.spawn(async move {
                let may = checks.is_allowed(&caller, AccessReview::accelerator_type(&name)).await;
                may.map(|may| (name, may))
            });
        }
        let mut seen = BTreeSet::new();
        while let Some(result) = lookups.join_next().await {
            let (name, may) = result.map_err(|_ended| AccessError::ReviewUnavailable)??;
            if may {
                seen.insert(name);
            }
        }
        Ok(seen)
    }

    /// Types of listed nodes, with or without an agent, followed by types of availability rows. Truncated to
    /// `MAX_TYPE_REVIEWS`; types of listed nodes take precedence.
    async fn type_names(&self) -> Vec<TypeName> {
        let view = self.counter.view();
        let listed = view.types(&view.listed(), view.clock().now());
        let names = listed.iter().filter_map(|one| one.counts.type_name.clone());
        let mut names: Vec<TypeName> = names.collect();
        let counted = if self.counter.has_cluster() { self.counter.current().await } else { None };
        let rows = counted.iter().flat_map(|made| &made.availability.rows);
        for row in rows.filter(|row| row.nodes > 0) {
            if let UnitType::Known(name) = &row.key.kind
                && !names.contains(name)
            {
                names.push(name.clone());
            }
        }
        names.truncate(MAX_TYPE_REVIEWS);
        names
    }

    /// Returns whether the caller may do this. Grants are cached for one minute.
    pub(super) async fn is_allowed(
        self: &Arc<Self>,
        caller: &Arc<Caller>,
        question: AccessReview,
    ) -> Result<bool, AccessError> {
        let key = fingerprint(caller, &question);
        let (checks, caller) = (Arc::clone(self), Arc::clone(caller));
        let question = async move {
            let may = checks.ask.is_allowed(&caller, &question).await;
            checks.stats.checked("right", outcome(may.as_ref().ok().copied()));
            may.map(|may| if may { Ok(()) } else { Err(()) })
        };
        let result = self.grants.get_or_request(key, question).await;
        result.map(|answer| answer.is_ok()).ok_or(AccessError::ReviewUnavailable)
    }
}

fn outcome(good: Option<bool>) -> &'static str {
    match good {
        Some(good) if good => "accepted",
        Some(_) => "denied",
        None => "unanswered",
    }
}

/// Hashes all attributes of the caller together with the question.
fn fingerprint(caller: &Caller, question: &AccessReview) -> Fingerprint {
    let question = format!("{question:?}");
    let extra = format!("{:?}", caller.extra);
    let whole = [question.as_str(), &extra, &caller.user, &caller.uid];
    let groups = caller.groups.iter().map(String::as_str);
    Fingerprint::from_parts(whole.into_iter().chain(groups))
}

/// The `namespace` parameter of the query. A handler rejects duplicates.
fn namespace(uri: &Uri) -> Option<String> {
    let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri).ok()?;
    let found = pairs.into_iter().find(|(name, _)| name == "namespace");
    found.map(|(_, namespace)| namespace.trim().to_owned())
}
