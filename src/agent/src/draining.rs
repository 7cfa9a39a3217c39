//! The agent's side of a drain: compares the pods that the API server reports with the node's status, and passes on
//! which pods to evict. Nothing here waits.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use octavo_kube::evict::EvictionHandle;
use octavo_model::id::PciAddress;
use octavo_model::reason::Reason;
use octavo_node::node_object::drain::{
    Drain, DrainInputs, DrainOutcome, DrainStatus, PodRequests, Policy, Scope,
};
use octavo_node::node_object::event_deduplicator::Event;
use octavo_node::node_object::operands::{CLIENT_LABELS, PAUSED, RUNNING};
use octavo_node::node_object::{
    Compat, DRAIN_ANNOTATION, EVICT_ANNOTATION, EvictionPermission, LAYOUT_LABEL, ObservedNode,
    REPARTITIONING_TAINT, TAINT_EFFECT, is_demand_layout,
};
use octavo_planner::reconcile::NodeLayoutStatus;
use octavo_toolkit::error::chain;
use tracing::info;

use crate::observation_log::log_by_severity;
use crate::settings::{DEFAULT_DRAIN_TIMEOUT, parse_drain};

/// Maximum length of an invalid annotation in a message, in characters.
const MAX_SHOWN_CHARS: usize = 64;

/// A drain and the handle through which its pods are evicted.
#[derive(Debug)]
pub struct DrainController {
    /// `None` while no pod may be evicted.
    drain: Option<Drain>,
    /// Policy of the settings.
    configured: Option<Policy>,
    /// Annotation `octavo.dev/drain` that was parsed last, and its policy.
    requested: Option<(String, Option<Policy>)>,
    evictions: EvictionHandle,
    status: Option<DrainStatus>,
    /// Whether operands that block a change are paused.
    pauses_operands: bool,
    /// Set when the agent is about to exit.
    is_closed: bool,
}

/// Inputs of a drain step.
#[derive(Debug, Clone, Copy)]
pub(super) struct DrainObservation<'a> {
    pub(super) view: &'a ObservedNode,
    /// Status of the Node's devices.
    pub(super) status: &'a NodeLayoutStatus,
    /// Whether `status` belongs to the layout that the Node currently requests.
    pub(super) is_current: bool,
    pub(super) wall_clock: Timestamp,
}

/// Result of a drain step.
#[derive(Debug, Default)]
pub(super) struct DrainResult {
    /// Whether the Node should carry the taint.
    pub(super) is_tainted: bool,
    /// Whether pods must leave before operands are paused.
    pub(super) waits_for_pods: bool,
    /// Latest time of the next step, relative to the start of the agent.
    pub(super) again: Option<Duration>,
    /// Events to report.
    pub(super) events: Vec<Event>,
    /// Devices whose pods were evicted for the layout that is currently selected.
    pub(super) devices: BTreeSet<PciAddress>,
}

impl DrainController {
    /// Creates a drain that evicts pods through `evictions`. `policy` applies while the Node has no annotation
    /// `octavo.dev/drain`; `None` evicts no pod.
    pub fn new(policy: Option<Policy>, compat: Compat, evictions: EvictionHandle) -> Self {
        Self {
            drain: None,
            configured: policy,
            requested: None,
            pauses_operands: compat == Compat::MigManager,
            evictions,
            status: None,
            is_closed: false,
        }
    }

    /// Waits until the API server reports a change of the pods.
    pub(super) async fn changed(&mut self) {
        if self.evictions.observed.changed().await.is_err() {
            // The pod watcher has ended, so no change will ever arrive.
            std::future::pending::<()>().await;
        }
    }

    pub(super) fn status(&self) -> Option<&DrainStatus> {
        self.status.as_ref()
    }

