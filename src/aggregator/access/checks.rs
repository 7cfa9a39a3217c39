//! Authentication of callers and authorization per path, by requests to the API server.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::Query;
use axum::http::{Method as HttpMethod, Uri};
use tokio::task::JoinSet;

use super::shown::Shown;
use super::{Ask, Believed, Refused};
use crate::aggregator::asking::{Asking, Fingerprint, Health, Words};
use crate::aggregator::availability::Counter;
use crate::aggregator::stats::Stats;
use crate::domain::access::{
    Caller, MOST_TYPES, Method, Question, Resource, Row, Sight, Types, Verb,
};
use crate::domain::availability::Kind;
use crate::domain::credential::Denial;
use crate::domain::id::TypeName;

#[derive(Debug)]
pub(super) struct Checks {
    ask: Box<dyn Ask>,
    pub(super) believed: Believed,
    counter: Counter,
    stats: Stats,
    callers: Asking<Arc<Caller>, Denial>,
    rights: Asking<(), ()>,
}

/// Caller and visibility of an authorized request.
#[derive(Debug, Clone)]
pub(super) struct Admitted {
    pub(super) caller: Option<Arc<Caller>>,
    pub(super) sight: Sight,
}

/// Limits of the caches of authenticated tokens and of authorizations.
const MOST_CALLERS: usize = 2000;
const MOST_RIGHTS: usize = 20_000;

const WORDS: Words = Words {
    away: "readers cannot be checked",
    meanwhile: "who was let in within 60s still is, others are told to come again",
    back: "the API server says again who may read",
};

/// Refused caller, if known, and the reason.
pub(super) type NotIn = (Option<Arc<Caller>>, Refused);

impl Checks {
    pub(super) fn new(
        believed: Believed,
        ask: Box<dyn Ask>,
        counter: Counter,
        stats: Stats,
    ) -> Self {
        let health = Health::new(WORDS);
        Self {
            ask,
            believed,
            counter,
            stats,
            callers: Asking::new(health.clone(), MOST_CALLERS),
            rights: Asking::new(health, MOST_RIGHTS),
        }
    }

    /// Authenticates the caller and returns what they may see of the path.
    pub(super) async fn admit(
        self: &Arc<Self>,
        method: &HttpMethod,
        uri: &Uri,
        shown: &Result<Shown, Refused>,
    ) -> Result<Admitted, NotIn> {
        let path = uri.path();
        let row = Method::of(method.as_str()).and_then(|method| Row::of(method, path));
        let question = row.map(|row| row.question(path, namespace(uri).as_deref()));
        if let Some(None) = question {
            return Ok(Admitted {
                caller: None,
                sight: Sight::nothing(),
            });
        }
        let caller = self
            .caller(shown)
            .await
            .map_err(|refused| (None, refused))?;
        let (Some(row), Some(Some(question))) = (row, question) else {
            let refused = Row::methods(path).map_or(Refused::Unlisted, |allowed| {
                let method = method.as_str().chars().take(16).collect();
                Refused::Method { method, allowed }
            });
            return Err((Some(caller), refused));
        };
        match self.sight(row, question, &caller).await {
            Ok(sight) => Ok(Admitted {
                caller: Some(caller),
                sight,
            }),
            Err(refused) => Err((Some(caller), refused)),
        }
    }

    async fn caller(
        self: &Arc<Self>,
        shown: &Result<Shown, Refused>,
    ) -> Result<Arc<Caller>, Refused> {
        let token = match shown.clone()? {
            Shown::Caller(caller) => return Ok(caller),
            Shown::Token(token) => token,
        };
        let key = Fingerprint::of([token.expose()]);
        let checks = Arc::clone(self);
        let question = async move {
            let proof = checks.ask.whose(&token).await;
            let audience = checks.believed.audience.as_ref();
            let owner = proof.map(|proof| proof.judge(audience).map(Arc::new));
            checks
                .stats
                .checked("token", outcome(owner.as_ref().ok().map(Result::is_ok)));
            owner
        };
        match self.callers.about(key, question).await {
            Some(Ok(caller)) => Ok(caller),
            Some(Err(denial)) => Err(denial.into()),
            None => Err(Refused::Unchecked),
        }
    }

