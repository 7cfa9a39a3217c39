//! The state of a pod of a validation, and its results.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, Pod, PodStatus};
use octavo_model::text::truncate_visibly;
use octavo_node::validation::{
    ContainerReport, Expectation, StepResult, ValidationStep, check_container,
};

use super::pod::CONTAINER;

/// Reasons for which the kubelet retries, but that usually need an administrator. Source: Kubernetes,
/// `pkg/kubelet/images` and `pkg/kubelet/kuberuntime`.
const PERMANENT: [&str; 6] = [
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "ImagePullBackOff",
    "InvalidImageName",
    "RunContainerError",
];
/// Maximum length of a reason in the results.
const MAX_REASON_BYTES: usize = 400;

/// State of a pod.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum PodState {
    /// The scheduler has not bound it; with the reason, if there is one.
    Unscheduled(Option<String>),
    /// Its container has not ended.
    Starting(Option<Reason>),
    /// Its container has reported.
    Reported(Box<ContainerReport>),
    /// It failed.
    Failed(Reason),
}

/// Reason why a pod does not run, as the kubelet reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reason {
    name: String,
    message: String,
}

impl Reason {
    fn new(name: Option<&str>, message: Option<&str>) -> Self {
        Self {
            name: name.unwrap_or_default().to_owned(),
            message: message.unwrap_or_default().trim().to_owned(),
        }
    }

    fn text(&self) -> String {
        let Self { name, message } = self;
        let text = match (name.is_empty(), message.is_empty()) {
            (false, false) => format!("{name}: {message}"),
            (true, false) => message.clone(),
            (false, true) => name.clone(),
            (true, true) => "no reason is reported".to_owned(),
        };
        truncate_visibly(&text, MAX_REASON_BYTES)
    }

    /// Returns the recommended action.
    fn remedy(&self) -> &'static str {
        if self.name.contains("Image") {
            "check that the node can pull the image, or specify another one with --image"
        } else if self.name.contains("Admission") || self.name.contains("Allocat") {
            "check the log of the device plugin on the node, and `octavo doctor NODE`"
        } else if self.message.contains("executable file not found") {
            "specify an image with the command octavo with --image"
        } else if self.name == "OOMKilled" {
            "retry; if it happens again, report it as a bug"
        } else {
            "check the container runtime and the driver on the node: `octavo doctor NODE`, `kubectl describe node NODE`"
        }
    }
}

/// Returns the state of a pod.
pub(super) fn state(pod: &Pod) -> PodState {
    let empty = PodStatus::default();
    let status = pod.status.as_ref().unwrap_or(&empty);
    let own = Reason::new(status.reason.as_deref(), status.message.as_deref());
    let container = container_state(status);
    if let Some(ended) = container.and_then(|state| state.terminated.as_ref()) {
        return ended_state(ended);
    }
    if matches!(status.phase.as_deref(), Some("Failed" | "Succeeded")) {
        return PodState::Failed(own);
    }
    if pod.spec.as_ref().is_none_or(|spec| spec.node_name.is_none()) {
        let conditions = status.conditions.iter().flatten();
        let mut unmet =
            conditions.filter(|one| one.type_ == "PodScheduled" && one.status != "True");
        return PodState::Unscheduled(unmet.next().and_then(|one| one.message.clone()));
    }
    let waiting = container.and_then(|state| state.waiting.as_ref());
    let reason = waiting.map(|one| Reason::new(one.reason.as_deref(), one.message.as_deref()));
    match reason {
        Some(reason) if PERMANENT.contains(&reason.name.as_str()) => PodState::Failed(reason),
        reason => PodState::Starting(reason),
    }
}

fn ended_state(ended: &ContainerStateTerminated) -> PodState {
    let message = ended.message.as_deref().unwrap_or_default();
    if ended.exit_code != 0 {
        let name = ended.reason.as_deref().filter(|name| *name != "Error");
        let message = match message {
            "" => format!("exit code {}", ended.exit_code),
            message => format!("exit code {}: {message}", ended.exit_code),
        };
        return PodState::Failed(Reason::new(name, Some(&message)));
    }
    if let Ok(report) = serde_json::from_str(message) {
        return PodState::Reported(Box::new(report));
    }
    let message = "the container returned no report; its image has another version of octavo";
    PodState::Failed(Reason::new(Some("InvalidImageReport"), Some(message)))
}

