//! Hardware profiles made in the cluster for people who may make them there; only where the aggregator was started for that.
//!
//! ```text
//!  page, API --> Maker: may they, by the cluster's roles? --> k8s: as it is, dry run or apply --> one line of audit
//! ```
//!
//! What is written is written with the aggregator's own rights, so it is asked first whether the person could do the same with
//! theirs. Where nobody is asked who they are, only this machine's own pages and programs may. One profile is made at a time, and
//! what was begun is finished and told of, also when whoever asked for it has gone.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::header;
use axum::http::request::Parts;
use axum::http::uri::Authority;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::sync::{Mutex, OnceCell};
use tokio::time::{Instant, timeout_at};

use super::access::{Guard, Identity, Refused};
use super::audit::{Change, Outcome as Told};
use super::peer::Peer;
use crate::domain::access::{Question, crossing};
use crate::domain::error::chain;
use crate::domain::hardware_profile::{CREATED_BY, ProfileKey, REASON};
use crate::k8s::hardware_profiles::{Applied, DryRun, Existing, Outcome, WriteError, Writer, key};

/// Makes profiles. Clones are one.
#[derive(Debug, Clone)]
pub struct Maker(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    writer: Writer,
    guard: Guard,
    /// Who the API server says that the aggregator is.
    own: OnceCell<String>,
    turn: Mutex<()>,
}

/// Who wants one.
#[derive(Debug, Clone, Default)]
pub struct Who {
    identity: Identity,
    peer: Option<IpAddr>,
    /// How they name this server.
    host: String,
}

/// What is to be made, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    /// The object.
    pub object: Value,
    /// Why.
    pub reason: Option<String>,
    /// What is done with one of its name.
    pub existing: Existing,
    /// Whether it is only tried.
    pub dry: DryRun,
}

/// Why it was not made.
#[derive(Debug, Error)]
pub enum NotMade {
    /// It has no namespace.
    #[error("say the namespace: OpenDataHub's own is opendatahub or redhat-ods-applications")]
    NoNamespace,
    /// Nobody is asked who they are, and it came as if from another machine.
    #[error(
        "whoever reaches this server is not asked who they are, so only this machine may make something: open it as localhost, or start \
         it with --http-auth token-review or proxy-header (it was reached as {0:?})"
    )]
    Elsewhere(String),
    /// They may not.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// It was tried.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Something is wrong here.
    #[error("it is not known whether it was made; look at it, and try again")]
    Ended,
}

/// How long it may take in all: the API server's answers, and waiting for others' turns.
const DEADLINE: Duration = Duration::from_secs(10);

impl Maker {
    /// One that writes with these rights, for whom `guard` lets.
    pub fn new(writer: Writer, guard: Guard) -> Self {
        Self(Arc::new(Inner {
            writer,
            guard,
            own: OnceCell::new(),
            turn: Mutex::new(()),
        }))
    }

    /// Whether somebody may make this one, or put it in the place of another.
    ///
    /// # Errors
    ///
    /// Why not.
    pub async fn may(
        &self,
        who: &Who,
        key: &ProfileKey,
        existing: Existing,
    ) -> Result<(), NotMade> {
        if key.namespace.is_empty() {
            return Err(NotMade::NoNamespace);
        }
        let guard = &self.0.guard;
        // A name that somebody else's page gave to this machine is none of this machine's.
        if guard.is_open() && !is_this_machine(&who.host) {
            let host = who.host.chars().take(64).collect();
            return Err(NotMade::Elsewhere(host));
        }
        let new = Question::new_profile(&key.namespace);
        guard.may(&who.identity, new).await?;
        if existing == Existing::Replace {
            let changed = Question::profile_changed(key);
            guard.may(&who.identity, changed).await?;
        }
        Ok(())
    }

    /// Makes it, and tells of it.
    ///
    /// # Errors
    ///
    /// Why it was not made; without an answer of the API server it may be.
    pub async fn make(&self, who: &Who, order: Order) -> Result<Applied, NotMade> {
        let key = key(&order.object);
        let may = self.may(who, &key, order.existing).await;
        if let Err(why) = may {
            self.tell_refusal(who, &key, &why);
            return Err(why);
        }
        let (maker, who) = (self.clone(), who.clone());
        // A task of its own: who asked may go away, and what is done is told of.
        let doing = tokio::spawn(async move { maker.finish(&who, &key, order).await });
        match doing.await {
            Ok(made) => Ok(made?),
            Err(_ended) => Err(NotMade::Ended),
        }
    }

