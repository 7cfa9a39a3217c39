//! Bounded history of holding times by type, resource and shape, and waiting times estimated from it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::ended_holdings::{EndedHolding, HoldingEvent};
use super::row::{MIN_ENDS, RowKey, Unknown};
use super::shape::Shape;
use super::survival::{CumulativeHazard, HoldingInterval, Quantile};
use super::unit_type::TypeResolver;
use crate::type_labels::NVIDIA_PRODUCT_LABEL;

/// Observed holding times.
#[derive(Debug, Clone, Default)]
pub struct HoldingHistory {
    /// Time since which every end is observed; `None` if nothing is observed.
    since: Option<i64>,
    unclassified: Vec<EndedHolding>,
    kinds: BTreeMap<RowKey, EndedHoldings>,
    /// Last end that was not recorded because there are too many kinds.
    last_dropped_end: Option<i64>,
}

/// Ended holdings of one kind.
#[derive(Debug, Clone, Default)]
struct EndedHoldings {
    /// Time since which all ends are recorded here.
    since: i64,
    /// Begin, end and namespace of each holding, in order of observation.
    ends: VecDeque<(i64, i64, String)>,
    /// Workloads of these ends. Only the first end of a workload counts, because it already releases some units.
    works: BTreeSet<(String, i64)>,
}

/// Waiting time estimated from the history. Times are seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitEstimate {
    /// No estimate.
    Unknown(Unknown),
    /// Median and 90th percentile (if known) of the time at which the first holder ends.
    Likely { from: i64, to: Option<i64>, samples: u32, since: i64 },
}

/// Length of the observation window in seconds; older workloads are not representative.
const WINDOW_SECONDS: i64 = 14 * 86_400;
/// Maximum number of ends recorded per kind; the oldest are dropped.
const MAX_ENDS_PER_KIND: usize = 512;
/// Maximum number of kinds, because types and resource names come from the cluster and are unbounded.
const MAX_KINDS: usize = 256;

impl HoldingHistory {
    /// Records an observation. The next count classifies it, because only the count knows the types of the nodes.
    pub fn record(&mut self, shown: HoldingEvent) {
        match shown {
            HoldingEvent::ObservedSince(since) => {
                *self = Self { since: Some(since), ..Self::default() }
            }
            HoldingEvent::Ended(left) => self.unclassified.push(left),
        }
    }

    /// Classifies recorded observations by `row_key`, the row of a resource on a node. For a node that no longer exists
    /// the type comes from its labels.
    pub(super) fn classify<'a>(
        &mut self,
        row_key: impl Fn(&str, &str) -> Option<&'a RowKey>,
        names: &mut TypeResolver,
    ) {
        let unplaced = std::mem::take(&mut self.unclassified);
        let Some(since) = self.since.filter(|_| !unplaced.is_empty()) else {
            return;
        };
        for left in unplaced {
            let key = row_key(&left.node.name, &left.resource).cloned();
            let key = key.unwrap_or_else(|| {
                let product = left.node.label(NVIDIA_PRODUCT_LABEL);
                let shape = Shape::from_resource(&left.resource, product);
                let (kind, _) = names.resolve(&left.node);
                RowKey { kind, resource: left.resource.clone(), shape }
            });
            self.keep(key, &left, since);
        }
    }

    fn keep(&mut self, key: RowKey, left: &EndedHolding, since: i64) {
        if !self.kinds.contains_key(&key) && self.kinds.len() >= MAX_KINDS {
            let oldest = left.ended.saturating_sub(WINDOW_SECONDS);
            self.kinds.retain(|_, lived| lived.last() >= oldest);
            if self.kinds.len() >= MAX_KINDS {
                self.last_dropped_end = self.last_dropped_end.max(Some(left.ended));
                return;
            }
        }
        let since = self.known_since(since);
        let fresh = || EndedHoldings { since, ..EndedHoldings::default() };
        self.kinds.entry(key).or_insert_with(fresh).keep(left);
    }

    /// Time since which every end of an unrecorded kind would have been observed, if observation began at `since`.
    fn known_since(&self, since: i64) -> i64 {
        let cut = self.last_dropped_end.map(|cut| cut.saturating_add(1));
        cut.map_or(since, |cut| cut.max(since))
    }

    /// Estimates when the first of `works` ends, which hold units of `key` at `now`.
    pub(super) fn estimate(
        &self,
        key: &RowKey,
        works: &HolderWorkloads<'_>,
        now: i64,
    ) -> WaitEstimate {
        let Some(watched) = self.since else {
            return WaitEstimate::Unknown(Unknown::NoDeadline);
        };
        let lived = self.kinds.get(key);
        let since = lived.map_or_else(|| self.known_since(watched), |lived| lived.since);
        let since = since.max(now.saturating_sub(WINDOW_SECONDS));
        let ended = lived.into_iter().flat_map(|lived| &lived.ends);
        let ended = ended.filter(|(_, ended, _)| *ended >= since);
        let interval = |began, until, is_end| {
            HoldingInterval::new(age_seconds(began, since), age_seconds(began, until), is_end)
        };
        let mut intervals: Vec<HoldingInterval> =
            ended.map(|(began, ended, _)| interval(*began, *ended, true)).collect();
        let samples = u32::try_from(intervals.len()).unwrap_or(u32::MAX);
        if samples < MIN_ENDS {
            return WaitEstimate::Unknown(Unknown::TooFew { ended: samples, since });
        }
        let here = works.values().filter(|work| work.began < now);
        intervals.extend(here.map(|work| interval(work.began, now, false)));
        let usable = works.values().filter(|work| work.is_usable);
        let ages: Vec<u64> = usable.map(|work| age_seconds(work.began, now)).collect();
        let hazard = CumulativeHazard::estimate(&intervals);
        let by = |chance: Quantile| {
            let seconds = i64::try_from(hazard.time_to_first_end(&ages, chance)?).ok()?;
            now.checked_add(seconds)
        };
        match by(Quantile::Median) {
            Some(from) => {
                WaitEstimate::Likely { from, to: by(Quantile::Ninetieth), samples, since }
            }
            None => WaitEstimate::Unknown(Unknown::BeyondObserved { samples, since }),
        }
    }
}

