//! Creation of hardware profiles in the cluster for authorized users, if the aggregator was started with it.
//!
//! ```text
//!  page, API --> Maker: authorized by RBAC? --> k8s: read, dry run or apply --> one line in the audit log
//! ```
//!
//! Profiles are written with the aggregator's own permissions, so the user's permissions are checked first. If
//! authentication is disabled, only pages and programs on this machine can create profiles. Profiles are created one at
//! a time. A started creation is completed and logged, even if the client disconnects or the aggregator is shutting
//! down.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use serde_json::{Value, json};
use thiserror::Error;
use tokio::sync::{Mutex, OnceCell, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::warn;

use super::access::{Guard, Identity, Refused, host};
use super::audit::{Change, Outcome as Told};
use super::peer::Peer;
use crate::domain::access::{Question, crossing};
use crate::domain::error::chain;
use crate::domain::hardware_profile::{CREATED_BY, ProfileKey, REASON};
use crate::k8s::hardware_profiles::{
    Applied, DryRun, Existing, Outcome, Trouble, WriteError, Writer, key,
};
use crate::wire::hardware_profiles::annotate;

/// Creates profiles. Clones share one state.
#[derive(Debug, Clone)]
pub struct Maker(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    writer: Writer,
    guard: Guard,
    /// Identity of the aggregator according to the API server.
    own: OnceCell<String>,
    turn: Mutex<()>,
    /// Slots for running attempts.
    room: Arc<Semaphore>,
}

/// Requester of a profile.
#[derive(Debug, Clone, Default)]
pub struct Who {
    identity: Identity,
    peer: Option<IpAddr>,
    /// The `Host` of the request.
    host: String,
    /// Whether a header shows that a proxy forwarded the request.
    is_passed_on: bool,
}

/// Request to create a profile.
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    /// The object.
    pub object: Value,
    /// Reason given by the user.
    pub reason: Option<String>,
    /// Handling of an existing profile of the same name.
    pub existing: Existing,
    /// Whether to validate the request only.
    pub dry: DryRun,
}

/// Reason why a profile was not created.
#[derive(Debug, Error)]
pub enum NotMade {
    /// The object has no namespace.
    #[error("say the namespace: OpenDataHub's own is opendatahub or redhat-ods-applications")]
    NoNamespace,
    /// Authentication is disabled, and the request did not come from this machine.
    #[error(
        "whoever reaches this server is not asked who they are, so only this machine may make something: open it as localhost, or start \
         it with --http-auth token-review or proxy-header (it was reached {0})"
    )]
    Elsewhere(String),
    /// The requester lacks the permission.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The API server rejected the object or did not answer.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Too many other attempts are running.
    #[error("other profiles are being made just now, and nothing was sent for this one; try again")]
    Busy,
    /// The task that creates the profile panicked.
    #[error("something went wrong here in the middle of it; look at the profile, and try again")]
    Ended,
}

/// Total time limit of the API server's answers.
const DEADLINE: Duration = Duration::from_secs(10);
/// Time limit of waiting for earlier attempts.
const TURN: Duration = Duration::from_secs(3);
/// Maximum number of concurrent attempts, including those that wait.
const AT_ONCE: usize = 16;

impl Maker {
    /// Creates profiles with the permissions of `writer` for users whom `guard` authorizes.
    pub fn new(writer: Writer, guard: Guard) -> Self {
        Self(Arc::new(Inner {
            writer,
            guard,
            own: OnceCell::new(),
            turn: Mutex::new(()),
            room: Arc::new(Semaphore::new(AT_ONCE)),
        }))
    }

