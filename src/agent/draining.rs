//! Drains as the agent carries them: what the API server said is held against where the node stands, and what shall be is handed
//! over. Nothing here waits.

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

/// A drain and the door that pods go through.
#[derive(Debug)]
pub struct Draining {
    drain: Drain,
    door: Door,
    standing: Option<Standing>,
    /// Operands that are in the way are paused.
    pauses_operands: bool,
    /// The agent ends.
    is_closed: bool,
}

/// What a look goes by, where something can be done.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen<'a> {
    /// The Node.
    pub(super) view: &'a View,
    /// Where its devices stand.
    pub(super) status: &'a Status,
    /// Whether that is for what the Node asks for now.
    pub(super) is_current: bool,
}

/// What a look has shown.
#[derive(Debug, Default)]
pub(super) struct Shown {
    /// Whether the Node shall have the taint.
    pub(super) is_tainted: bool,
    /// Whether pods go before operands are paused.
    pub(super) waits_for_pods: bool,
    /// When to look again at the latest.
    pub(super) again: Option<Duration>,
    /// What is to be told.
    pub(super) events: Vec<Event>,
    /// Devices that pods were evicted for, for the layout that is chosen now.
    pub(super) devices: BTreeSet<PciAddress>,
}

impl Draining {
    /// One that keeps to `policy`, with the pods behind `door`.
    pub fn new(policy: Policy, compat: Compat, door: Door) -> Self {
        Self {
            drain: Drain::new(policy),
            pauses_operands: compat == Compat::MigManager,
            door,
            standing: None,
            is_closed: false,
        }
    }

    /// Waits until the API server has said something else of the pods.
    pub(super) async fn changed(&mut self) {
        if self.door.heard.changed().await.is_err() {
            // Whoever listens has ended, and so will we.
            std::future::pending::<()>().await;
        }
    }

    /// Where it stands.
    pub(super) fn standing(&self) -> Option<&Standing> {
        self.standing.as_ref()
    }

    /// Looks, and hands over what is to be done. Where there is no Node nothing can keep new pods away, and none is evicted.
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

    /// From now on nobody is evicted any more: the agent ends, which may take a while.
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

/// Whether operands run there that hold GPUs, or would if we had not paused them.
fn has_operands(view: &View) -> bool {
    let ours = |value: &String| [RUNNING, PAUSED].contains(&value.as_str());
    let mut labels = CLIENTS.iter().filter_map(|key| view.labels.get(*key));
    labels.any(ours)
}

/// Whether new pods are kept away from the Node by us.
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

    /// One GPU that the notebook holds.
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