impl EndedHoldings {
    fn keep(&mut self, left: &EndedHolding) {
        let of = |namespace: &str, began| {
            let (namespace, minute) = workload_key(namespace, began);
            (namespace.to_owned(), minute)
        };
        if !self.works.insert(of(&left.namespace, left.began)) {
            return;
        }
        let namespace = left.namespace.clone();
        self.ends.push_back((left.began, left.ended, namespace));
        let oldest = left.ended.saturating_sub(WINDOW_SECONDS);
        while let Some((_, ended, _)) = self.ends.front()
            && (self.ends.len() > MAX_ENDS_PER_KIND || *ended < oldest)
            && let Some((began, ended, namespace)) = self.ends.pop_front()
        {
            self.works.remove(&of(&namespace, began));
            // Some ends at that time are no longer recorded.
            self.since = self.since.max(ended.saturating_add(1));
        }
    }

    fn last(&self) -> i64 {
        self.ends.back().map_or(self.since, |(_, ended, _)| *ended)
    }
}

/// Age in seconds at the time `at`.
fn age_seconds(began: i64, at: i64) -> u64 {
    u64::try_from(at.saturating_sub(began)).unwrap_or(0)
}

/// Holders grouped into workloads by namespace and start minute (since 1970). Pods of one namespace that start in the
/// same minute are usually replicas or workers of one job and end together. Counting them individually would
/// underestimate the time until the first end.
pub(super) type HolderWorkloads<'a> = BTreeMap<(&'a str, i64), HolderWorkload>;

/// Workload that holds units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HolderWorkload {
    /// Start of its first pod, in seconds since 1970.
    pub(super) began: i64,
    /// True if another pod could use its units afterwards.
    pub(super) is_usable: bool,
}

/// Workload that a pod belongs to.
pub(super) fn workload_key(namespace: &str, began: i64) -> (&str, i64) {
    (namespace, began.div_euclid(60))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use octavo_model::accelerators::Catalog;

    use super::*;
    use crate::availability::UnitType;
    use crate::cluster::ClusterNode;

    /// Resource name number `number`.
    fn resource(number: usize) -> String {
        format!("nvidia.com/mig-{number}g.10gb")
    }

    /// A pod that ran for ten minutes and ended at `ended`.
    fn left(resource: &str, ended: i64) -> HoldingEvent {
        HoldingEvent::Ended(EndedHolding {
            node: Arc::new(ClusterNode::default()),
            resource: resource.to_owned(),
            namespace: "team".to_owned(),
            began: ended - 600,
            ended,
        })
    }

    fn learned(shown: impl IntoIterator<Item = HoldingEvent>) -> HoldingHistory {
        let mut history = HoldingHistory::default();
        history.record(HoldingEvent::ObservedSince(0));
        for shown in shown {
            history.record(shown);
        }
        let mut names = TypeResolver::new(Catalog::built_in());
        history.classify(|_, _| None, &mut names);
        history
    }

    fn guess(history: &HoldingHistory, resource: &str, now: i64) -> WaitEstimate {
        let key = RowKey {
            kind: UnitType::Unknown,
            resource: resource.to_owned(),
            shape: Shape::from_resource(resource, None),
        };
        let work = HolderWorkload { began: now - 60, is_usable: true };
        history.estimate(&key, &HolderWorkloads::from([(("team", now), work)]), now)
    }

    #[test]
    fn oldest_ends_are_dropped_at_the_limit() {
        let one = resource(1);
        let history = learned((1..=600).map(|number| left(&one, number * 600)));
        let WaitEstimate::Likely { samples, since, .. } = guess(&history, &one, 360_060) else {
            panic!("no estimate")
        };
        assert_eq!((samples, since), (512, 88 * 600 + 1));
    }

    #[test]
    fn dropped_kind_is_unknown_until_then() {
        let mut all: Vec<HoldingEvent> = (0..257).map(|kind| left(&resource(kind), 1000)).collect();
        let few = |ended, since| WaitEstimate::Unknown(Unknown::TooFew { ended, since });
        let history = learned(all.clone());
        for (kind, expected) in [(0, few(1, 0)), (255, few(1, 0)), (256, few(0, 1001))] {
            assert_eq!(guess(&history, &resource(kind), 2000), expected, "{kind}");
        }
        // Once the other kinds have had no ends for two weeks, there is room again.
        let late = 1001 + WINDOW_SECONDS;
        all.push(left(&resource(256), late));
        assert_eq!(guess(&learned(all), &resource(256), late), few(1, late - WINDOW_SECONDS));
    }
}
