//! A run: creates the pods, watches them and removes them.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use octavo_node::validation::{StepResult, Validation, ValidationStep};
use octavo_toolkit::random::random;
use serde_json::Value;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::progress::{PodState, results, results_at_timeout, state};
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

/// Validations that are running at the same time.
#[derive(Debug)]
pub struct ValidationRun<'a> {
    client: &'a ValidationClient,
    options: &'a PodOptions,
    /// Agents by node.
    agents: &'a BTreeMap<String, AgentPod>,
    id: String,
}

/// A pod without final results.
#[derive(Debug)]
struct ActivePod {
    planned: PlannedPod,
    pod: Pod,
    deadline: Instant,
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
        let mut waiting = planned.into_iter();
        let mut active: BTreeMap<String, ActivePod> = BTreeMap::new();
        let mut ticks = interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            while active.len() < MAX_PODS
                && let Some(next) = waiting.next()
            {
                match self.create(next).await? {
                    Ok((name, pod)) => {
                        active.insert(name, pod);
                    }
                    Err(validation) => done(*validation),
                }
            }
            if active.is_empty() {
                return Ok(());
            }
            ticks.tick().await;
            let listed = self.list().await?;
            for (name, mut one) in std::mem::take(&mut active) {
                match self.advance(&name, &mut one, listed.as_deref()).await {
                    Some(steps) => done(self.finish(&name, &one, steps).await),
                    None => {
                        active.insert(name, one);
                    }
                }
            }
        }
    }

    /// Creates a pod. The validation fails if the API server rejects it; without the permission, the run fails.
    async fn create(
        &self,
        planned: PlannedPod,
    ) -> Result<Result<(String, ActivePod), Box<Validation>>, ValidationError> {
        let namespace = &self.options.namespace;
        let created = self.client.create(namespace, &self.pod(&planned)).await;
        let pod = match created {
            Ok(pod) => pod,
            Err(error) if is_unauthorized(&error) => {
                let action = format!("create pods in the namespace {namespace}");
                return Err(ValidationError::Request { action, source: error });
            }
            Err(error) => {
                let evidence = format!("cannot create the pod: {error}");
                let remedy =
                    "choose another namespace with --namespace, or change its policy or quota";
                let failed = StepResult::failing(ValidationStep::Scheduled, evidence, remedy);
                let steps = vec![planned.free, failed];
                let resource = Some(planned.resource.as_str());
                return Ok(Err(Box::new(Validation::new(&planned.node.name, resource, steps))));
            }
        };
        let name = pod.metadata.name.clone().unwrap_or_default();
        let deadline = Instant::now() + self.options.timeout;
        Ok(Ok((name, ActivePod { planned, pod, deadline })))
    }

    /// Lists the pods of this run; `None` after a failure that may be temporary.
    async fn list(&self) -> Result<Option<Vec<Pod>>, ValidationError> {
        let namespace = &self.options.namespace;
        match self.client.list(namespace, Some(&self.id)).await {
            Ok(pods) => Ok(Some(pods)),
            Err(error) if matches!(error.code(), Some(401 | 403)) => {
                let action = format!("list pods in the namespace {namespace}");
                Err(ValidationError::Request { action, source: error })
            }
            Err(_) => Ok(None),
        }
    }

    /// Updates a pod from the list. Returns its results once they are final.
    async fn advance(
        &self,
        name: &str,
        one: &mut ActivePod,
        listed: Option<&[Pod]>,
    ) -> Option<Vec<StepResult>> {
        let namespace = &self.options.namespace;
        if let Some(listed) = listed {
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
