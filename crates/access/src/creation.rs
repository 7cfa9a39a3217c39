//! Creation of hardware profiles in the cluster for authorized users, if the aggregator was started with it.
//!
//! ```text
//!  page, API --> ProfileCreator: authorized by RBAC? --> octavo_kube: read, dry run or apply --> one line in the audit log
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
use octavo_fleet::access::{AccessReview, cross_site};
use octavo_fleet::hardware_profile::object::annotate;
use octavo_fleet::hardware_profile::{CREATED_BY_ANNOTATION, ProfileKey, REASON_ANNOTATION};
use octavo_kube::hardware_profiles::{
    Applied, DryRun, ErrorCategory, Existing, Outcome, ProfileWriter, WriteError, key,
};
use octavo_ledger::audit::{ChangeOutcome, ChangeVerb};
use octavo_store::peer::Peer;
use octavo_toolkit::error::chain;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::sync::{Mutex, OnceCell, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::warn;

use super::audit::Change;
use super::guard::{AccessError, Guard, Identity, requested_host};

/// Message if profile creation is disabled.
pub const CREATION_DISABLED: &str = "the aggregator was started without --create-profiles; `octavo profiles create` creates a profile with your \
    own permissions";

/// Creates profiles. Clones share one state.
#[derive(Debug, Clone)]
pub struct ProfileCreator(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    writer: ProfileWriter,
    guard: Guard,
    /// Identity of the aggregator according to the API server.
    identity: OnceCell<String>,
    lock: Mutex<()>,
    /// Slots for running attempts.
    slots: Arc<Semaphore>,
}

/// Requester of a profile.
#[derive(Debug, Clone, Default)]
pub struct Requester {
    identity: Identity,
    peer: Option<IpAddr>,
    /// The `Host` of the request.
    host: String,
    /// Whether a header shows that a proxy forwarded the request.
    is_forwarded: bool,
}

/// Request to create a profile.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateRequest {
    /// The object.
    pub object: Value,
    /// Reason given by the user.
    pub reason: Option<String>,
    /// Handling of an existing profile of the same name.
    pub existing: Existing,
    /// Whether to validate the request only.
    pub dry_run: DryRun,
}

/// Reason why a profile was not created.
#[derive(Debug, Error)]
pub enum CreateError {
    /// The object has no namespace.
    #[error(
        "the namespace is missing; the namespaces of OpenDataHub are opendatahub and redhat-ods-applications"
    )]
    NoNamespace,
    /// Authentication is disabled, and the request did not come from this machine.
    #[error(
        "the aggregator does not authenticate clients, so it accepts changes only from its own machine, and \
         this request was reached {0}; open the page as localhost, or start the aggregator with --http-auth \
         token-review or proxy-header"
    )]
    NotLocal(String),
    /// The requester lacks the permission.
    #[error(transparent)]
    Unauthorized(#[from] AccessError),
    /// The API server rejected the object or did not answer.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Too many other attempts are running.
    #[error("too many profile creations are in progress; nothing was sent for this one, retry")]
    Busy,
    /// The task that creates the profile panicked.
    #[error(
        "creating the profile failed because of an internal error; check whether the profile exists, then retry"
    )]
    Panicked,
}

/// Total time limit of the API server's answers.
const API_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit of waiting for earlier attempts.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum number of concurrent attempts, including those that wait.
const MAX_CONCURRENT: usize = 16;

impl ProfileCreator {
    /// Creates profiles with the permissions of `writer` for users whom `guard` authorizes.
    pub fn new(writer: ProfileWriter, guard: Guard) -> Self {
        Self(Arc::new(Inner {
            writer,
            guard,
            identity: OnceCell::new(),
            lock: Mutex::new(()),
            slots: Arc::new(Semaphore::new(MAX_CONCURRENT)),
        }))
    }