    /// Takes a step and passes on the evictions. Without a Node nothing can keep new pods away, so no pod is evicted.
    pub(super) fn step(
        &mut self,
        now: Duration,
        seen: Option<DrainObservation<'_>>,
    ) -> DrainResult {
        let results = self.evictions.observed.borrow_and_update().clone();
        let Some(seen) = seen.filter(|_| !self.is_closed) else {
            let outcome = self.drain.as_mut().map(Drain::rest).unwrap_or_default();
            return self.take_result(outcome, None);
        };
        let (mut policy, invalid) = self.policy(seen.view);
        let mut evictable = None;
        // Running pods take precedence over instances for pending pods, except those that the change names.
        if let Some(layout) = demand_layout(seen.view) {
            evictable = permitted_evictions(seen.view, layout, seen.wall_clock);
            policy = demand_policy(seen.view, policy).filter(|_| evictable.is_some());
        }
        let Some(policy) = policy else {
            let outcome = self.drain.take().map(|mut drain| drain.rest()).unwrap_or_default();
            return self.take_result(outcome, invalid);
        };
        let drain = self.drain.get_or_insert_with(|| Drain::new(policy));
        drain.set_policy(policy);
        let outcome = drain.reconcile(
            now,
            &DrainInputs {
                status: seen.status,
                is_current: seen.is_current,
                pod_observations: &results,
                pauses_operands: self.pauses_operands && has_operands(seen.view),
                is_tainted: is_tainted(seen.view),
                evictable: evictable.as_ref(),
            },
        );
        self.take_result(outcome, invalid)
    }

    /// Returns the current policy, and an event if the Node has a new annotation that is invalid. The settings apply then.
    fn policy(&mut self, view: &ObservedNode) -> (Option<Policy>, Option<Event>) {
        let Some(text) = view.annotations.get(DRAIN_ANNOTATION) else {
            self.requested = None;
            return (self.configured, None);
        };
        if let Some((known, policy)) = &self.requested
            && known == text
        {
            return (*policy, None);
        }
        let (policy, invalid) = match parse_drain(text) {
            Ok(policy) => (policy, None),
            Err(error) => {
                let text: String = text.chars().take(MAX_SHOWN_CHARS).collect();
                let message = format!(
                    "annotation {DRAIN_ANNOTATION}={text:?} is ignored: {}; use a value such as affected,10m",
                    chain(&error)
                );
                (self.configured, Some(Event { reason: Reason::DrainRefused, message, unit: None }))
            }
        };
        self.requested = Some((text.clone(), policy));
        (policy, invalid)
    }

    /// Stops all evictions: the agent is about to exit, which may take a while.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        self.evictions.set(PodRequests::default());
    }

    fn take_result(&mut self, outcome: DrainOutcome, invalid: Option<Event>) -> DrainResult {
        self.evictions.set(outcome.pod_requests.clone());
        let steady =
            |status: &Option<DrainStatus>| status.as_ref().map(DrainStatus::without_processes);
        if let Some(status) = &outcome.drain_status
            && steady(&self.status) != Some(status.without_processes())
        {
            info!("{status}");
        }
        self.status = outcome.drain_status;
        let events = outcome.events.into_iter().map(Event::from);
        let events: Vec<Event> = invalid.into_iter().chain(events).collect();
        for event in &events {
            log_by_severity(event.reason, &format!("drain: {}", event.message));
        }
        DrainResult {
            is_tainted: outcome.is_tainted,
            waits_for_pods: outcome.waits_for_pods,
            again: outcome.again,
            events,
            devices: outcome.devices,
        }
    }
}

/// The layout of exact instances that the Node chooses.
fn demand_layout(view: &ObservedNode) -> Option<&str> {
    view.labels.get(LAYOUT_LABEL).map(String::as_str).filter(|layout| is_demand_layout(layout))
}

/// UIDs of the pods that may be evicted for a layout of exact instances at this time; `None` without any.
fn permitted_evictions(
    view: &ObservedNode,
    layout: &str,
    wall_clock: Timestamp,
) -> Option<BTreeSet<String>> {
    let permission: EvictionPermission = view.annotations.get(EVICT_ANNOTATION)?.parse().ok()?;
    let is_valid = permission.layout == layout && wall_clock < permission.until;
    is_valid.then(|| permission.uids.into_iter().collect())
}

