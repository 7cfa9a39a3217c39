//! What is to be had, counted when somebody asks and kept until agents or cluster say something else.
//!
//! Counting looks at all nodes and pods, so it is done on a thread of its own and by one at a time: who asks meanwhile is given the count
//! before or, where that is old, waits; and who reports is never delayed. Called by the REST API, the pages and the metrics.

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

/// A count that is older is marked as what was: the bound of the requirements.
pub const STALE_AFTER: Duration = Duration::from_mins(1);

/// What everybody is told who may not know why the cluster is not followed.
pub const NOT_READ: &str = "its nodes and pods cannot be read now";

/// Between two counts while the fleet changes all the time: whoever asks then is given the one before.
const PAUSE: Duration = Duration::from_secs(1);
/// While it is counted anew everybody is given the count before, if it is no older than this: nobody waits.
const MEANWHILE: Duration = Duration::from_secs(3);

/// Counts, for all who ask. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Counter {
    view: View,
    cluster: Option<watch::Receiver<Arc<Followed>>>,
    kept: Kept<Counted, Work>,
    /// Who holds nothing any more, to be learned from with the next count.
    shown: mpsc::Sender<Vec<Shown>>,
    /// The time of day.
    today: fn(&Clock) -> Timestamp,
}

/// One count, of one fleet and one look at the cluster.
#[derive(Debug, Clone)]
pub struct Counted {
    /// What is to be had.
    pub availability: Arc<Availability>,
    /// The fleet that was counted.
    pub revision: u64,
    /// What of the cluster was counted; `None` where none is followed.
    followed: Option<Arc<Followed>>,
    at: Instant,
}

/// How old a count is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Age {
    /// Since what was counted was last known to be current.
    pub age: Duration,
    /// Whether that is past the bound.
    pub is_stale: bool,
    /// Why the cluster is not followed now.
    pub trouble: Option<String>,
}

/// What is kept between two counts.
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
    /// Of this fleet, and of a cluster where one is followed.
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

    /// The fleet that is counted.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Whether a cluster is followed, by whose nodes and pods it is counted.
    pub fn follows(&self) -> bool {
        self.cluster.is_some()
    }

    /// What is to be had now, or was a moment ago; `None` only where counting fails on this side.
    pub async fn current(&self) -> Option<Counted> {
        self.fitting(|last| self.fit(last)).await
    }

    /// The same for who asks once because something changed, and rather waits than being told what was before.
    pub async fn latest(&self) -> Option<Counted> {
        self.fitting(|last| self.fit(last).or_wait()).await
    }

    async fn fitting(&self, fit: impl Fn(&Last<Counted>) -> Fit) -> Option<Counted> {
        let counter = self.clone();
        let counting = move |work: &mut Work, _| counter.count(work);
        self.kept.current(fit, counting).await.ok()
    }

    /// What was counted last, without counting.
    pub fn last(&self) -> Option<Counted> {
        self.kept.last(|_| true)
    }

    /// How old a count is now.
    pub fn age(&self, counted: &Counted) -> Age {
        let Some(cluster) = &self.cluster else {
            // Agents alone: each node's own staleness is counted in.
            return Age {
                age: counted.at.elapsed(),
                is_stale: counted.at.elapsed() > STALE_AFTER,
                trouble: None,
            };
        };
        // Nothing changes while nothing is heard, so what is known of the cluster may be current though it was counted long ago.
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

    /// The document of what `query` asks for.
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

    /// Counts what is there now.
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

    /// What a count is good for: one of what is there now is current, and so is one so young that nobody minds.
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

    /// Whether it is one of what is there now.
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
        // What agents alone say is counted again now and then: whether they are heard of is a matter of time, and so is how likely it is
        // that somebody ends who has held for long.
        let is_timeless = now.is_some() && !counted.availability.depends_on_time();
        is_same && (is_timeless || counted.at.elapsed() < STALE_AFTER / 4)
    }
}

impl Work {
    /// Counts at `now`, which is so many seconds since 1970.
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
        // Until a cluster was read once, it is not known to be empty.
        let sights = followed.filter(|followed| followed.heard.is_some());
        let sights = sights.map(|followed| followed.sights.as_ref());
        let past = Past {
            history: &mut self.history,
            now: seconds,
        };
        count(&agents, sights, &mut self.names, Some(past))
    }

    /// Reads what agents have said since the count before.
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
            // What an agent sent was read before it was taken in.
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

/// Whether devices of a node are being given other partitions now.
fn is_changing(node: &Node) -> bool {
    let layout = node.summary.layout.as_ref();
    let state = layout.and_then(|layout| layout.state.as_deref());
    state.and_then(Reason::of) == Some(Reason::Applying)
}

#[cfg(test)]
mod tests;
