//! Capacity per type, counted on demand and cached until agents or the cluster report a change.
//!
//! A count visits all nodes, so it runs on a blocking thread, one at a time. Concurrent requests receive the previous
//! count; if that one is older than a few seconds, they first wait a moment for the new one. The response contains the
//! age of the count. Agents' reports are never delayed. Used by the REST API, the pages and the metrics.

mod holders;
mod query;
mod seen_agents;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use octavo_fleet::availability::{
    Availability, AvailabilityList, AvailabilityRow, CountCache, HoldingEvent, HoldingHistory,
    HoldingTimes, Wait, WaitBasis, WaitReport, count,
};
use octavo_fleet::cluster::PodKey;
use octavo_kube::cluster::WatchedCluster;
use octavo_model::API_VERSION;
use octavo_model::accelerators::Catalog;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

pub use self::query::AvailabilityQuery;
use self::seen_agents::SeenAgents;
use super::clock::{Clock, Moment};
use super::cluster_nodes::STALE_AFTER;
use super::fleet::Fleet;
use super::stale_while_revalidate::{Cached, Freshness, StaleWhileRevalidate};
use super::view::FleetView;

/// Message for callers who are not allowed to see why the cluster cannot be read.
pub const CLUSTER_UNREADABLE: &str = "the nodes and pods of the cluster cannot be read";

/// Minimum interval between counts while the fleet changes all the time; requests within it receive the previous count.
const PAUSE: Duration = Duration::from_secs(1);
/// Maximum age of a count that is returned without waiting for the new one.
const MEANWHILE: Duration = Duration::from_secs(3);

/// Counts capacity for all callers. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Counter {
    view: FleetView,
    cluster: Option<watch::Receiver<Arc<WatchedCluster>>>,
    cache: StaleWhileRevalidate<AvailabilityCount, CountState>,
    /// Completed holding intervals, which the next count adds to the history.
    completed_intervals: mpsc::Sender<Vec<HoldingEvent>>,
    /// The time of day.
    today: fn(&Clock) -> Timestamp,
}

/// Result of one count, of one fleet and one snapshot of the cluster.
#[derive(Debug, Clone)]
pub struct AvailabilityCount {
    /// Capacity per type.
    pub availability: Arc<Availability>,
    /// Revision of the counted fleet.
    pub revision: u64,
    /// The counted cluster; `None` without a watched cluster.
    watched: Option<Arc<WatchedCluster>>,
    at: Instant,
}

impl AvailabilityCount {
    /// Start time of a pod in seconds since 1970, as the kubelet reported it; `None` if it is unknown.
    pub fn pod_started_at(&self, namespace: &str, name: &str) -> Option<i64> {
        let key = PodKey { namespace: namespace.to_owned(), name: name.to_owned() };
        self.watched.as_ref()?.snapshot.pods().get(&key)?.started_at
    }
}

/// Age of a count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Age {
    /// Time since the counted state was last known to be current.
    pub age: Duration,
    /// Whether `age` exceeds the bound.
    pub is_stale: bool,
    /// Why the cluster is not watched at the moment.
    pub error: Option<String>,
}

/// State retained between counts.
#[derive(Debug)]
struct CountState {
    cache: CountCache,
    agents: SeenAgents,
    history: HoldingHistory,
    completed_intervals: mpsc::Receiver<Vec<HoldingEvent>>,
}

impl Counter {
    /// Creates a counter of this fleet and, if given, of this watched cluster.
    pub fn new(view: FleetView, cluster: Option<watch::Receiver<Arc<WatchedCluster>>>) -> Self {
        let (completed_intervals, to_learn) = holders::channel();
        let work = CountState {
            cache: CountCache::new(Catalog::built_in()),
            agents: SeenAgents::default(),
            history: HoldingHistory::default(),
            completed_intervals: to_learn,
        };
        Self {
            view,
            cluster,
            cache: StaleWhileRevalidate::new(work),
            completed_intervals,
            today: |_| Timestamp::now(),
        }
    }

