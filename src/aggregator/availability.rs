//! Capacity per type, counted on demand and cached until agents or the cluster report a change.
//!
//! A count visits all nodes and pods, so it runs on a blocking thread, one at a time. Concurrent requests receive the
//! previous count or, if that one is too old, wait. Agents' reports are never delayed. Used by the REST API, the pages
//! and the metrics.

mod holders;
mod query;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

pub use self::query::{AvailabilityQuery, AvailabilityQueryError};
use super::clock::{Clock, Moment};
use super::fleet::{Fleet, Node};
use super::kept::{Fit, Kept, Last};
use super::view::View;
use crate::domain::accelerators::Catalogue;
use crate::domain::availability::{
    AgentNode, Availability, History, Names, Past, Possibilities, Reported, Seen, Shown, count,
};
use crate::domain::id::NodeName;
use crate::domain::reason::Reason;
use crate::domain::stream::PartKey;
use crate::k8s::cluster::Followed;
use crate::wire::api::API_VERSION;
use crate::wire::availability::{AvailabilityList, AvailabilityRow};
use crate::wire::status;

/// Age from which a count is marked as stale; the bound is set by the requirements.
pub const STALE_AFTER: Duration = Duration::from_mins(1);

/// Message for callers who are not allowed to see why the cluster cannot be read.
pub const NOT_READ: &str = "its nodes and pods cannot be read now";

/// Minimum interval between counts while the fleet changes all the time; requests within it receive the previous count.
const PAUSE: Duration = Duration::from_secs(1);
/// Maximum age of a count that is returned while a new one runs.
const MEANWHILE: Duration = Duration::from_secs(3);

/// Counts capacity for all callers. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Counter {
    view: View,
    cluster: Option<watch::Receiver<Arc<Followed>>>,
    kept: Kept<Counted, Work>,
    /// Completed holding intervals, which the next count adds to the history.
    shown: mpsc::Sender<Vec<Shown>>,
    /// The time of day.
    today: fn(&Clock) -> Timestamp,
}

/// Result of one count, of one fleet and one snapshot of the cluster.
#[derive(Debug, Clone)]
pub struct Counted {
    /// Capacity per type.
    pub availability: Arc<Availability>,
    /// Revision of the counted fleet.
    pub revision: u64,
    /// The counted cluster; `None` without a watched cluster.
    followed: Option<Arc<Followed>>,
    at: Instant,
}

/// Age of a count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Age {
    /// Time since the counted state was last known to be current.
    pub age: Duration,
    /// Whether `age` exceeds the bound.
    pub is_stale: bool,
    /// Why the cluster is not watched at the moment.
    pub trouble: Option<String>,
}

/// State retained between counts.
#[derive(Debug)]
struct Work {
    names: Names,
    known: Possibilities,
    fleet: Fleet,
    seen: BTreeMap<NodeName, Seen>,
    history: History,
    shown: mpsc::Receiver<Vec<Shown>>,
}

impl Counter {
    /// Creates a counter of this fleet and, if given, of this watched cluster.
    pub fn new(view: View, cluster: Option<watch::Receiver<Arc<Followed>>>) -> Self {
        let (shown, to_learn) = holders::channel();
        let work = Work {
            names: Names::new(Catalogue::built_in()),
            known: Possibilities::default(),
            fleet: Fleet::default(),
            seen: BTreeMap::new(),
            history: History::default(),
            shown: to_learn,
        };
        Self {
            view,
            cluster,
            kept: Kept::new(work),
            shown,
            today: |_| Timestamp::now(),
        }
    }

    /// The counted fleet.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Returns whether a cluster is watched, so that its nodes and pods are counted.
    pub fn follows(&self) -> bool {
        self.cluster.is_some()
    }

    /// Returns the current count or a recent one; `None` only if counting panics.
    pub async fn current(&self) -> Option<Counted> {
        self.fitting(|last| self.fit(last)).await
    }

    /// Like [`current`](Self::current), but waits for a fresh count instead of returning a recent one; for reactions to
    /// a change.
    pub async fn latest(&self) -> Option<Counted> {
        self.fitting(|last| self.fit(last).or_wait()).await
    }

    async fn fitting(&self, fit: impl Fn(&Last<Counted>) -> Fit) -> Option<Counted> {
        let counter = self.clone();
        let counting = move |work: &mut Work, _| counter.count(work);
        self.kept.current(fit, counting).await.ok()
    }

    /// Returns the last count, if any, without counting.
    pub fn last(&self) -> Option<Counted> {
        self.kept.last(|_| true)
    }

    /// Returns the age of a count.
    pub fn age(&self, counted: &Counted) -> Age {
        let Some(cluster) = &self.cluster else {
            // Without a cluster, each node's own staleness is part of the count.
            return Age {
                age: counted.at.elapsed(),
                is_stale: counted.at.elapsed() > STALE_AFTER,
                trouble: None,
            };
        };
        // No event means no change, so an old count of a quiet cluster can still be current.
        let now = Arc::clone(&cluster.borrow());
        let is_same = counted
            .followed
            .as_ref()
            .is_some_and(|then| Arc::ptr_eq(&then.sights, &now.sights));
        let then = counted.followed.as_ref().and_then(|then| then.heard);
        let heard = if is_same { now.heard } else { then };
        let age = heard.map(|heard| heard.elapsed());
        Age {
            age: age.unwrap_or_else(|| Moment::default().age(self.view.clock().now())),
            is_stale: age.is_none_or(|age| age > STALE_AFTER),
            trouble: now.trouble.clone(),
        }
    }

