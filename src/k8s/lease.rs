//! The Lease that says which of several programs writes, held and given back.
//!
//! What is to be done is [`Election`]'s to say; here it is asked for. Started by the aggregator, as a task of its own, so that nothing
//! else that is slow keeps it from saying in time that it still holds the Lease. Who writes has a [`Lead`], and asks it each time.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};

use super::client::told;
use crate::domain::lease::{DURATION, Election, Sight, Step};

/// How long a request may take: less than it takes until the Lease must not be used any more.
const REQUEST: Duration = Duration::from_secs(3);
/// Giving it back must not hold up the end of the program.
const GIVE_BACK: Duration = Duration::from_secs(2);

/// Holds the Lease, to be run.
pub struct Keeper {
    leases: Api<Lease>,
    name: String,
    namespace: String,
    election: Election,
    began: Instant,
    until: watch::Sender<Option<Instant>>,
    /// How often it changed hands, as was read last.
    transitions: i32,
    was_held: bool,
    trouble: Option<String>,
}

/// Whether we are the one that writes, and until when.
#[derive(Debug, Clone)]
pub struct Lead {
    until: watch::Receiver<Option<Instant>>,
}

/// Why it was not read or written.
#[derive(Debug, Error)]
enum LeaseError {
    /// The API server refused it or could not be reached.
    #[error("{}", told(.0))]
    Refused(Box<kube::Error>),
    /// No answer came.
    #[error("the API server does not answer within {REQUEST:?}")]
    Late,
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keeper({}/{})", self.namespace, self.name)
    }
}

impl Lead {
    /// Until when nothing keeps us from writing; `None` where we are not the one.
    pub fn until(&self) -> Option<Instant> {
        self.until.borrow().filter(|until| *until > Instant::now())
    }

    /// Waits until that becomes another one; `false` once nobody holds the Lease for us any more.
    pub async fn changed(&mut self) -> bool {
        self.until.changed().await.is_ok()
    }
}

impl Keeper {
    /// For this Lease, under a name that begins so and is nobody else's. Nothing is asked before it runs.
    pub fn new(client: Client, (namespace, name): (&str, &str), who: &str) -> (Lead, Self) {
        let (until, lead) = watch::channel(None);
        // A program that was killed and begun again is another one: its predecessor's last request may still be on its way.
        let me = format!("{who}_{:016x}", RandomState::new().hash_one(0));
        let keeper = Self {
            leases: Api::namespaced(client, namespace),
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            election: Election::new(me),
            began: Instant::now(),
            until,
            transitions: 0,
            was_held: false,
            trouble: None,
        };
        (Lead { until: lead }, keeper)
    }