/// Policy for exact instances. A valid annotation `octavo.dev/drain` has the time limit or prevents evictions, and an invalid one prevents them.
fn demand_policy(view: &ObservedNode, current: Option<Policy>) -> Option<Policy> {
    let deadline = match view.annotations.get(DRAIN_ANNOTATION) {
        None => DEFAULT_DRAIN_TIMEOUT,
        Some(text) => parse_drain(text).is_ok().then_some(current?.deadline)?,
    };
    Some(Policy { scope: Scope::Affected, deadline })
}

/// Returns whether operands run on the Node that hold GPUs, or would if the agent had not paused them.
fn has_operands(view: &ObservedNode) -> bool {
    let ours = |value: &String| [RUNNING, PAUSED].contains(&value.as_str());
    let mut labels = CLIENT_LABELS.iter().filter_map(|key| view.labels.get(*key));
    labels.any(ours)
}

/// Returns whether the agent's taint keeps new pods away from the Node.
pub(super) fn is_tainted(view: &ObservedNode) -> bool {
    let mut taints = view.taints.iter();
    taints.any(|taint| taint.key == REPARTITIONING_TAINT && taint.effect == TAINT_EFFECT)
}

#[cfg(test)]
mod tests {
    use octavo_model::holder::{self, Holder, HolderDetails};
    use octavo_node::node_object::Taint;
    use octavo_node::node_object::drain::{Pod, PodId, PodObservations};
    use octavo_planner::reconcile::DeviceLayoutStatus;
    use octavo_toolkit::desired;

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn notebook() -> PodId {
        PodId { namespace: "team-a".to_owned(), name: "notebook".to_owned(), uid: "1".to_owned() }
    }

    /// A status with one GPU that the notebook holds.
    fn blocked() -> NodeLayoutStatus {
        let pci = PciAddress::new(0, 7, 0, 0).unwrap();
        let who = HolderDetails {
            pod: Some(holder::Pod { uid: Some("1".to_owned()), ..holder::Pod::default() }),
            ..HolderDetails::default()
        };
        let device = DeviceLayoutStatus {
            holders: vec![Holder {
                device: pci,
                gpu_instance: None,
                compute_instance: None,
                details: who,
            }],
            waits_for_holders: true,
            ..DeviceLayoutStatus::new(pci, "GPU 0".to_owned(), Reason::Blocked.into())
        };
        NodeLayoutStatus {
            layout: Some("night".to_owned()),
            state: Some(Reason::Blocked.into()),
            devices: vec![device],
            ..NodeLayoutStatus::default()
        }
    }

    fn running_notebook() -> PodObservations {
        let controller = Some("StatefulSet".to_owned());
        let pod = Pod { id: notebook(), controller, ..Pod::default() };
        PodObservations { pods: Some(vec![pod]), ..PodObservations::default() }
    }

    /// A Node with the agent's taint.
    fn tainted() -> ObservedNode {
        let taint = Taint {
            key: REPARTITIONING_TAINT.to_owned(),
            value: None,
            effect: "NoSchedule".to_owned(),
            added: None,
        };
        ObservedNode { taints: vec![taint], ..ObservedNode::default() }
    }

    #[test]
    fn closed_drain_evicts_no_pod() {
        let (evictions, mut evictor): (EvictionHandle, _) = desired::channel();
        let policy = Policy { scope: Scope::Affected, deadline: Duration::from_mins(10) };
        let mut draining = DrainController::new(Some(policy), Compat::None, evictions);
        let view = tainted();
        let status = blocked();
        let seen =
            DrainObservation { view: &view, status: &status, is_current: true, wall_clock: NOW };
        evictor.observed.send_replace(running_notebook());
        for second in 0..2 {
            draining.step(Duration::from_secs(second), Some(seen));
        }
        assert_eq!(evictor.latest().evict, [notebook()]);
        draining.close();
        assert_eq!(evictor.latest(), PodRequests::default());
        let shown = draining.step(Duration::from_secs(2), Some(seen));
        assert!(!shown.is_tainted);
        assert_eq!(evictor.latest(), PodRequests::default());
    }

