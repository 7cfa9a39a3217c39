//! Leader election with a Lease: acquires, renews and releases it.
//!
//! [`LeaderElector`] decides the next step, and this module sends the request. Started by the aggregator as a separate task,
//! so that no slow operation delays a renewal. Writers have a [`LeadershipHandle`] and check it before each write.
//! No dependency of the workspace provides leader election.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use octavo_node::lease::{LEASE_DURATION, LeaderElector, ObservedLease, Step};
use octavo_toolkit::desired::send_if_changed;
use octavo_toolkit::random::random;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, info, warn};

use super::client::{RequestError, request_within};

/// Request timeout, shorter than the time until the Lease expires.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// Release timeout, which must not delay the program's shutdown.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// Holds the Lease; run it as a task.
pub struct LeaseHolder {
    leases: Api<Lease>,
    name: String,
    namespace: String,
    election: LeaderElector,
    began: Instant,
    until: watch::Sender<Option<Instant>>,
    /// Number of transitions in the last read Lease.
    transitions: i32,
    was_held: bool,
    error: Option<String>,
}

/// Leadership state, with its expiry.
#[derive(Debug, Clone)]
pub struct LeadershipHandle {
    until: watch::Receiver<Option<Instant>>,
}

impl fmt::Debug for LeaseHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseHolder({}/{})", self.namespace, self.name)
    }
}

impl LeadershipHandle {
    /// Returns until when this process is the leader; `None` if it is not.
    pub fn until(&self) -> Option<Instant> {
        self.until.borrow().filter(|until| *until > Instant::now())
    }

    /// Waits for a change of the state. Returns `false` after the task has ended.
    pub async fn changed(&mut self) -> bool {
        self.until.changed().await.is_ok()
    }

    /// Waits until the Lease is lost; it may be renewed in the meantime.
    pub async fn lost(&mut self) {
        while let Some(until) = self.until() {
            tokio::select! {
                () = sleep_until(until) => {}
                is_there = self.changed() => if !is_there {
                    return;
                }
            }
        }
    }
}

impl LeaseHolder {
    /// Creates an elector for this Lease with a unique identity that starts with `who`. Sends no request before it
    /// runs.
    pub fn new(
        client: Client,
        (namespace, name): (&str, &str),
        who: &str,
    ) -> (LeadershipHandle, Self) {
        let (until, lead) = watch::channel(None);
        // A restarted program needs a new identity, because the last request of its predecessor may still be in flight.
        let me = format!("{who}_{:016x}", random());
        let holder = Self {
            leases: Api::namespaced(client, namespace),
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            election: LeaderElector::new(me),
            began: Instant::now(),
            until,
            transitions: 0,
            was_held: false,
            error: None,
        };
        (LeadershipHandle { until: lead }, holder)
    }

    /// Creates an elector for this Lease as a pod, whose containers run one after the other: the Lease of an ended container is acquired
    /// without waiting for its expiry.
    pub fn of_pod(client: Client, place: (&str, &str), pod: &str) -> (LeadershipHandle, Self) {
        let (lead, holder) = Self::new(client, place, pod);
        let election = holder.election.with_ended(format!("{pod}_"));
        (lead, Self { election, ..holder })
    }