    /// Returns what the caller may see of a path with this row. `question` is the row's permission.
    async fn sight(
        self: &Arc<Self>,
        row: &Row,
        question: Question,
        caller: &Arc<Caller>,
    ) -> Result<Sight, Refused> {
        let nodes = if row.asks_for_nodes() {
            self.may(caller, Question::all(Verb::List, Resource::Nodes))
                .await?
        } else {
            false
        };
        let profiles = row.asks_for_profiles()
            && self
                .may(
                    caller,
                    Question::all(Verb::List, Resource::HardwareProfiles),
                )
                .await?;
        if (nodes && row.is_of_nodes()) || self.may(caller, question.clone()).await? {
            return Ok(Sight {
                types: Types::All,
                nodes,
                profiles,
            });
        }
        let types = if row.asks_by_type() {
            Types::Only(self.types(caller).await?)
        } else {
            Types::Only(BTreeSet::new())
        };
        if types.is_empty() {
            return Err(Refused::Forbidden(question));
        }
        // A reader of single types also sees the profiles that are for those types only, in every view that lists
        // profiles.
        Ok(Sight {
            types,
            nodes,
            profiles: profiles || row.asks_for_profiles(),
        })
    }

    /// Returns the known types that the caller may see one by one.
    async fn types(self: &Arc<Self>, caller: &Arc<Caller>) -> Result<BTreeSet<TypeName>, Refused> {
        let mut asked = JoinSet::new();
        for name in self.names().await {
            let (checks, caller) = (Arc::clone(self), Arc::clone(caller));
            asked.spawn(async move {
                let may = checks.may(&caller, Question::of_type(&name)).await;
                may.map(|may| (name, may))
            });
        }
        let mut seen = BTreeSet::new();
        while let Some(answer) = asked.join_next().await {
            let (name, may) = answer.map_err(|_ended| Refused::Unchecked)??;
            if may {
                seen.insert(name);
            }
        }
        Ok(seen)
    }

    /// Types of listed nodes, with or without an agent, followed by types of availability rows. Truncated to
    /// `MOST_TYPES`; types of listed nodes take precedence.
    async fn names(&self) -> Vec<TypeName> {
        let view = self.counter.view();
        let listed = view.types(&view.listed(), view.clock().now());
        let names = listed.iter().filter_map(|one| one.counts.type_name.clone());
        let mut names: Vec<TypeName> = names.collect();
        let counted = if self.counter.follows() {
            self.counter.current().await
        } else {
            None
        };
        let rows = counted.iter().flat_map(|made| &made.availability.rows);
        for row in rows.filter(|row| row.nodes > 0) {
            if let Kind::Known(name) = &row.key.kind
                && !names.contains(name)
            {
                names.push(name.clone());
            }
        }
        names.truncate(MOST_TYPES);
        names
    }

    /// Returns whether the caller may do this. Grants are cached for one minute.
    pub(super) async fn may(
        self: &Arc<Self>,
        caller: &Arc<Caller>,
        question: Question,
    ) -> Result<bool, Refused> {
        let key = fingerprint(caller, &question);
        let (checks, caller) = (Arc::clone(self), Arc::clone(caller));
        let question = async move {
            let may = checks.ask.may(&caller, &question).await;
            checks
                .stats
                .checked("right", outcome(may.as_ref().ok().copied()));
            may.map(|may| if may { Ok(()) } else { Err(()) })
        };
        let answer = self.rights.about(key, question).await;
        answer
            .map(|answer| answer.is_ok())
            .ok_or(Refused::Unchecked)
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
fn fingerprint(caller: &Caller, question: &Question) -> Fingerprint {
    let question = format!("{question:?}");
    let extra = format!("{:?}", caller.extra);
    let whole = [question.as_str(), &extra, &caller.user, &caller.uid];
    let groups = caller.groups.iter().map(String::as_str);
    Fingerprint::of(whole.into_iter().chain(groups))
}

/// The `namespace` parameter of the query. A handler rejects duplicates.
fn namespace(uri: &Uri) -> Option<String> {
    let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri).ok()?;
    let found = pairs.into_iter().find(|(name, _)| name == "namespace");
    found.map(|(_, namespace)| namespace.trim().to_owned())
}