    /// Holds it, or waits for it, until it shall stop; then gives it back.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                biased;
                _stopped = stop.wait_for(|stop| *stop) => break,
                () = self.turn() => self.publish(),
            }
        }
        self.give_back().await;
    }

    async fn turn(&mut self) {
        let asked = self.began.elapsed();
        let step = self.election.step(asked);
        // What is to be made can only be there already; where its namespace is missing nobody was faster.
        let makes = step == Step::Create;
        let done = match step {
            Step::Wait(wait) => {
                // Whoever stops being the one says so then, and not at the next request.
                let left = self.election.holds(asked).unwrap_or(wait);
                sleep(wait.min(left)).await;
                return;
            }
            Step::Read => self.read().await,
            Step::Create => self.write(asked, None, true).await,
            Step::Write { version, is_taken } => self.write(asked, Some(version), is_taken).await,
        };
        match done {
            Ok(()) => {
                if self.trouble.take().is_some() {
                    info!("{self:?}: the API server answers again");
                }
            }
            Err(LeaseError::Refused(error)) if is_race(&error, makes) => {
                debug!("{self:?}: another one was faster");
                self.election.outrun(self.began.elapsed());
            }
            Err(error) => {
                self.election.failed(self.began.elapsed());
                let told = error.to_string();
                if self.trouble.as_ref() != Some(&told) {
                    warn!(
                        "the Lease {}/{}: {told}; it is tried again",
                        self.namespace, self.name
                    );
                    self.trouble = Some(told);
                }
            }
        }
    }

    async fn read(&mut self) -> Result<(), LeaseError> {
        let lease = answered(timeout(REQUEST, self.leases.get_opt(&self.name)).await)?;
        let sight = lease.map(|lease| {
            let spec = lease.spec.unwrap_or_default();
            self.transitions = spec.lease_transitions.unwrap_or_default();
            let seconds = spec.lease_duration_seconds;
            let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok());
            Sight {
                holder: spec.holder_identity,
                duration: seconds.map(Duration::from_secs),
                version: lease.metadata.resource_version.unwrap_or_default(),
            }
        });
        self.election.saw(self.began.elapsed(), sight);
        Ok(())
    }

    /// Writes us into the Lease of this version, or makes it.
    async fn write(
        &mut self,
        asked: Duration,
        version: Option<String>,
        is_taken: bool,
    ) -> Result<(), LeaseError> {
        let now = MicroTime(Timestamp::now());
        let mut spec = LeaseSpec {
            holder_identity: Some(self.election.me().to_owned()),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            renew_time: Some(now.clone()),
            ..LeaseSpec::default()
        };
        if is_taken {
            let others = i32::from(version.is_some());
            spec.lease_transitions = Some(self.transitions.saturating_add(others));
            spec.acquire_time = Some(now);
        }
        let answer = if let Some(version) = version {
            // What else somebody has put on it stays.
            let body = json!({"metadata": {"resourceVersion": version}, "spec": spec});
            let (params, patch) = (PatchParams::default(), Patch::Merge(body));
            timeout(REQUEST, self.leases.patch(&self.name, &params, &patch)).await
        } else {
            let lease = Lease {
                metadata: ObjectMeta {
                    name: Some(self.name.clone()),
                    ..ObjectMeta::default()
                },
                spec: Some(spec),
            };
            timeout(REQUEST, self.leases.create(&PostParams::default(), &lease)).await
        };
        let lease = answered(answer)?;
        let version = lease.metadata.resource_version.unwrap_or_default();
        self.election.wrote(asked, version);
        Ok(())
    }

    /// Tells those who write.
    fn publish(&mut self) {
        let left = self.election.holds(self.began.elapsed());
        let until = left.and_then(|left| Instant::now().checked_add(left));
        let is_held = until.is_some();
        if is_held != self.was_held {
            let (namespace, name, me) = (&self.namespace, &self.name, self.election.me());
            if is_held {
                info!("{me} holds the Lease {namespace}/{name} and writes");
            } else {
                warn!(
                    "{me} does not hold the Lease {namespace}/{name} any more and writes nothing"
                );
            }
            self.was_held = is_held;
        }
        self.until.send_if_modified(|known| {
            let differs = *known != until;
            *known = until;
            differs
        });
    }

    /// So that another one need not wait until it has run out.
    async fn give_back(mut self) {
        let was_held = self.until.send_replace(None).is_some();
        let version = self.election.resign();
        if !was_held && version.is_none() {
            return;
        }
        let answer = timeout(GIVE_BACK, self.released(version)).await;
        match answered(answer) {
            Ok(true) => info!("the Lease {}/{} was given back", self.namespace, self.name),
            Ok(false) => debug!("{self:?} is another's already"),
            Err(error) => debug!("{self:?} was not given back: {error}"),
        }
    }

    /// Gives it back if it is ours, and says whether it was. What was on its way when it was given up may have been done all the same,
    /// and then the Lease has another version than the one that was read last.
    async fn released(&self, version: Option<String>) -> kube::Result<bool> {
        if let Some(version) = version {
            match self.release(version).await {
                Err(error) if is_race(&error, false) => {}
                done => return done.map(|()| true),
            }
        }
        let Some(lease) = self.leases.get_opt(&self.name).await? else {
            return Ok(false);
        };
        let holder = lease.spec.and_then(|spec| spec.holder_identity);
        match lease.metadata.resource_version {
            Some(version) if holder.as_deref() == Some(self.election.me()) => {
                self.release(version).await.map(|()| true)
            }
            Some(_) | None => Ok(false),
        }
    }

    async fn release(&self, version: String) -> kube::Result<()> {
        let body =
            json!({"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": null}});
        let (params, patch) = (PatchParams::default(), Patch::Merge(body));
        let done = self.leases.patch(&self.name, &params, &patch).await;
        done.map(|_lease| ())
    }
}