fn container_state(status: &PodStatus) -> Option<&ContainerState> {
    // A webhook can add other containers.
    let all = status.container_statuses.as_ref()?;
    all.iter().find(|one| one.name == CONTAINER)?.state.as_ref()
}

/// Returns the results of a pod that will not change, or `None`.
pub(super) fn results(
    pod: &Pod,
    state: &PodState,
    expected: &Expectation,
) -> Option<Vec<StepResult>> {
    match state {
        PodState::Unscheduled(_) | PodState::Starting(_) => None,
        PodState::Reported(report) => {
            let started = StepResult::ok(ValidationStep::Started, after(pod, started_at(pod)));
            let steps = [scheduled(pod), started].into_iter();
            Some(steps.chain(check_container(expected, report)).collect())
        }
        PodState::Failed(reason) => {
            let failed =
                StepResult::failing(ValidationStep::Started, reason.text(), reason.remedy());
            Some(vec![scheduled(pod), failed])
        }
    }
}

/// Returns the results of a pod whose time limit has ended. `limit` is the elapsed time; `warning` is the latest
/// event about the pod.
pub(super) fn results_at_timeout(
    pod: &Pod,
    state: &PodState,
    (limit, warning): (&str, Option<String>),
) -> Vec<StepResult> {
    let late = |what: &str, reason: Option<String>| {
        let reason = reason
            .or_else(|| warning.clone())
            .unwrap_or_else(|| "no reason is reported".to_owned());
        truncate_visibly(&format!("{what} within {limit}: {reason}"), MAX_REASON_BYTES)
    };
    match state {
        PodState::Unscheduled(reason) => {
            let remedy = "check with `kubectl describe pod` why a pod like this one is not scheduled; another pod may have \
                          taken the unit: then validate again";
            let evidence = late("the pod was not scheduled", reason.clone());
            vec![StepResult::failing(ValidationStep::Scheduled, evidence, remedy)]
        }
        PodState::Starting(reason) => {
            let known = reason.as_ref().filter(|reason| !reason.message.is_empty());
            let remedy = reason
                .as_ref()
                .map_or("check the kubelet and the container runtime on the node", Reason::remedy);
            let evidence = late("the container did not report", known.map(Reason::text));
            vec![scheduled(pod), StepResult::failing(ValidationStep::Started, evidence, remedy)]
        }
        PodState::Reported(_) | PodState::Failed(_) => Vec::new(),
    }
}

fn scheduled(pod: &Pod) -> StepResult {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut bound = conditions.filter(|one| one.type_ == "PodScheduled" && one.status == "True");
    let time = bound.next().and_then(|one| one.last_transition_time.as_ref());
    StepResult::ok(ValidationStep::Scheduled, after(pod, time.map(|time| time.0)))
}

fn started_at(pod: &Pod) -> Option<Timestamp> {
    let state = container_state(pod.status.as_ref()?)?;
    Some(state.terminated.as_ref()?.started_at.as_ref()?.0)
}

/// Formats the time since the creation of the pod, which the API server reports in whole seconds.
fn after(pod: &Pod, time: Option<Timestamp>) -> String {
    let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    match created.zip(time) {
        Some((created, time)) => {
            format!("after {} s", time.duration_since(created).as_secs().max(0))
        }
        None => "the time is not reported".to_owned(),
    }
}

/// Returns whether the pod remained from a run that was killed: it is older than its own deadline. The kubelet does not
/// apply the deadline to a pod that was never scheduled.
pub(super) fn is_expired(pod: &Pod, now: Timestamp) -> bool {
    let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let limit = pod.spec.as_ref().and_then(|spec| spec.active_deadline_seconds);
    let age = created.map(|created| now.duration_since(created).as_secs());
    age.zip(limit).is_some_and(|(age, limit)| age > limit)
}

#[cfg(test)]
mod tests;