    /// Checks that the requester is allowed to create this profile, or to replace an existing one.
    ///
    /// # Errors
    ///
    /// The reason for the refusal.
    pub async fn authorize(
        &self,
        who: &Requester,
        key: &ProfileKey,
        existing: Existing,
    ) -> Result<(), CreateError> {
        if key.namespace.is_empty() {
            return Err(CreateError::NoNamespace);
        }
        let guard = &self.0.guard;
        // A foreign page can point its own host name at this machine (DNS rebinding); such a name is refused.
        if guard.is_auth_disabled() && !is_this_machine(&who.host) {
            let host: String = who.host.chars().take(64).collect();
            return Err(CreateError::NotLocal(format!("as {host:?}")));
        }
        // A client behind a local proxy can be on any machine.
        if guard.is_auth_disabled() && who.is_forwarded {
            return Err(CreateError::NotLocal("through a proxy".to_owned()));
        }
        let new = AccessReview::create_profile(&key.namespace);
        guard.authorize(&who.identity, new).await?;
        // The answer reveals an existing profile of this name, so the requester must be allowed to read it.
        let read = AccessReview::read_profile(key);
        guard.authorize(&who.identity, read).await?;
        if existing == Existing::Replace {
            let changed = AccessReview::change_profile(key);
            guard.authorize(&who.identity, changed).await?;
        }
        Ok(())
    }

    /// Creates the profile and logs it.
    ///
    /// # Errors
    ///
    /// The reason why it was not created. Without an answer of the API server, it may exist nevertheless.
    pub async fn create(
        &self,
        who: &Requester,
        order: CreateRequest,
    ) -> Result<Applied, CreateError> {
        let key = key(&order.object);
        let may = self.authorize(who, &key, order.existing).await;
        if let Err(why) = may {
            self.log_refusal(who, (verb(order.existing), &key), &why);
            return Err(why);
        }
        let (creator, requester) = (self.clone(), who.clone());
        let permit = Arc::clone(&self.0.slots).try_acquire_owned();
        let permit = permit.map_err(|_full| CreateError::Busy)?;
        // A separate task: the client may disconnect, and the outcome must still be logged.
        let doing = tokio::spawn(async move {
            let made = creator.run(&requester, &key, order).await;
            drop(permit);
            made
        });
        doing.await.unwrap_or(Err(CreateError::Panicked))
    }

    /// Waits for running attempts and rejects new ones.
    pub async fn ended(&self) {
        if self.0.slots.available_permits() < MAX_CONCURRENT {
            warn!("waiting for running creations of hardware profiles");
        }
        let all = u32::try_from(MAX_CONCURRENT).unwrap_or(u32::MAX);
        let _all = self.0.slots.acquire_many(all).await;
        self.0.slots.close();
    }

    async fn run(
        &self,
        who: &Requester,
        key: &ProfileKey,
        order: CreateRequest,
    ) -> Result<Applied, CreateError> {
        let CreateRequest { mut object, reason, existing, dry_run: dry } = order;
        // A dry run changes nothing, so it does not wait for others.
        let _queue_guard = match dry {
            DryRun::No => {
                let queue_guard = timeout(QUEUE_TIMEOUT, self.0.lock.lock()).await;
                Some(queue_guard.map_err(|_late| CreateError::Busy)?)
            }
            DryRun::Server => None,
        };
        let deadline = Instant::now() + API_TIMEOUT;
        // The name is left empty if it cannot be resolved in time.
        let who = timeout_at(deadline, self.requester_name(who)).await;
        let who = who.unwrap_or_default();
        let why = reason.as_deref().unwrap_or_default();
        annotate(&mut object, CREATED_BY_ANNOTATION, &who);
        annotate(&mut object, REASON_ANNOTATION, why);
        let (named, wanted) = (format!("HardwareProfile {key}"), audit_state(&object));
        let change = Change {
            caller: &who,
            verb: verb(existing),
            namespace: &key.namespace,
            object: &named,
            before: "",
            after: &wanted,
            why,
        };
        let audit = self.0.guard.audit();
        // Also logged beforehand, because the process may be killed before it knows the outcome.
        if dry == DryRun::No {
            audit.log_change(&change, ChangeOutcome::Started).await;
        }
        let making = self.0.writer.apply(&object, dry, existing);
        let made = timeout_at(deadline, making).await;
        let made = made.unwrap_or_else(|_late| Err(WriteError::TimedOut(key.clone())));
        let outcome = audit_outcome(&made, dry);
        match &made {
            Ok(made) => {
                let verb = match made.outcome {
                    Outcome::Created | Outcome::Unchanged => ChangeVerb::Create,
                    Outcome::Replaced => ChangeVerb::Replace,
                };
                let before = made.before.as_ref().map(audit_state).unwrap_or_default();
                let (before, after) = (&before, &audit_state(&made.object));
                let change = Change { verb, before, after, ..change };
                audit.log_change(&change, outcome).await;
            }
            Err(error) => {
                let after = &chain(error);
                audit.log_change(&Change { after, ..change }, outcome).await;
            }
        }
        Ok(made?)
    }