    /// Acquires and renews the Lease until `stop` is set, then releases it.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                biased;
                _stopped = stop.wait_for(|stop| *stop) => break,
                () = self.step() => self.publish(),
            }
        }
        self.release_on_stop().await;
    }

    async fn step(&mut self) {
        let elapsed = self.began.elapsed();
        let step = self.election.step(elapsed);
        // Creation can only conflict with an existing Lease. A 404 on creation means that the namespace does not exist,
        // not that another process was faster.
        let is_creation = step == Step::Create;
        let done = match step {
            Step::Wait(wait) => {
                // An expiring leader publishes that at the expiry, not at its next request.
                let left = self.election.remaining_hold(elapsed).unwrap_or(wait);
                sleep(wait.min(left)).await;
                return;
            }
            Step::Read => self.read().await,
            Step::Create => self.write(elapsed, None, true).await,
            Step::Write { version, is_takeover: is_taken } => {
                self.write(elapsed, Some(version), is_taken).await
            }
        };
        match done {
            Ok(()) => {
                if self.error.take().is_some() {
                    info!(lease = %self.name, "the API server responds again");
                }
            }
            Err(error) if is_conflict(&error, is_creation) => {
                debug!(lease = %self.name, "another process acquired the Lease first");
                self.election.record_conflict(self.began.elapsed());
            }
            Err(error) => {
                self.election.record_failure(self.began.elapsed());
                let message = error.to_string();
                if self.error.as_ref() != Some(&message) {
                    warn!(namespace = %self.namespace, lease = %self.name, error = %message, "cannot renew the Lease; retrying");
                    self.error = Some(message);
                }
            }
        }
    }

    async fn read(&mut self) -> Result<(), RequestError> {
        let lease = request_within(REQUEST_TIMEOUT, self.leases.get_opt(&self.name)).await?;
        let observed = lease.map(|lease| {
            let spec = lease.spec.unwrap_or_default();
            self.transitions = spec.lease_transitions.unwrap_or_default();
            let seconds = spec.lease_duration_seconds;
            let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok());
            ObservedLease {
                holder: spec.holder_identity,
                duration: seconds.map(Duration::from_secs),
                version: lease.metadata.resource_version.unwrap_or_default(),
            }
        });
        self.election.record_observation(self.began.elapsed(), observed);
        Ok(())
    }

    /// Writes this holder into the Lease of this version, or creates the Lease.
    async fn write(
        &mut self,
        elapsed: Duration,
        version: Option<String>,
        is_taken: bool,
    ) -> Result<(), RequestError> {
        let now = MicroTime(Timestamp::now());
        let mut spec = LeaseSpec {
            holder_identity: Some(self.election.identity().to_owned()),
            lease_duration_seconds: i32::try_from(LEASE_DURATION.as_secs()).ok(),
            renew_time: Some(now.clone()),
            ..LeaseSpec::default()
        };
        if is_taken {
            let others = i32::from(version.is_some());
            spec.lease_transitions = Some(self.transitions.saturating_add(others));
            spec.acquire_time = Some(now);
        }
        let lease = if let Some(version) = version {
            // A merge patch preserves other fields and annotations.
            let body = json!({"metadata": {"resourceVersion": version}, "spec": spec});
            let (params, patch) = (PatchParams::default(), Patch::Merge(body));
            request_within(REQUEST_TIMEOUT, self.leases.patch(&self.name, &params, &patch)).await?
        } else {
            let lease = Lease {
                metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
                spec: Some(spec),
            };
            let params = PostParams::default();
            request_within(REQUEST_TIMEOUT, self.leases.create(&params, &lease)).await?
        };
        let version = lease.metadata.resource_version.unwrap_or_default();
        self.election.record_write(elapsed, version);
        Ok(())
    }

    /// Publishes the current leadership state.
    fn publish(&mut self) {
        let left = self.election.remaining_hold(self.began.elapsed());
        let until = left.and_then(|left| Instant::now().checked_add(left));
        let is_held = until.is_some();
        if is_held != self.was_held {
            let (namespace, name, me) = (&self.namespace, &self.name, self.election.identity());
            if is_held {
                info!(identity = %me, %namespace, lease = %name, "Lease acquired; this process is the leader");
            } else {
                warn!(identity = %me, %namespace, lease = %name, "Lease lost; this process is no longer the leader");
            }
            self.was_held = is_held;
        }
        send_if_changed(&self.until, until);
    }

    /// Releases the Lease, so that another process does not have to wait for its expiry.
    async fn release_on_stop(mut self) {
        let was_held = self.until.send_replace(None).is_some();
        let version = self.election.resign();
        if !was_held && version.is_none() {
            return;
        }
        match request_within(RELEASE_TIMEOUT, self.release_if_held(version)).await {
            Ok(true) => info!(namespace = %self.namespace, lease = %self.name, "Lease released"),
            Ok(false) => debug!(lease = %self.name, "the Lease already belongs to another process"),
            Err(error) => debug!(lease = %self.name, %error, "cannot release the Lease"),
        }
    }

    /// Releases the Lease if we hold it and returns whether we did. A request that was canceled may have been
    /// processed, and then the Lease has a newer version than the last one read.
    async fn release_if_held(&self, version: Option<String>) -> kube::Result<bool> {
        if let Some(version) = version {
            match self.release(version).await {
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                done => return done.map(|()| true),
            }
        }
        let Some(lease) = self.leases.get_opt(&self.name).await? else {
            return Ok(false);
        };
        let holder = lease.spec.and_then(|spec| spec.holder_identity);
        match lease.metadata.resource_version {
            Some(version) if holder.as_deref() == Some(self.election.identity()) => {
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

/// Returns whether the request lost a race: the Lease was modified, created or deleted concurrently.
fn is_conflict(error: &RequestError, is_creation: bool) -> bool {
    matches!((error.code(), is_creation), (Some(409), _) | (Some(404), false))
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
    use tokio::time::timeout;

    use super::*;

    /// An API server with one Lease. Renewals are processed but receive no response.
    #[derive(Debug, Default)]
    struct Server {
        lease: Mutex<Option<Value>>,
        renewed: Notify,
    }

    impl Server {
        async fn answer(&self, request: Request<Body>) -> Response<Body> {
            let method = request.method().clone();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            let is_renewal = body["spec"]["renewTime"].is_string();
            let (status, answer) = self.take(&method, &body);
            if method == Method::PATCH && is_renewal {
                self.renewed.notify_one();
                pending::<()>().await;
            }
            let answer = Body::from(answer.to_string().into_bytes());
            let response = Response::builder().status(status);
            response.body(answer).unwrap()
        }

        fn take(&self, method: &Method, body: &Value) -> (StatusCode, Value) {
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
                let mut made = body.clone();
                made["metadata"]["resourceVersion"] = json!("1");
                return (StatusCode::CREATED, lease.insert(made).clone());
            }
            let Some(known) = lease.as_mut() else {
                return (StatusCode::NOT_FOUND, refusal(StatusCode::NOT_FOUND));
            };
            if *method == Method::PATCH {
                let version = known["metadata"]["resourceVersion"].clone();
                if body["metadata"]["resourceVersion"] != version {
                    return (StatusCode::CONFLICT, refusal(StatusCode::CONFLICT));
                }
                let number: u32 = version.as_str().unwrap().parse().unwrap();
                known["metadata"]["resourceVersion"] = json!((number + 1).to_string());
                known["spec"]["holderIdentity"] = body["spec"]["holderIdentity"].clone();
            }
            (StatusCode::OK, known.clone())
        }

        fn holder(&self) -> Value {
            let lease = self.lease.lock().unwrap();
            lease.as_ref().unwrap()["spec"]["holderIdentity"].clone()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn lease_is_released_during_renewal() {
        let server = Arc::new(Server::default());
        let request_server = Arc::clone(&server);
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = Arc::clone(&request_server);
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        let client = Client::new(service, "default");
        let (mut lead, holder) =
            LeaseHolder::new(client, ("octavo-system", "octavo-aggregator"), "me");
        let (stop, stopped) = watch::channel(false);
        let holder = tokio::spawn(holder.run(stopped));
        let a_while = Duration::from_mins(5);
        let held = timeout(a_while, lead.changed()).await.unwrap();
        assert!(held && lead.until().is_some());
        timeout(a_while, server.renewed.notified()).await.unwrap();
        assert!(server.holder().is_string());
        stop.send_replace(true);
        holder.await.unwrap();
        assert_eq!(server.holder(), Value::Null);
        assert_eq!(lead.until(), None);
    }
}