    /// Checks that the requester is allowed to create this profile, or to replace an existing one.
    ///
    /// # Errors
    ///
    /// The reason for the refusal.
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
        // A foreign page can point its own host name at this machine (DNS rebinding); such a name is refused.
        if guard.is_open() && !is_this_machine(&who.host) {
            let host: String = who.host.chars().take(64).collect();
            return Err(NotMade::Elsewhere(format!("as {host:?}")));
        }
        // A client behind a local proxy can be on any machine.
        if guard.is_open() && who.is_passed_on {
            return Err(NotMade::Elsewhere("through a proxy".to_owned()));
        }
        let new = Question::new_profile(&key.namespace);
        guard.may(&who.identity, new).await?;
        // The answer reveals an existing profile of this name, so the requester must be allowed to read it.
        let read = Question::profile_read(key);
        guard.may(&who.identity, read).await?;
        if existing == Existing::Replace {
            let changed = Question::profile_changed(key);
            guard.may(&who.identity, changed).await?;
        }
        Ok(())
    }

    /// Creates the profile and logs it.
    ///
    /// # Errors
    ///
    /// The reason why it was not created. Without an answer of the API server, it may exist nevertheless.
    pub async fn make(&self, who: &Who, order: Order) -> Result<Applied, NotMade> {
        let key = key(&order.object);
        let may = self.may(who, &key, order.existing).await;
        if let Err(why) = may {
            self.tell_refusal(who, (verb(order.existing), &key), &why);
            return Err(why);
        }
        let (maker, who) = (self.clone(), who.clone());
        let room = Arc::clone(&self.0.room).try_acquire_owned();
        let room = room.map_err(|_full| NotMade::Busy)?;
        // A separate task: the client may disconnect, and the outcome must still be logged.
        let doing = tokio::spawn(async move {
            let made = maker.finish(&who, &key, order).await;
            drop(room);
            made
        });
        doing.await.unwrap_or(Err(NotMade::Ended))
    }

    /// Waits for running attempts and rejects new ones.
    pub async fn ended(&self) {
        if self.0.room.available_permits() < AT_ONCE {
            warn!("a hardware profile is being made; its end is waited for");
        }
        let all = u32::try_from(AT_ONCE).unwrap_or(u32::MAX);
        let _all = self.0.room.acquire_many(all).await;
        self.0.room.close();
    }

    async fn finish(&self, who: &Who, key: &ProfileKey, order: Order) -> Result<Applied, NotMade> {
        let Order {
            mut object,
            reason,
            existing,
            dry,
        } = order;
        // A dry run changes nothing, so it does not wait for others.
        let _turn = match dry {
            DryRun::No => {
                let turn = timeout(TURN, self.0.turn.lock()).await;
                Some(turn.map_err(|_late| NotMade::Busy)?)
            }
            DryRun::Server => None,
        };
        let deadline = Instant::now() + DEADLINE;
        // The name is left empty if it cannot be resolved in time.
        let who = timeout_at(deadline, self.name(who)).await;
        let who = who.unwrap_or_default();
        let why = reason.as_deref().unwrap_or_default();
        annotate(&mut object, CREATED_BY, &who);
        annotate(&mut object, REASON, why);
        let (named, wanted) = (format!("HardwareProfile {key}"), state(&object));
        let change = Change {
            who: &who,
            verb: verb(existing),
            object: &named,
            before: "",
            after: &wanted,
            why,
        };
        let audit = self.0.guard.audit();
        // Also logged beforehand, because the process may be killed before it knows the outcome.
        if dry == DryRun::No {
            audit.changed(&change, Told::Begun);
        }
        let making = self.0.writer.apply(&object, dry, existing);
        let made = timeout_at(deadline, making).await;
        let made = made.unwrap_or_else(|_late| Err(WriteError::Late(key.clone())));
        let told = told(&made, dry);
        match &made {
            Ok(made) => {
                let verb = match made.outcome {
                    Outcome::Created | Outcome::Unchanged => "create",
                    Outcome::Replaced => "replace",
                };
                let before = made.before.as_ref().map(state).unwrap_or_default();
                let (before, after) = (&before, &state(&made.object));
                let change = Change {
                    verb,
                    before,
                    after,
                    ..change
                };
                audit.changed(&change, told);
            }
            Err(error) => {
                let after = &chain(error);
                audit.changed(&Change { after, ..change }, told);
            }
        }
        Ok(made?)
    }

    fn tell_refusal(&self, who: &Who, (verb, key): (&str, &ProfileKey), why: &NotMade) {
        let caller = who.identity.0.as_deref();
        let object = format!("HardwareProfile {key}");
        let guard = &self.0.guard;
        match why {
            NotMade::Refused(refused) => {
                guard.tell(verb, &object, who.peer, (caller, refused));
            }
            NotMade::Elsewhere(_) => {
                let refused = crossing::Crossing.into();
                guard.tell(verb, &object, who.peer, (caller, &refused));
            }
            NotMade::NoNamespace | NotMade::Write(_) | NotMade::Busy | NotMade::Ended => {}
        }
    }

    /// Name of the requester; of the aggregator itself if authentication is disabled.
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
        let host = host(&parts.uri, &parts.headers);
        Ok(Self {
            identity: identity.unwrap_or_default(),
            peer: peer.map(|peer| peer.address().ip()),
            host: host.unwrap_or_default().to_owned(),
            is_passed_on: is_passed_on(&parts.headers),
        })
    }
}