    async fn finish(
        &self,
        who: &Who,
        key: &ProfileKey,
        order: Order,
    ) -> Result<Applied, WriteError> {
        let Order {
            mut object,
            reason,
            existing,
            dry,
        } = order;
        let deadline = Instant::now() + DEADLINE;
        // A name that cannot be had in time is left out.
        let who = timeout_at(deadline, self.name(who)).await;
        let who = who.unwrap_or_default();
        annotate(&mut object, CREATED_BY, Some(&who));
        annotate(&mut object, REASON, reason.as_deref());
        let making = async {
            let _turn = self.0.turn.lock().await;
            self.0.writer.apply(&object, dry, existing).await
        };
        let made = timeout_at(deadline, making).await;
        let made = made.unwrap_or_else(|_late| Err(WriteError::Late(key.clone())));
        let named = format!("HardwareProfile {key}");
        let (verb, before, after, told) = match &made {
            Ok(made) => {
                let verb = match made.outcome {
                    Outcome::Created | Outcome::Unchanged => "create",
                    Outcome::Replaced => "replace",
                };
                let told = match dry {
                    DryRun::No => Told::Done,
                    DryRun::Server => Told::DryRun,
                };
                let before = made.before.as_ref().map(state).unwrap_or_default();
                (verb, before, state(&made.object), told)
            }
            Err(error) => ("create", String::new(), chain(error), Told::Failed),
        };
        let change = Change {
            who: &who,
            verb,
            object: &named,
            before: &before,
            after: &after,
            why: reason.as_deref().unwrap_or_default(),
        };
        self.0.guard.audit().changed(&change, told);
        made
    }

    fn tell_refusal(&self, who: &Who, key: &ProfileKey, why: &NotMade) {
        let caller = who.identity.0.as_deref();
        let object = format!("HardwareProfile {key}");
        let guard = &self.0.guard;
        match why {
            NotMade::Refused(refused) => {
                guard.tell("create", &object, who.peer, (caller, refused));
            }
            NotMade::Elsewhere(_) => {
                let refused = crossing::Crossing.into();
                guard.tell("create", &object, who.peer, (caller, &refused));
            }
            NotMade::NoNamespace | NotMade::Write(_) | NotMade::Ended => {}
        }
    }

    /// Who that is; the aggregator itself where nobody is asked.
    async fn name(&self, who: &Who) -> String {
        if let Some(caller) = &who.identity.0 {
            return caller.shown();
        }
        let asked = async { self.0.writer.user().await.ok_or(()) };
        let own = self.0.own.get_or_try_init(|| asked).await;
        own.cloned().unwrap_or_default()
    }
}

impl<S: Sync> FromRequestParts<S> for Who {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let identity = parts.extensions.get::<Identity>().cloned();
        let peer = parts.extensions.get::<Peer>();
        let host = parts.headers.get(header::HOST);
        let host = host.and_then(|host| host.to_str().ok());
        let host = parts.uri.authority().map(Authority::as_str).or(host);
        Ok(Self {
            identity: identity.unwrap_or_default(),
            peer: peer.map(|peer| peer.address().ip()),
            host: host.unwrap_or_default().to_owned(),
        })
    }
}

/// What people said of it, and what it asks for, on one line.
fn state(object: &Value) -> String {
    let metadata = object.get("metadata");
    let annotations = metadata.and_then(|metadata| metadata.get("annotations"));
    json!({"annotations": annotations, "spec": object.get("spec")}).to_string()
}

fn annotate(object: &mut Value, key: &str, text: Option<&str>) {
    let text = text.filter(|text| !text.is_empty());
    let annotations = object
        .get_mut("metadata")
        .and_then(|metadata| metadata.get_mut("annotations"))
        .and_then(Value::as_object_mut);
    if let (Some(annotations), Some(text)) = (annotations, text) {
        annotations.insert(key.to_owned(), json!(text));
    }
}

/// Whether a host, as a request names it, is the machine that the request was made on: a page can have a name of its own lead there,
/// and cannot have the request name another host than that.
fn is_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or("", |(name, _port)| name),
        None => host.rsplit_once(':').map_or(host, |(name, _port)| name),
    };
    name.eq_ignore_ascii_case("localhost")
        || name
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_known_by_its_own_names_alone() {
        for (host, is) in [
            ("localhost", true),
            ("LOCALHOST:8443", true),
            ("127.0.0.1:8443", true),
            ("127.9.9.9", true),
            ("[::1]:8443", true),
            ("[::1]", true),
            ("", false),
            ("evil.example:8443", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example:80", false),
            ("10.0.0.1:8443", false),
            ("[::2]:1", false),
            ("[::1", false),
        ] {
            assert_eq!(is_this_machine(host), is, "{host}");
        }
    }
}
