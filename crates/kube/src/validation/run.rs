//! A run: creates the pods, watches them and removes them.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use octavo_node::validation::{StepResult, Validation, ValidationStep};
use octavo_toolkit::random::random;
use serde_json::Value;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::pod::pod_name;
use super::progress::{PodState, results, results_at_timeout, state};
use super::retry::Failures;
use super::{AgentPod, PlannedPod, PodOptions, ValidationClient, ValidationError, pod};
use crate::client::RequestError;

/// Interval between two lists of the pods.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of pods at the same time.
const MAX_PODS: usize = 32;
/// Time limit of the removal.
const REMOVAL_TIMEOUT: Duration = Duration::from_mins(1);
/// Number of consecutive empty lists after which nothing is left: a canceled request may still create a pod.
const EMPTY_LISTS: u32 = 2;

/// Action if the API server does not respond, or rejects requests for a time.
const UNRESPONSIVE: &str = "check that the cluster responds with `kubectl version`, and retry";

/// Validations that are running at the same time.
#[derive(Debug)]
pub struct ValidationRun<'a> {
    client: &'a ValidationClient,
    options: &'a PodOptions,
    /// Agents by node.
    agents: &'a BTreeMap<String, AgentPod>,
    id: String,
}

/// A pod that is not created yet.
#[derive(Debug)]
struct WaitingPod {
    planned: PlannedPod,
    failures: Failures,
    /// Time of the next request, and the time limit; both after the first failure.
    due: Option<(Instant, Instant)>,
}

/// Result of a request to create a pod.
#[derive(Debug)]
enum Creation {
    Created(String, Box<ActivePod>),
    /// It is requested again.
    Postponed(Box<WaitingPod>),
    Rejected(Box<Validation>),
}

/// Lists of the pods.
#[derive(Debug, Default)]
struct Lists {
    failures: Failures,
    /// Time of the next list after a failure.
    due: Option<Instant>,
    /// Error of the last list.
    error: Option<RequestError>,
}

/// A pod without final results.
#[derive(Debug)]
struct ActivePod {
    planned: PlannedPod,
    pod: Pod,
    deadline: Instant,
}

impl WaitingPod {
    fn is_due(&self) -> bool {
        self.due.is_none_or(|(at, _)| at <= Instant::now())
    }
}

impl<'a> ValidationRun<'a> {
    /// Creates a run with its own id. Sends no request yet.
    pub fn new(
        client: &'a ValidationClient,
        options: &'a PodOptions,
        agents: &'a BTreeMap<String, AgentPod>,
    ) -> Self {
        Self { client, options, agents, id: format!("{:016x}", random()) }
    }

    /// Returns the id of the run, which is the value of the pods' label.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the pod for a resource of a node.
    pub fn pod(&self, planned: &PlannedPod) -> Value {
        let own = self.agents.get(&planned.node.name);
        let agent = own.or_else(|| self.agents.values().next()).cloned().unwrap_or_default();
        pod(self.options, (&planned.node, &planned.resource), &agent, &self.id)
    }