fn answered<T, E>(answer: Result<kube::Result<T>, E>) -> Result<T, LeaseError> {
    match answer {
        Ok(answer) => answer.map_err(|error| LeaseError::Refused(Box::new(error))),
        Err(_late) => Err(LeaseError::Late),
    }
}

/// Whether somebody wrote it meanwhile, made it, or took it away.
fn is_race(error: &kube::Error, makes: bool) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    status.code == 409 || (status.code == 404 && !makes)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::pending;
    use std::sync::{Arc, Mutex};

    use http_body_util::BodyExt;
    use hyper::{Method, Request, Response, StatusCode};
    use kube::client::Body;
    use serde_json::Value;
    use tokio::sync::Notify;

    use super::*;

    /// An API server with one Lease. Who says that he still holds it is heard and is never answered.
    #[derive(Debug, Default)]
    struct Server {
        lease: Mutex<Option<Value>>,
        renewed: Notify,
    }

    impl Server {
        async fn answer(&self, request: Request<Body>) -> Response<Body> {
            let method = request.method().clone();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let said: Value = serde_json::from_slice(&body).unwrap_or_default();
            let renews = said["spec"]["renewTime"].is_string();
            let (status, answer) = self.take(&method, &said);
            if method == Method::PATCH && renews {
                self.renewed.notify_one();
                pending::<()>().await;
            }
            let answer = Body::from(answer.to_string().into_bytes());
            let response = Response::builder().status(status);
            response.body(answer).unwrap()
        }

        fn take(&self, method: &Method, said: &Value) -> (StatusCode, Value) {
            let mut lease = self.lease.lock().unwrap();
            let refusal = |code: StatusCode| {
                let reason = match code {
                    StatusCode::NOT_FOUND => "NotFound",
                    _ => "Conflict",
                };
                let code = code.as_u16();
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": "no"})
            };
            if *method == Method::POST {
                let mut made = said.clone();
                made["metadata"]["resourceVersion"] = json!("1");
                return (StatusCode::CREATED, lease.insert(made).clone());
            }
            let Some(known) = lease.as_mut() else {
                return (StatusCode::NOT_FOUND, refusal(StatusCode::NOT_FOUND));
            };
            if *method == Method::PATCH {
                let version = known["metadata"]["resourceVersion"].clone();
                if said["metadata"]["resourceVersion"] != version {
                    return (StatusCode::CONFLICT, refusal(StatusCode::CONFLICT));
                }
                let number: u32 = version.as_str().unwrap().parse().unwrap();
                known["metadata"]["resourceVersion"] = json!((number + 1).to_string());
                known["spec"]["holderIdentity"] = said["spec"]["holderIdentity"].clone();
            }
            (StatusCode::OK, known.clone())
        }

        fn holder(&self) -> Value {
            let lease = self.lease.lock().unwrap();
            lease.as_ref().unwrap()["spec"]["holderIdentity"].clone()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_given_back_also_while_it_is_being_renewed() {
        let server = Arc::new(Server::default());
        let asked = Arc::clone(&server);
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = Arc::clone(&asked);
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        let client = Client::new(service, "default");
        let (mut lead, keeper) = Keeper::new(client, ("octavo-system", "octavo-aggregator"), "me");
        let (stop, stopped) = watch::channel(false);
        let keeper = tokio::spawn(keeper.run(stopped));
        let a_while = Duration::from_mins(5);
        let held = timeout(a_while, lead.changed()).await.unwrap();
        assert!(held && lead.until().is_some());
        timeout(a_while, server.renewed.notified()).await.unwrap();
        assert!(server.holder().is_string());
        stop.send_replace(true);
        keeper.await.unwrap();
        assert_eq!(server.holder(), Value::Null);
        assert_eq!(lead.until(), None);
    }
}
