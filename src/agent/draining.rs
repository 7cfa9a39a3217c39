//! Drains as the agent carries them: what the API server said is held against where the node stands, and what shall be is handed
//! over. Nothing here waits.

use std::time::Duration;

use tracing::{info, warn};

use crate::domain::node::View;
use crate::domain::node::drain::{Drain, Facts, Orders, Outcome, Policy, Standing};
use crate::domain::node::telling::Event;
use crate::domain::node::{Compat, REPARTITIONING};
use crate::domain::reason::Kind;
use crate::domain::reconcile::Status;
use crate::k8s::evict::Door;

/// A drain and the door that pods go through.
#[derive(Debug)]
pub struct Draining {
    drain: Drain,
    door: Door,
    standing: Option<Standing>,
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
}

impl Draining {
    /// One that keeps to `policy`, with the pods behind `door`.
    pub fn new(policy: Policy, compat: Compat, door: Door) -> Self {
        Self {
            drain: Drain::new(policy, compat == Compat::MigManager),
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
        if self.standing != outcome.standing {
            if let Some(standing) = &outcome.standing {
                info!("{standing}");
            }
            self.standing = outcome.standing;
        }
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
        }
    }
}

/// Whether new pods are kept away from the Node by us.
pub(super) fn is_tainted(view: &View) -> bool {
    let ours = |key: &str, effect: &str| key == REPARTITIONING && effect == "NoSchedule";
    let mut taints = view.taints.iter();
    taints.any(|taint| ours(&taint.key, &taint.effect))
}
