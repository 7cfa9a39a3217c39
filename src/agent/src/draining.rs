//! The agent's side of a drain: compares the pods that the API server reports with the node's status, and passes on
//! which pods to evict. Nothing here waits.

use std::collections::BTreeSet;
use std::time::Duration;

use octavo_kube::evict::EvictionHandle;
use octavo_model::id::PciAddress;
use octavo_node::node_object::drain::{
    Drain, DrainInputs, DrainOutcome, DrainStatus, PodRequests, Policy,
};
use octavo_node::node_object::event_deduplicator::Event;
use octavo_node::node_object::operands::{CLIENT_LABELS, PAUSED, RUNNING};
use octavo_node::node_object::{Compat, ObservedNode, REPARTITIONING_TAINT, TAINT_EFFECT};
use octavo_planner::reconcile::NodeLayoutStatus;
use tracing::info;

use crate::observation_log::log_by_severity;

/// A drain and the handle through which its pods are evicted.
#[derive(Debug)]
pub struct DrainController {
    drain: Drain,
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
    /// Creates a drain with `policy` that evicts pods through `evictions`.
    pub fn new(policy: Policy, compat: Compat, evictions: EvictionHandle) -> Self {
        Self {
            drain: Drain::new(policy),
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
        let outcome = match seen.filter(|_| !self.is_closed) {
            Some(seen) => self.drain.reconcile(
                now,
                &DrainInputs {
                    status: seen.status,
                    is_current: seen.is_current,
                    pod_observations: &results,
                    pauses_operands: self.pauses_operands && has_operands(seen.view),
                    is_tainted: is_tainted(seen.view),
                },
            ),
            None => self.drain.rest(),
        };
        self.evictions.set(outcome.pod_requests.clone());
        self.take_result(outcome)
    }

    /// Stops all evictions: the agent is about to exit, which may take a while.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        self.evictions.set(PodRequests::default());
    }

    fn take_result(&mut self, outcome: DrainOutcome) -> DrainResult {
        let steady =
            |status: &Option<DrainStatus>| status.as_ref().map(DrainStatus::without_processes);
        if let Some(status) = &outcome.drain_status
            && steady(&self.status) != Some(status.without_processes())
        {
            info!("{status}");
        }
        self.status = outcome.drain_status;
        let events: Vec<Event> = outcome.events.into_iter().map(Event::from).collect();
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
    use octavo_model::reason::Reason;
    use octavo_node::node_object::Taint;
    use octavo_node::node_object::drain::{Pod, PodId, PodObservations, Scope};
    use octavo_planner::reconcile::DeviceLayoutStatus;
    use octavo_toolkit::desired;

    use super::*;

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

    #[test]
    fn closed_drain_evicts_no_pod() {
        let (evictions, mut evictor): (EvictionHandle, _) = desired::channel();
        let policy = Policy { scope: Scope::Affected, deadline: Duration::from_mins(10) };
        let mut draining = DrainController::new(policy, Compat::None, evictions);
        let taint = Taint {
            key: REPARTITIONING_TAINT.to_owned(),
            value: None,
            effect: "NoSchedule".to_owned(),
            added: None,
        };
        let view = ObservedNode { taints: vec![taint], ..ObservedNode::default() };
        let status = blocked();
        let seen = DrainObservation { view: &view, status: &status, is_current: true };
        evictor.observed.send_replace(PodObservations {
            pods: Some(vec![Pod {
                id: notebook(),
                controller: Some("StatefulSet".to_owned()),
                ..Pod::default()
            }]),
            ..PodObservations::default()
        });
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
