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
        self.until.send_replace(None);
        let Some(version) = self.election.resign() else {
            return;
        };
        let body =
            json!({"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": null}});
        let (params, patch) = (PatchParams::default(), Patch::Merge(body));
        let answer = timeout(GIVE_BACK, self.leases.patch(&self.name, &params, &patch)).await;
        match answered(answer) {
            Ok(_) => info!("the Lease {}/{} was given back", self.namespace, self.name),
            Err(error) => debug!("{self:?} was not given back: {error}"),
        }
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