    /// Builds the document that answers `query`.
    pub fn document(&self, counted: &Counted, query: &AvailabilityQuery) -> AvailabilityList {
        let clock = self.view.clock();
        let Age {
            age,
            is_stale,
            trouble,
        } = self.age(counted);
        let now = clock.wall(clock.now());
        let as_of = now.checked_sub(age).unwrap_or(now);
        let all = &counted.availability;
        let rows = all.rows.iter().filter(|row| query.lets_through(row));
        AvailabilityList {
            api_version: API_VERSION.to_owned(),
            kind: "AvailabilityList".to_owned(),
            revision: counted.revision,
            basis: all.basis.as_str().to_owned(),
            as_of: as_of.to_string(),
            age_seconds: age.as_secs(),
            stale: is_stale,
            trouble,
            starting: None,
            left_out: all.left_out,
            items: rows
                .map(|row| AvailabilityRow::of(row, all.basis))
                .collect(),
        }
    }

    /// Counts the current state.
    fn count(&self, work: &mut Work) -> Counted {
        let (fleet, followed) = (self.view.fleet(), self.followed());
        let now = (self.view.clock().now(), self.seconds());
        let (revision, at) = (fleet.revision, Instant::now());
        let availability = work.count(fleet, now, followed.as_deref());
        Counted {
            availability: Arc::new(availability),
            revision,
            followed,
            at,
        }
    }

    fn followed(&self) -> Option<Arc<Followed>> {
        let cluster = self.cluster.as_ref()?;
        Some(Arc::clone(&cluster.borrow()))
    }

    /// Classifies a count: fresh if it is current or younger than `PAUSE`.
    fn fit(&self, last: &Last<Counted>) -> Fit {
        let age = last.done.elapsed();
        if self.is_current(&last.made) || age < PAUSE {
            Fit::Current
        } else if age < MEANWHILE {
            Fit::Meanwhile
        } else {
            Fit::Old
        }
    }

    /// Returns whether the count describes the current state.
    fn is_current(&self, counted: &Counted) -> bool {
        let now = self.followed();
        let is_same_cluster = match (&counted.followed, &now) {
            (Some(then), Some(now)) => {
                Arc::ptr_eq(&then.sights, &now.sights)
                    && then.heard.is_some() == now.heard.is_some()
            }
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        let is_same = is_same_cluster && counted.revision == self.view.fleet().revision;
        // A count of agents alone is repeated regularly because their staleness depends on time. The same holds for the
        // probability that a long-running pod ends soon.
        let is_timeless = now.is_some() && !counted.availability.depends_on_time();
        is_same && (is_timeless || counted.at.elapsed() < STALE_AFTER / 4)
    }
}

impl Work {
    /// Counts at `now`, with `seconds` as Unix time.
    fn count(
        &mut self,
        fleet: Fleet,
        (now, seconds): (Moment, i64),
        followed: Option<&Followed>,
    ) -> Availability {
        self.look(fleet);
        while let Ok(look) = self.shown.try_recv() {
            for shown in look {
                self.history.show(shown);
            }
        }
        let nodes = self.fleet.nodes.iter();
        let agents: Vec<AgentNode<'_>> = nodes
            .filter_map(|node| {
                Some(AgentNode {
                    name: node.name.as_str(),
                    seen: self.seen.get(&node.name)?,
                    is_stale: node.freshness.is_stale(now),
                    is_changing: is_changing(node),
                })
            })
            .collect();
        // An empty snapshot of a cluster that was never read does not mean an empty cluster.
        let sights = followed.filter(|followed| followed.heard.is_some());
        let sights = sights.map(|followed| followed.sights.as_ref());
        let past = Past {
            history: &mut self.history,
            now: seconds,
        };
        count(&agents, sights, &mut self.names, Some(past))
    }

    /// Decodes what agents reported since the previous count.
    fn look(&mut self, fleet: Fleet) {
        let news = fleet.since(&self.fleet);
        for node in news.gone {
            self.seen.remove(&node.name);
        }
        for node in news.changed {
            let before = self.fleet.nodes.get(&node.name);
            if before.is_some_and(|before| before.parts == node.parts) {
                continue;
            }
            // The store decoded the parts before it accepted them.
            if let Ok(inventory) = status::decode(&node.parts).map(|status| status.inventory) {
                let usage = node.parts.get(PartKey::usage().as_str());
                let usage = usage.and_then(|part| status::decode_usage(part).ok());
                let sharing = node.parts.get(PartKey::sharing().as_str());
                let sharing = sharing.and_then(|part| status::decode_sharing(part).ok());
                let reported = Reported {
                    usage: usage.as_ref(),
                    sharing: sharing.as_ref(),
                };
                let seen = Seen::of(&inventory, reported, &mut self.known);
                self.seen.insert(node.name.clone(), seen);
            }
        }
        self.fleet = fleet;
    }
}

/// Returns whether the agent is applying a layout now.
fn is_changing(node: &Node) -> bool {
    let layout = node.summary.layout.as_ref();
    let state = layout.and_then(|layout| layout.state.as_deref());
    state.and_then(Reason::of) == Some(Reason::Applying)
}

#[cfg(test)]
mod tests;