    /// Validates all planned resources, and passes each result to `done`. Every pod is removed after its result; after
    /// an error or if this future is dropped, [`Self::clean_up`] removes the others.
    pub async fn run(
        &self,
        planned: Vec<PlannedPod>,
        mut done: impl FnMut(Validation),
    ) -> Result<(), ValidationError> {
        let waiting = planned.into_iter();
        let mut waiting: VecDeque<WaitingPod> = waiting
            .map(|planned| WaitingPod { planned, failures: Failures::default(), due: None })
            .collect();
        let mut lists = Lists::default();
        let mut active: BTreeMap<String, ActivePod> = BTreeMap::new();
        let mut ticks = interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            while active.len() < MAX_PODS
                && let Some(next) = waiting.pop_front_if(|next| next.is_due())
            {
                match self.create(next).await? {
                    Creation::Created(name, pod) => {
                        active.insert(name, *pod);
                    }
                    Creation::Postponed(next) => {
                        // The others would be rejected as well.
                        waiting.push_front(*next);
                        break;
                    }
                    Creation::Rejected(validation) => done(*validation),
                }
            }
            if active.is_empty() && waiting.is_empty() {
                return Ok(());
            }
            ticks.tick().await;
            let listed = self.list(&mut lists).await?;
            for (name, mut one) in std::mem::take(&mut active) {
                let listed = listed.as_deref().ok_or(lists.error.as_ref());
                match self.advance(&name, &mut one, listed).await {
                    Some(steps) => done(self.finish(&name, &one, steps).await),
                    None => {
                        active.insert(name, one);
                    }
                }
            }
        }
    }

    /// Creates a pod, or postpones it after an error that may be temporary. The validation fails if the API server rejects the pod; without
    /// the permission, the run fails.
    async fn create(&self, mut waiting: WaitingPod) -> Result<Creation, ValidationError> {
        let namespace = &self.options.namespace;
        let until = match waiting.due {
            Some((_, until)) => until,
            None => Instant::now() + self.options.timeout,
        };
        let pod = match self.request(&waiting).await {
            Ok(pod) => pod,
            Err(error) if is_unauthorized(&error) => {
                let action = format!("create pods in the namespace {namespace}");
                return Err(ValidationError::Request { action, source: error });
            }
            Err(error) => {
                if let Some(at) = waiting.failures.retry_at(&error, until) {
                    waiting.due = Some((at, until));
                    return Ok(Creation::Postponed(Box::new(waiting)));
                }
                let planned = waiting.planned;
                let evidence = format!("cannot create the pod: {error}");
                let remedy = if matches!(error.code(), Some(400..=428 | 430..=499)) {
                    "choose another namespace with --namespace, or change its policy or quota"
                } else {
                    UNRESPONSIVE
                };
                let failed = StepResult::failing(ValidationStep::Scheduled, evidence, remedy);
                let steps = vec![planned.free, failed];
                let resource = Some(planned.resource.as_str());
                let validation = Validation::new(&planned.node.name, resource, steps);
                return Ok(Creation::Rejected(Box::new(validation)));
            }
        };
        let name = pod.metadata.name.clone().unwrap_or_default();
        let deadline = Instant::now() + self.options.timeout;
        let pod = ActivePod { planned: waiting.planned, pod, deadline };
        Ok(Creation::Created(name, Box::new(pod)))
    }

    /// Requests a pod. If an earlier request without a response created it, returns that one.
    async fn request(&self, waiting: &WaitingPod) -> Result<Pod, RequestError> {
        let (namespace, planned) = (&self.options.namespace, &waiting.planned);
        let created = self.client.create(namespace, &self.pod(planned)).await;
        if !waiting.failures.is_any() || !created.as_ref().is_err_and(|one| one.code() == Some(409))
        {
            return created;
        }
        let name = pod_name((&planned.node, &planned.resource), &self.id);
        let listed = self.client.list(namespace, Some(&self.id)).await?;
        let existing = listed.into_iter().find(|pod| pod.metadata.name.as_ref() == Some(&name));
        existing.map_or(created, Ok)
    }

    /// Lists the pods of this run; `None` after a failure that may be temporary, and until the next list.
    async fn list(&self, lists: &mut Lists) -> Result<Option<Vec<Pod>>, ValidationError> {
        let namespace = &self.options.namespace;
        let now = Instant::now();
        if lists.due.is_some_and(|due| now < due) {
            return Ok(None);
        }
        match self.client.list(namespace, Some(&self.id)).await {
            Ok(pods) => {
                *lists = Lists::default();
                Ok(Some(pods))
            }
            Err(error) if matches!(error.code(), Some(401 | 403)) => {
                let action = format!("list pods in the namespace {namespace}");
                Err(ValidationError::Request { action, source: error })
            }
            Err(error) => {
                // Every pod has its own time limit.
                lists.due = lists.failures.retry_at(&error, now + self.options.timeout);
                lists.error = Some(error);
                Ok(None)
            }
        }
    }

    /// Updates a pod from the list, or from the error of the last one. Returns its results once they are final.
    async fn advance(
        &self,
        name: &str,
        one: &mut ActivePod,
        listed: Result<&[Pod], Option<&RequestError>>,
    ) -> Option<Vec<StepResult>> {
        let namespace = &self.options.namespace;
        if let Ok(listed) = listed {
            let found = listed.iter().find(|pod| pod.metadata.name.as_deref() == Some(name));
            let Some(pod) = found else {
                let evidence = format!("another client deleted the pod {namespace}/{name}");
                let remedy = "find the client that deletes pods in this namespace, or choose another one with --namespace";
                return Some(vec![StepResult::failing(ValidationStep::Started, evidence, remedy)]);
            };
            one.pod = pod.clone();
        }
        let now = state(&one.pod);
        if let Some(steps) = results(&one.pod, &now, &one.planned.expected) {
            return Some(steps);
        }
        if Instant::now() < one.deadline {
            return None;
        }
        if let Err(Some(error)) = listed {
            let evidence = format!("cannot list the pods in the namespace {namespace}: {error}");
            return Some(vec![StepResult::failing(
                ValidationStep::Started,
                evidence,
                UNRESPONSIVE,
            )]);
        }
        let warning = match now {
            PodState::Starting(_) => self.client.latest_warning(namespace, name).await,
            PodState::Unscheduled(_) | PodState::Reported(_) | PodState::Failed(_) => None,
        };
        let limit = format!("{} s", self.options.timeout.as_secs());
        Some(results_at_timeout(&one.pod, &now, (&limit, warning)))
    }

    /// Removes a pod with final results. If that fails, the removal at the end retries it.
    async fn finish(&self, name: &str, one: &ActivePod, mut steps: Vec<StepResult>) -> Validation {
        let _retried_at_the_end = self.client.delete(&self.options.namespace, name).await;
        let PlannedPod { node, resource, free, .. } = &one.planned;
        steps.push(free.clone());
        Validation::new(&node.name, Some(resource), steps)
    }

    /// Removes all pods of this run, and waits until they are gone.
    pub async fn clean_up(&self) -> Result<(), ValidationError> {
        let namespace = &self.options.namespace;
        let failed = |source| ValidationError::Request {
            action: format!(
                "remove the pods of this run; remove them with `kubectl delete pods -n {namespace} -l {}={}`",
                super::RUN_LABEL,
                self.id
            ),
            source,
        };
        let mut ticks = interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (end, mut empty) = (Instant::now() + REMOVAL_TIMEOUT, 0_u32);
        loop {
            ticks.tick().await;
            let error = match self.delete_all().await {
                Ok(0) => {
                    empty = empty.saturating_add(1);
                    if empty >= EMPTY_LISTS {
                        return Ok(());
                    }
                    continue;
                }
                Ok(_) => RequestError::TimedOut(REMOVAL_TIMEOUT),
                Err(error) if matches!(error.code(), Some(401 | 403)) => return Err(failed(error)),
                Err(error) => error,
            };
            empty = 0;
            if Instant::now() >= end {
                return Err(failed(error));
            }
        }
    }

    /// Deletes the pods that exist, and returns their number.
    async fn delete_all(&self) -> Result<usize, RequestError> {
        let namespace = &self.options.namespace;
        let pods = self.client.list(namespace, Some(&self.id)).await?;
        for name in pods.iter().filter_map(|pod| pod.metadata.name.as_ref()) {
            self.client.delete(namespace, name).await?;
        }
        Ok(pods.len())
    }
}

/// Returns whether the user has no permission. Admission plugins, such as those of quotas and of the pod security
/// standards, reject single pods with the same code.
fn is_unauthorized(error: &RequestError) -> bool {
    match error.code() {
        Some(401) => true,
        Some(403) => error.to_string().contains("cannot create resource"),
        Some(_) | None => false,
    }
}