    fn log_refusal(
        &self,
        who: &Requester,
        (verb, key): (ChangeVerb, &ProfileKey),
        why: &CreateError,
    ) {
        let caller = who.identity.0.as_deref();
        let object = format!("HardwareProfile {key}");
        let guard = &self.0.guard;
        match why {
            CreateError::Unauthorized(refused) => {
                guard.record_refusal(verb.into(), &object, who.peer, (caller, refused));
            }
            CreateError::NotLocal(_) => {
                let refused = cross_site::CrossSiteRequest.into();
                guard.record_refusal(verb.into(), &object, who.peer, (caller, &refused));
            }
            CreateError::NoNamespace
            | CreateError::Write(_)
            | CreateError::Busy
            | CreateError::Panicked => {}
        }
    }

    /// Name of the requester; of the aggregator itself if authentication is disabled.
    async fn requester_name(&self, who: &Requester) -> String {
        if let Some(caller) = &who.identity.0 {
            return caller.shown();
        }
        let user = async { self.0.writer.user().await.ok_or(()) };
        let own = self.0.identity.get_or_try_init(|| user).await;
        own.cloned().unwrap_or_default()
    }
}

impl<S: Sync> FromRequestParts<S> for Requester {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let identity = parts.extensions.get::<Identity>().cloned();
        let peer = parts.extensions.get::<Peer>();
        let host = requested_host(&parts.uri, &parts.headers);
        Ok(Self {
            identity: identity.unwrap_or_default(),
            peer: peer.map(|peer| peer.address().ip()),
            host: host.unwrap_or_default().to_owned(),
            is_forwarded: is_forwarded(&parts.headers),
        })
    }
}

impl CreateError {
    /// Returns whether the profile may have been created nevertheless.
    pub fn may_have_succeeded(&self, dry: DryRun) -> bool {
        dry == DryRun::No
            && match self {
                Self::Write(error) => error.category() == ErrorCategory::Unavailable,
                Self::Panicked => true,
                Self::NoNamespace | Self::NotLocal(_) | Self::Unauthorized(_) | Self::Busy => false,
            }
    }
}

/// Verb of the attempt, for the audit log.
fn verb(existing: Existing) -> ChangeVerb {
    match existing {
        Existing::Keep => ChangeVerb::Create,
        Existing::Replace => ChangeVerb::Replace,
    }
}

/// Outcome for the audit log.
fn audit_outcome(made: &Result<Applied, WriteError>, dry: DryRun) -> ChangeOutcome {
    match (made, dry) {
        (Ok(made), DryRun::No) if made.outcome == Outcome::Unchanged => ChangeOutcome::Unchanged,
        (Ok(_), DryRun::No) => ChangeOutcome::Succeeded,
        (Ok(_), DryRun::Server) => ChangeOutcome::DryRun,
        (Err(_), DryRun::Server) => ChangeOutcome::DryRunFailed,
        (Err(error), DryRun::No) => match error.category() {
            ErrorCategory::Unavailable => ChangeOutcome::Unknown,
            ErrorCategory::Conflict | ErrorCategory::Rejected => ChangeOutcome::Failed,
        },
    }
}

/// The object's annotations and spec on one line.
fn audit_state(object: &Value) -> String {
    let metadata = object.get("metadata");
    let annotations = metadata.and_then(|metadata| metadata.get("annotations"));
    json!({"annotations": annotations, "spec": object.get("spec")}).to_string()
}

