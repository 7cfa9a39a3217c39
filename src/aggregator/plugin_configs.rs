//! Controller of the `ConfigMap` of NVIDIA's device plugin. Only the aggregator writes it, on behalf of all agents.
//!
//! ```text
//!  Fleet: configuration that each node requests --> Ledger: desired keys --> Shelf: applies what differs
//!                                                     ^------ current keys ------/
//! ```
//!
//! Requests from nodes are validated as strictly as agents write them. A client that can report as a node can therefore
//! only set replica counts for the device plugins of other nodes, and only under Octavo's own keys.

pub mod ledger;

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, info, warn};

use self::ledger::{Ledger, Wish, Wishes};
use super::fleet::{Fleet, Node};
use super::view::View;
use crate::domain::id::NodeName;
use crate::domain::node::pace::Pace;
use crate::domain::stream::PartKey;
use crate::k8s::plugin_config::{Shelf, ShelfError};
use crate::wire::status;

/// Delay after a change of the fleet, so that nodes that change their layouts together cause one write.
const GATHER: Duration = Duration::from_millis(500);
/// Interval of regular checks, which restore keys deleted by others and remove expired ones.
const AGAIN: Duration = Duration::from_mins(1);

/// Controller of the `ConfigMap`.
#[derive(Debug)]
pub struct Keeper {
    shelf: Shelf,
    view: View,
    fleet: Fleet,
    wishes: Wishes,
    ledger: Ledger,
    began: Instant,
    pace: Pace<()>,
    refused: BTreeMap<NodeName, String>,
    trouble: Option<String>,
}

impl Keeper {
    /// Creates a controller of this `ConfigMap` for the nodes of this fleet.
    pub fn new(shelf: Shelf, view: View) -> Self {
        Self {
            shelf,
            view,
            fleet: Fleet::default(),
            wishes: Wishes::new(),
            ledger: Ledger::default(),
            began: Instant::now(),
            pace: Pace::default(),
            refused: BTreeMap::new(),
            trouble: None,
        }
    }

    /// Reconciles the `ConfigMap` until the fleet's store is dropped.
    pub async fn run(mut self) {
        info!(
            "the ConfigMap {} of NVIDIA's device plugin is kept as nodes ask for it",
            self.shelf.name()
        );
        let mut due = Instant::now();
        loop {
            tokio::select! {
                changed = self.view.changed() => {
                    let Some(fleet) = changed else { return };
                    if self.take(fleet) {
                        due = Instant::now();
                    }
                    sleep(GATHER).await;
                }
                () = sleep_until(due) => {
                    let wait = self.turn().await;
                    due = Instant::now().checked_add(wait).unwrap_or(due);
                }
            }
        }
    }

    /// Reads the nodes' requests; returns whether any changed.
    fn take(&mut self, fleet: Fleet) -> bool {
        let mut differs = false;
        let news = fleet.since(&self.fleet);
        for node in news.changed {
            let before = self.fleet.nodes.get(&node.name);
            if before.is_some_and(|before| part(before) == part(node)) {
                continue;
            }
            let before = match wish(node) {
                Some(wish) if self.wishes.get(&node.name) == Some(&wish) => continue,
                Some(wish) => {
                    self.wishes.insert(node.name.clone(), wish);
                    true
                }
                None => self.wishes.remove(&node.name).is_some(),
            };
            differs |= before;
        }
        for node in news.gone {
            differs |= self.wishes.remove(&node.name).is_some();
        }
        self.fleet = fleet;
        differs
    }

    /// Reads, decides and writes; returns the time until the next run.
    async fn turn(&mut self) -> Duration {
        let now = self.began.elapsed();
        if let Some(wait) = self.pace.wait(now, &()) {
            return wait;
        }
        match self.write(now).await {
            Ok(()) => {
                if self.trouble.take().is_some() {
                    info!("the ConfigMap {} can be written again", self.shelf.name());
                }
                self.pace = Pace::default();
                AGAIN
            }
            Err(error) => {
                self.pace.failed(now, None);
                let told = error.to_string();
                if self.trouble.as_ref() != Some(&told) {
                    warn!("{told}; it is tried again");
                    self.trouble = Some(told);
                }
                self.pace.wait(now, &()).unwrap_or(AGAIN)
            }
        }
    }

    async fn write(&mut self, now: Duration) -> Result<(), ShelfError> {
        let contents = self.shelf.read().await?;
        let decision = self.ledger.decide(now, &self.wishes, &contents);
        for (node, why) in &decision.refused {
            if self.refused.get(node) != Some(why) {
                warn!("what node {node} asks NVIDIA's device plugin for is not taken: {why}");
            }
        }
        self.refused = decision.refused;
        let Some(keys) = decision.apply else {
            debug!("the ConfigMap {} says what it shall", self.shelf.name());
            return Ok(());
        };
        self.shelf.apply(&keys, &contents).await?;
        let count = keys.len();
        info!(
            "the ConfigMap {} was written: {count} keys of ours",
            self.shelf.name()
        );
        Ok(())
    }
}

fn part(node: &Node) -> Option<&crate::domain::stream::Content> {
    node.parts.get(PartKey::sharing().as_str())
}

/// Configuration that the node requests. The store decoded the part before it accepted it.
fn wish(node: &Node) -> Option<Wish> {
    let report = status::decode_sharing(part(node)?).ok()?;
    let wish = Wish {
        told: report.hand_off,
        named: report.named,
    };
    (wish != Wish::default()).then_some(wish)
}