    /// The counted fleet.
    pub fn view(&self) -> &FleetView {
        &self.view
    }

    /// Returns whether a cluster is watched, so that its nodes and pods are counted.
    pub fn has_cluster(&self) -> bool {
        self.cluster.is_some()
    }

    /// Returns the current count, or an earlier one if the current one takes longer than a moment; `None` only if
    /// counting panics.
    pub async fn current(&self) -> Option<AvailabilityCount> {
        self.count_if(|last| self.freshness(last)).await
    }

    /// Like [`current`](Self::current), but waits for a fresh count instead of returning a recent one; for reactions to
    /// a change.
    pub async fn latest(&self) -> Option<AvailabilityCount> {
        self.count_if(|last| self.freshness(last).require_fresh()).await
    }

    async fn count_if(
        &self,
        fit: impl Fn(&Cached<AvailabilityCount>) -> Freshness,
    ) -> Option<AvailabilityCount> {
        let counter = self.clone();
        let counting = move |work: &mut CountState, _| counter.count(work);
        self.cache.current(fit, counting).await.ok()
    }

    /// Returns the last count, if any, without counting.
    pub fn last(&self) -> Option<AvailabilityCount> {
        self.cache.last(|_| true)
    }

    /// Returns the age of a count.
    pub fn age(&self, counted: &AvailabilityCount) -> Age {
        let Some(cluster) = &self.cluster else {
            // Without a cluster, each node's own staleness is part of the count.
            return Age {
                age: counted.at.elapsed(),
                is_stale: counted.at.elapsed() > STALE_AFTER,
                error: None,
            };
        };
        // No event means no change, so an old count of a quiet cluster can still be current.
        let now = Arc::clone(&cluster.borrow());
        let is_same =
            counted.watched.as_ref().is_some_and(|then| Arc::ptr_eq(&then.snapshot, &now.snapshot));
        let then = counted.watched.as_ref().and_then(|then| then.current_at);
        let is_same = is_same && then.is_some() == now.current_at.is_some();
        let current_at = if is_same { now.current_at } else { then };
        let age = current_at.map(|current_at| current_at.elapsed());
        // Agents may have reported since.
        let of_agents =
            if self.is_current(counted) { Duration::ZERO } else { counted.at.elapsed() };
        let age = age.map(|age| age.max(of_agents));
        Age {
            age: age.unwrap_or_else(|| Moment::default().age(self.view.clock().now())),
            is_stale: age.is_none_or(|age| age > STALE_AFTER),
            error: now.error.clone(),
        }
    }

    /// Builds the document that answers `query`.
    pub fn document(
        &self,
        counted: &AvailabilityCount,
        query: &AvailabilityQuery,
    ) -> AvailabilityList {
        let clock = self.view.clock();
        let Age { age, is_stale, error } = self.age(counted);
        let now = clock.wall(clock.now());
        let as_of = now.checked_sub(age).unwrap_or(now);
        let all = &counted.availability;
        let rows = all.rows.iter().filter(|row| query.matches(row));
        AvailabilityList {
            api_version: API_VERSION.to_owned(),
            kind: "AvailabilityList".to_owned(),
            revision: counted.revision,
            basis: all.basis.into(),
            as_of: as_of.to_string(),
            age_seconds: age.as_secs(),
            stale: is_stale,
            error,
            starting: None,
            left_out: all.omitted_rows,
            items: rows
                .map(|row| AvailabilityRow::new(row, all.basis, wait_report(row.wait)))
                .collect(),
        }
    }

    /// Counts the current state.
    fn count(&self, work: &mut CountState) -> AvailabilityCount {
        let (fleet, watched) = (self.view.fleet(), self.watched());
        let now = (self.view.clock().now(), self.seconds());
        let (revision, at) = (fleet.revision, Instant::now());
        let availability = work.count(fleet, now, watched.as_deref());
        AvailabilityCount { availability: Arc::new(availability), revision, watched, at }
    }