impl NotMade {
    /// Returns whether the profile may have been created nevertheless.
    pub fn is_unknown(&self, dry: DryRun) -> bool {
        dry == DryRun::No
            && match self {
                Self::Write(error) => error.trouble() == Trouble::Away,
                Self::Ended => true,
                Self::NoNamespace | Self::Elsewhere(_) | Self::Refused(_) | Self::Busy => false,
            }
    }
}

/// Verb of the attempt, for the audit log.
fn verb(existing: Existing) -> &'static str {
    match existing {
        Existing::Keep => "create",
        Existing::Replace => "replace",
    }
}

/// Outcome for the audit log.
fn told(made: &Result<Applied, WriteError>, dry: DryRun) -> Told {
    match (made, dry) {
        (Ok(made), DryRun::No) if made.outcome == Outcome::Unchanged => Told::Unchanged,
        (Ok(_), DryRun::No) => Told::Done,
        (Ok(_), DryRun::Server) => Told::DryRun,
        (Err(_), DryRun::Server) => Told::DryRunFailed,
        (Err(error), DryRun::No) => match error.trouble() {
            Trouble::Away => Told::Unknown,
            Trouble::Taken | Trouble::Refused => Told::Failed,
        },
    }
}

/// The object's annotations and spec on one line.
fn state(object: &Value) -> String {
    let metadata = object.get("metadata");
    let annotations = metadata.and_then(|metadata| metadata.get("annotations"));
    json!({"annotations": annotations, "spec": object.get("spec")}).to_string()
}

/// Returns whether the request has a header that only proxies set.
fn is_passed_on(headers: &HeaderMap) -> bool {
    headers.keys().map(header::HeaderName::as_str).any(|name| {
        matches!(name, "forwarded" | "via" | "x-real-ip") || name.starts_with("x-forwarded-")
    })
}