/// Returns whether the request has a header that only proxies set.
fn is_forwarded(headers: &HeaderMap) -> bool {
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
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::http::{Request, Response, StatusCode};
    use kube::client::Body;
    use octavo_store::stats::Stats;
    use tokio::task::JoinSet;

    use super::*;

    #[test]
    fn only_loopback_names_are_this_machine() {
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
    fn forwarded_request_is_recognized_by_its_headers() {
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
            assert_eq!(is_forwarded(&headers), is, "{name}");
        }
    }

    #[test]
    fn unknown_outcomes_and_dry_runs_are_audited_as_such() {
        let late = || WriteError::TimedOut(ProfileKey::default());
        for (error, dry, expected) in [
            (late(), DryRun::No, ChangeOutcome::Unknown),
            (late(), DryRun::Server, ChangeOutcome::DryRunFailed),
            (WriteError::NoKind, DryRun::No, ChangeOutcome::Failed),
            (WriteError::NoKind, DryRun::Server, ChangeOutcome::DryRunFailed),
        ] {
            let word = error.to_string();
            let made: Result<Applied, WriteError> = Err(error);
            assert_eq!(audit_outcome(&made, dry), expected, "{word} {dry:?}");
            let why = made.map_err(CreateError::Write).err();
            let is_unknown = why.is_some_and(|why| why.may_have_succeeded(dry));
            assert_eq!(is_unknown, expected == ChangeOutcome::Unknown, "{word}");
        }
        assert!(CreateError::Panicked.may_have_succeeded(DryRun::No));
        assert!(!CreateError::Panicked.may_have_succeeded(DryRun::Server));
        assert!(!CreateError::Busy.may_have_succeeded(DryRun::No));
    }

    /// A requester on this machine, with authentication disabled.
    fn here() -> Requester {
        Requester { host: "localhost:8443".to_owned(), ..Requester::default() }
    }

    fn order(dry: DryRun) -> CreateRequest {
        CreateRequest {
            object: json!({"metadata": {"namespace": "team", "name": "large"}}),
            reason: None,
            existing: Existing::Keep,
            dry_run: dry,
        }
    }

    /// A `ProfileCreator` whose API server answers 404 as soon as a permit is available, and the number of requests it received.
    fn creator(may: &Arc<Semaphore>) -> (ProfileCreator, Arc<AtomicUsize>) {
        let requests = Arc::new(AtomicUsize::new(0));
        let (count, may) = (Arc::clone(&requests), Arc::clone(may));
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
        let writer = ProfileWriter::new(kube::Client::new(service, "default"));
        (ProfileCreator::new(writer, guard), requests)
    }

    #[tokio::test(start_paused = true)]
    async fn creations_are_serialized_and_dry_runs_are_not() {
        let (creator, requests) = creator(&Arc::new(Semaphore::new(1)));
        let turn = creator.0.lock.lock().await;
        let busy = creator.create(&here(), order(DryRun::No)).await;
        assert!(matches!(busy, Err(CreateError::Busy)), "{busy:?}");
        assert_eq!(requests.load(Ordering::SeqCst), 0);
        let tried = creator.create(&here(), order(DryRun::Server)).await;
        assert!(matches!(tried, Err(CreateError::Write(_))), "{tried:?}");
        drop(turn);
        let made = creator.create(&here(), order(DryRun::No)).await;
        assert!(matches!(made, Err(CreateError::Write(_))), "{made:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn excess_attempts_are_refused_immediately() {
        let may = Arc::new(Semaphore::new(0));
        let (creator, _requests) = creator(&may);
        let who = here();
        let mut attempts: JoinSet<Result<Applied, CreateError>> = JoinSet::new();
        for _ in 0..=MAX_CONCURRENT {
            let (creator, who) = (creator.clone(), who.clone());
            attempts.spawn(async move { creator.create(&who, order(DryRun::Server)).await });
        }
        // All others wait for the API server.
        let first = attempts.join_next().await.unwrap().unwrap();
        assert!(matches!(first, Err(CreateError::Busy)), "{first:?}");
        may.close();
        for other in attempts.join_all().await {
            assert!(matches!(other, Err(CreateError::Write(_))), "{other:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn drain_waits_for_abandoned_creations() {
        let may = Arc::new(Semaphore::new(0));
        let (creator, requests) = creator(&may);
        let who = here();
        let gone = timeout(Duration::from_millis(1), creator.create(&who, order(DryRun::No))).await;
        assert!(gone.is_err());
        let mut end = Box::pin(creator.ended());
        let waits = timeout(Duration::from_millis(1), &mut end).await;
        assert!(waits.is_err());
        let late = creator.create(&who, order(DryRun::No)).await;
        assert!(matches!(late, Err(CreateError::Busy)), "{late:?}");
        may.close();
        end.await;
        assert!(requests.load(Ordering::SeqCst) > 0);
        let after = creator.create(&who, order(DryRun::No)).await;
        assert!(matches!(after, Err(CreateError::Busy)), "{after:?}");
    }
}