    fn watched(&self) -> Option<Arc<WatchedCluster>> {
        let cluster = self.cluster.as_ref()?;
        Some(Arc::clone(&cluster.borrow()))
    }

    /// Classifies a count: fresh if it is current or younger than `PAUSE`.
    fn freshness(&self, last: &Cached<AvailabilityCount>) -> Freshness {
        let age = last.done.elapsed();
        if self.is_current(&last.value) || age < PAUSE {
            Freshness::Fresh
        } else if age < MEANWHILE {
            Freshness::Stale
        } else if last.value.at.elapsed() < STALE_AFTER && self.is_same_source(&last.value) {
            Freshness::Overdue
        } else {
            Freshness::Expired
        }
    }

    /// Returns whether a count is based on a cluster exactly if one has been read now.
    fn is_same_source(&self, counted: &AvailabilityCount) -> bool {
        let is_read = |watched: Option<&WatchedCluster>| {
            watched.is_some_and(|watched| watched.current_at.is_some())
        };
        is_read(counted.watched.as_deref()) == is_read(self.watched().as_deref())
    }

    /// Returns whether the count describes the current state.
    fn is_current(&self, counted: &AvailabilityCount) -> bool {
        let now = self.watched();
        let is_same_cluster = match (&counted.watched, &now) {
            (Some(then), Some(now)) => {
                Arc::ptr_eq(&then.snapshot, &now.snapshot)
                    && then.current_at.is_some() == now.current_at.is_some()
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

impl CountState {
    /// Counts at `now`, with `seconds` as Unix time.
    fn count(
        &mut self,
        fleet: Fleet,
        (now, seconds): (Moment, i64),
        watched: Option<&WatchedCluster>,
    ) -> Availability {
        self.agents.update(fleet);
        while let Ok(look) = self.completed_intervals.try_recv() {
            for shown in look {
                self.history.record(shown);
            }
        }
        let agents = self.agents.at(now);
        // An empty snapshot of a cluster that was never read does not mean an empty cluster.
        let snapshot = watched.filter(|watched| watched.current_at.is_some());
        let snapshot = snapshot.map(|watched| watched.snapshot.as_ref());
        let past = HoldingTimes { history: &mut self.history, now: seconds };
        count(&agents, snapshot, &mut self.cache, Some(past))
    }
}

/// Converts a wait to its document. Omits times outside the supported range.
fn wait_report(wait: Wait) -> WaitReport {
    let reason = wait.description();
    match wait {
        Wait::Now => WaitReport { basis: WaitBasis::Free.into(), ..WaitReport::default() },
        Wait::Deadlines { earliest, latest, of, holders } => WaitReport {
            basis: WaitBasis::Deadlines.into(),
            from: rfc3339(earliest),
            to: rfc3339(latest),
            of: Some(of),
            holders: Some(holders),
            reason,
            ..WaitReport::default()
        },
        Wait::Likely { from, to, samples, since, of, holders } => WaitReport {
            basis: match of {
                0 => WaitBasis::History.into(),
                _ => WaitBasis::HistoryAndDeadlines.into(),
            },
            from: rfc3339(from),
            to: to.and_then(rfc3339),
            samples: Some(samples),
            since: rfc3339(since),
            of: (of > 0).then_some(of),
            holders: Some(holders),
            reason,
        },
        Wait::Unknown(why) => {
            let (samples, since) = why.observations().unzip();
            let since = since.and_then(rfc3339);
            let basis = WaitBasis::Unknown.into();
            WaitReport { basis, samples, since, reason, ..WaitReport::default() }
        }
    }
}

fn rfc3339(seconds: i64) -> Option<String> {
    Timestamp::from_second(seconds).ok().map(|time| time.to_string())
}

#[cfg(test)]
mod tests;