/// Returns whether the requested host is this machine. A foreign page can point its own name at this machine, but
/// cannot make the browser send a different `Host`.
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
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::http::{Request, Response, StatusCode};
    use kube::client::Body;
    use tokio::task::JoinSet;

    use super::*;
    use crate::aggregator::stats::Stats;

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

    #[test]
    fn what_a_proxy_passed_on_is_known_by_what_it_says_of_that() {
        for (name, is) in [
            ("X-Forwarded-For", true),
            ("x-forwarded-proto", true),
            ("Forwarded", true),
            ("Via", true),
            ("X-Real-IP", true),
            ("Host", false),
            ("User-Agent", false),
        ] {
            let mut headers = HeaderMap::new();
            let name: header::HeaderName = name.parse().unwrap();
            headers.insert(name.clone(), "1".parse().unwrap());
            assert_eq!(is_passed_on(&headers), is, "{name}");
        }
    }

    #[test]
    fn what_nobody_knows_is_told_as_that_and_what_was_only_tried_as_tried() {
        let late = || WriteError::Late(ProfileKey::default());
        for (error, dry, expected) in [
            (late(), DryRun::No, Told::Unknown),
            (late(), DryRun::Server, Told::DryRunFailed),
            (WriteError::NoKind, DryRun::No, Told::Failed),
            (WriteError::NoKind, DryRun::Server, Told::DryRunFailed),
        ] {
            let word = error.to_string();
            let made: Result<Applied, WriteError> = Err(error);
            assert_eq!(told(&made, dry), expected, "{word} {dry:?}");
            let why = made.map_err(NotMade::Write).err();
            let is_unknown = why.is_some_and(|why| why.is_unknown(dry));
            assert_eq!(is_unknown, expected == Told::Unknown, "{word}");
        }
        assert!(NotMade::Ended.is_unknown(DryRun::No));
        assert!(!NotMade::Ended.is_unknown(DryRun::Server));
        assert!(!NotMade::Busy.is_unknown(DryRun::No));
    }

    /// A requester on this machine, with authentication disabled.
    fn here() -> Who {
        Who {
            host: "localhost:8443".to_owned(),
            ..Who::default()
        }
    }

    fn order(dry: DryRun) -> Order {
        Order {
            object: json!({"metadata": {"namespace": "team", "name": "large"}}),
            reason: None,
            existing: Existing::Keep,
            dry,
        }
    }

    /// A `Maker` whose API server answers 404 as soon as a permit is available, and the number of requests it received.
    fn maker(may: &Arc<Semaphore>) -> (Maker, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let (count, may) = (Arc::clone(&asked), Arc::clone(may));
        let service = tower::service_fn(move |_: Request<Body>| {
            count.fetch_add(1, Ordering::SeqCst);
            let may = Arc::clone(&may);
            async move {
                let _permit = may.acquire().await;
                let body = r#"{"kind":"Status","status":"Failure","message":"no such kind","reason":"NotFound","code":404}"#;
                let answer = Response::builder().status(StatusCode::NOT_FOUND);
                Ok::<_, Infallible>(answer.body(Body::from(body.as_bytes().to_vec())).unwrap())
            }
        });
        let guard = Guard::open(Stats::default());
        let writer = Writer::new(kube::Client::new(service, "default"));
        (Maker::new(writer, guard), asked)
    }

    #[tokio::test(start_paused = true)]
    async fn one_is_made_at_a_time_who_waits_too_long_is_told_and_what_is_only_tried_waits_for_nobody()
     {
        let (maker, asked) = maker(&Arc::new(Semaphore::new(1)));
        let turn = maker.0.turn.lock().await;
        let busy = maker.make(&here(), order(DryRun::No)).await;
        assert!(matches!(busy, Err(NotMade::Busy)), "{busy:?}");
        assert_eq!(asked.load(Ordering::SeqCst), 0);
        let tried = maker.make(&here(), order(DryRun::Server)).await;
        assert!(matches!(tried, Err(NotMade::Write(_))), "{tried:?}");
        drop(turn);
        let made = maker.make(&here(), order(DryRun::No)).await;
        assert!(matches!(made, Err(NotMade::Write(_))), "{made:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn more_than_can_be_waited_for_are_sent_away_at_once() {
        let may = Arc::new(Semaphore::new(0));
        let (maker, _asked) = maker(&may);
        let who = here();
        let mut attempts: JoinSet<Result<Applied, NotMade>> = JoinSet::new();
        for _ in 0..=AT_ONCE {
            let (maker, who) = (maker.clone(), who.clone());
            attempts.spawn(async move { maker.make(&who, order(DryRun::Server)).await });
        }
        // All others wait for the API server.
        let first = attempts.join_next().await.unwrap().unwrap();
        assert!(matches!(first, Err(NotMade::Busy)), "{first:?}");
        may.close();
        for other in attempts.join_all().await {
            assert!(matches!(other, Err(NotMade::Write(_))), "{other:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_waits_for_what_is_being_made_also_where_nobody_else_does() {
        let may = Arc::new(Semaphore::new(0));
        let (maker, asked) = maker(&may);
        let who = here();
        let gone = timeout(
            Duration::from_millis(1),
            maker.make(&who, order(DryRun::No)),
        )
        .await;
        assert!(gone.is_err());
        let mut end = Box::pin(maker.ended());
        let waits = timeout(Duration::from_millis(1), &mut end).await;
        assert!(waits.is_err());
        let late = maker.make(&who, order(DryRun::No)).await;
        assert!(matches!(late, Err(NotMade::Busy)), "{late:?}");
        may.close();
        end.await;
        assert!(asked.load(Ordering::SeqCst) > 0);
        let after = maker.make(&who, order(DryRun::No)).await;
        assert!(matches!(after, Err(NotMade::Busy)), "{after:?}");
    }
}