    #[test]
    fn annotation_replaces_the_settings_and_an_invalid_one_is_reported_once() {
        let (evictions, mut evictor): (EvictionHandle, _) = desired::channel();
        let mut draining = DrainController::new(None, Compat::None, evictions);
        let status = blocked();
        let mut step = |annotation: Option<&str>| {
            let annotations = annotation.map(|text| (DRAIN_ANNOTATION.to_owned(), text.to_owned()));
            let annotations = annotations.into_iter().collect();
            let view = ObservedNode { annotations, ..ObservedNode::default() };
            let seen = DrainObservation {
                view: &view,
                status: &status,
                is_current: true,
                wall_clock: NOW,
            };
            let result = draining.step(Duration::ZERO, Some(seen));
            let events: Vec<String> = result.events.into_iter().map(|one| one.message).collect();
            (events, evictor.latest().list.is_some())
        };
        assert_eq!(step(None), (Vec::new(), false));
        assert_eq!(step(Some("affected,10m")), (Vec::new(), true));
        assert_eq!(step(Some("never,10m")), (Vec::new(), false));
        let (events, is_listing) = step(Some("all"));
        assert!(
            !is_listing && events[0].contains(r#"octavo.dev/drain="all" is ignored"#),
            "{events:?}"
        );
        assert_eq!(step(Some("all")), (Vec::new(), false));
        assert_eq!(step(Some("node")), (Vec::new(), true));
        assert_eq!(step(None), (Vec::new(), false));
    }

    #[test]
    fn pods_are_evicted_for_exact_instances_only_if_the_node_names_them() {
        let status = blocked();
        let evicted = |layout: &str, annotations: &[(&str, &str)]| {
            let (evictions, mut evictor): (EvictionHandle, _) = desired::channel();
            let mut draining = DrainController::new(None, Compat::None, evictions);
            let annotations = annotations.iter().map(|(key, text)| ((*key).into(), (*text).into()));
            let view = ObservedNode {
                labels: [(LAYOUT_LABEL.to_owned(), layout.to_owned())].into(),
                annotations: annotations.collect(),
                ..tainted()
            };
            evictor.observed.send_replace(running_notebook());
            let seen = DrainObservation {
                view: &view,
                status: &status,
                is_current: true,
                wall_clock: NOW,
            };
            let mut result = DrainResult::default();
            for second in 0..2 {
                result = draining.step(Duration::from_secs(second), Some(seen));
            }
            (result.is_tainted, evictor.latest().evict.len())
        };
        let layout = "demand-1";
        let evict = |text: &'static str| (EVICT_ANNOTATION, text);
        let valid = evict("demand-1,1970-01-02T00:00:00Z,0,1");
        assert_eq!(evicted(layout, &[]), (false, 0));
        assert_eq!(evicted(layout, &[(DRAIN_ANNOTATION, "affected")]), (false, 0));
        assert_eq!(evicted(layout, &[valid]), (true, 1));
        assert_eq!(evicted(layout, &[evict("demand-1,1970-01-02T00:00:00Z,0,2")]), (false, 0));
        for past in ["demand-1,1970-01-01T00:00:00Z,1", "demand-2,1970-01-02T00:00:00Z,1", "1"] {
            assert_eq!(evicted(layout, &[evict(past)]), (false, 0), "{past}");
        }
        assert_eq!(evicted(layout, &[valid, (DRAIN_ANNOTATION, "affected,5m")]), (true, 1));
        for drain in ["never", "nevr"] {
            assert_eq!(evicted(layout, &[valid, (DRAIN_ANNOTATION, drain)]), (false, 0));
        }
        assert_eq!(evicted("night", &[valid]), (false, 0));
    }

    #[test]
    fn running_and_paused_operands_are_detected() {
        for (key, value, expected) in [
            ("nvidia.com/gpu.deploy.dcgm", RUNNING, true),
            ("nvidia.com/gpu.deploy.dcgm", PAUSED, true),
            ("nvidia.com/gpu.deploy.dcgm", "false", false),
            ("nvidia.com/gpu.deploy.driver", RUNNING, false),
        ] {
            let view = ObservedNode {
                labels: [(key.to_owned(), value.to_owned())].into(),
                ..ObservedNode::default()
            };
            assert_eq!(has_operands(&view), expected, "{key}={value}");
        }
    }
}
