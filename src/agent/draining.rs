//! The agent's side of a drain: compares the pods that the API server reports with the node's status, and passes on
//! which pods to evict. Nothing here waits.

use std::collections::BTreeSet;
use std::time::Duration;

use tracing::{info, warn};

use crate::domain::id::PciAddress;
use crate::domain::node::View;
use crate::domain::node::drain::{Drain, Facts, Orders, Outcome, Policy, Standing};
use crate::domain::node::operands::{CLIENTS, PAUSED, RUNNING};
use crate::domain::node::telling::Event;
use crate::domain::node::{Compat, EFFECT, REPARTITIONING};
use crate::domain::reason::Kind;
use crate::domain::reconcile::Status;
use crate::k8s::evict::Door;

/// A drain and the handle through which its pods are evicted.
#[derive(Debug)]
pub struct Draining {
    drain: Drain,
    door: Door,
    standing: Option<Standing>,
    /// Whether operands that block a change are paused.
    pauses_operands: bool,
    /// Set when the agent is about to exit.
    is_closed: bool,
}

/// Inputs of a drain step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) view: &'a View,
    /// Status of the Node's devices.
    pub(super) status: &'a Status,
    /// Whether `status` belongs to the layout that the Node currently requests.
    pub(super) is_current: bool,
}

/// Result of a drain step.
#[derive(Debug, Default)]
pub(super) struct Shown {
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

impl Draining {
    /// Creates a drain with `policy` that evicts pods through `door`.
    pub fn new(policy: Policy, compat: Compat, door: Door) -> Self {
        Self {
            drain: Drain::new(policy),
            pauses_operands: compat == Compat::MigManager,
            door,
            standing: None,
            is_closed: false,
        }
    }

    /// Waits until the API server reports a change of the pods.
    pub(super) async fn changed(&mut self) {
        if self.door.heard.changed().await.is_err() {
            // The pod watcher has ended, so no change will ever arrive.
            std::future::pending::<()>().await;
        }
    }

    pub(super) fn standing(&self) -> Option<&Standing> {
        self.standing.as_ref()
    }

    /// Takes a step and passes on the evictions. Without a Node nothing can keep new pods away, so no pod is evicted.
    pub(super) fn look(&mut self, now: Duration, seen: Option<Seen<'_>>) -> Shown {
        let heard = self.door.heard.borrow_and_update().clone();
        let outcome = match seen.filter(|_| !self.is_closed) {
            Some(seen) => self.drain.look(
                now,
                &Facts {
                    status: seen.status,
                    is_current: seen.is_current,
                    heard: &heard,
                    pauses_operands: self.pauses_operands && has_operands(seen.view),
                    is_tainted: is_tainted(seen.view),
                },
            ),
            None => self.drain.rest(),
        };
        self.door.order(outcome.orders.clone());
        self.tell(outcome)
    }

    /// Stops all evictions: the agent is about to exit, which may take a while.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        self.door.order(Orders::default());
    }

    fn tell(&mut self, outcome: Outcome) -> Shown {
        let steady = |standing: &Option<Standing>| standing.as_ref().map(Standing::steady);
        if let Some(standing) = &outcome.standing
            && steady(&self.standing) != Some(standing.steady())
        {
            info!("{standing}");
        }
        self.standing = outcome.standing;
        let events: Vec<Event> = outcome.news.into_iter().map(Event::from).collect();
        for event in &events {
            let word = event.reason.word();
            match event.reason.kind() {
                Kind::Normal => info!(reason = %word, "drain: {}", event.message),
                Kind::Warning => warn!(reason = %word, "drain: {}", event.message),
            }
        }
        Shown {
            is_tainted: outcome.is_tainted,
            waits_for_pods: outcome.waits_for_pods,
            again: outcome.again,
            events,
            devices: outcome.devices,
        }
    }
}

/// Returns whether operands run on the Node that hold GPUs, or would if the agent had not paused them.
fn has_operands(view: &View) -> bool {
    let ours = |value: &String| [RUNNING, PAUSED].contains(&value.as_str());
    let mut labels = CLIENTS.iter().filter_map(|key| view.labels.get(*key));
    labels.any(ours)
}

/// Returns whether the agent's taint keeps new pods away from the Node.
pub(super) fn is_tainted(view: &View) -> bool {
    let mut taints = view.taints.iter();
    taints.any(|taint| taint.key == REPARTITIONING && taint.effect == EFFECT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::holder::{self, Holder, Who};
    use crate::domain::node::Taint;
    use crate::domain::node::drain::{Heard, Pod, PodId, Scope};
    use crate::domain::reconcile::DeviceStatus;

    fn notebook() -> PodId {
        PodId {
            namespace: "team-a".to_owned(),
            name: "notebook".to_owned(),
            uid: "1".to_owned(),
        }
    }

    /// A status with one GPU that the notebook holds.
    fn blocked() -> Status {
        let pci = PciAddress::new(0, 7, 0, 0).unwrap();
        let who = Who {
            pod: Some(holder::Pod {
                uid: Some("1".to_owned()),
                ..holder::Pod::default()
            }),
            ..Who::default()
        };
        let device = DeviceStatus {
            pci,
            name: "GPU 0".to_owned(),
            state: "blocked",
            message: String::new(),
            is_held: false,
            holders: vec![Holder {
                device: pci,
                gpu_instance: None,
                compute_instance: None,
                who,
            }],
            waits_for_holders: true,
            progress: None,
        };
        Status {
            layout: Some("night".to_owned()),
            state: Some("blocked"),
            devices: vec![device],
            ..Status::default()
        }
    }

    #[test]
    fn an_agent_that_ends_orders_nothing_any_more_whatever_it_sees_until_then() {
        let (door, orders, hear) = Door::new();
        let policy = Policy {
            scope: Scope::Affected,
            deadline: Duration::from_mins(10),
        };
        let mut draining = Draining::new(policy, Compat::None, door);
        let taint = Taint {
            key: REPARTITIONING.to_owned(),
            value: None,
            effect: "NoSchedule".to_owned(),
            added: None,
        };
        let view = View {
            taints: vec![taint],
            ..View::default()
        };
        let status = blocked();
        let seen = Seen {
            view: &view,
            status: &status,
            is_current: true,
        };
        hear.send_replace(Heard {
            pods: Some(vec![Pod {
                id: notebook(),
                controller: Some("StatefulSet".to_owned()),
                ..Pod::default()
            }]),
            ..Heard::default()
        });
        for second in 0..2 {
            draining.look(Duration::from_secs(second), Some(seen));
        }
        assert_eq!(orders.borrow().evict, [notebook()]);
        draining.close();
        assert_eq!(*orders.borrow(), Orders::default());
        let shown = draining.look(Duration::from_secs(2), Some(seen));
        assert!(!shown.is_tainted);
        assert_eq!(*orders.borrow(), Orders::default());
    }

    #[test]
    fn operands_run_where_a_label_says_so_or_we_paused_them() {
        for (key, value, expected) in [
            ("nvidia.com/gpu.deploy.dcgm", RUNNING, true),
            ("nvidia.com/gpu.deploy.dcgm", PAUSED, true),
            ("nvidia.com/gpu.deploy.dcgm", "false", false),
            ("nvidia.com/gpu.deploy.driver", RUNNING, false),
        ] {
            let view = View {
                labels: [(key.to_owned(), value.to_owned())].into(),
                ..View::default()
            };
            assert_eq!(has_operands(&view), expected, "{key}={value}");
        }
    }
}
