//! Detection of ended holdings: the difference between two observations of a cluster.

use std::sync::Arc;

use crate::cluster::{ClusterNode, ClusterPod, ClusterSnapshot};

/// Previous observation of the cluster.
#[derive(Debug, Default)]
pub struct HoldingObserver {
    before: Option<(Arc<ClusterSnapshot>, i64)>,
}

/// Result of an observation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HoldingEvent {
    /// Ends are observed since this time, in seconds since 1970; earlier ones are unknown.
    ObservedSince(i64),
    /// A pod released its units.
    Ended(EndedHolding),
}

/// Units of one resource that a pod held and released.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedHolding {
    /// The pod's node in its last observed state.
    pub node: Arc<ClusterNode>,
    /// The resource.
    pub resource: String,
    /// Namespace of the pod.
    pub namespace: String,
    /// Start of the pod on the node, in seconds since 1970.
    pub began: i64,
    /// Time at which its end was observed, in seconds since 1970.
    pub ended: i64,
}

/// Maximum gap in seconds between observations; after a longer one the times of ends are unknown.
const MAX_GAP_SECONDS: i64 = 3600;
/// Maximum backward step of the clock in seconds that is treated as a correction and waited out.
const MAX_CLOCK_STEP_BACK_SECONDS: i64 = 60;

impl HoldingObserver {
    /// Observes the cluster at `now`, in seconds since 1970, and returns the holdings that ended. An end between two
    /// observations gets the time of the later one. A pod is omitted if its start was not reported, or is not before
    /// its end by the clocks of the two machines.
    pub fn observe(&mut self, snapshot: &Arc<ClusterSnapshot>, now: i64) -> Vec<HoldingEvent> {
        let is_set_back = self.is_clock_set_back(now);
        if !is_set_back && self.before.as_ref().is_some_and(|(_, at)| now < *at) {
            // Ends in the meantime are detected once the clock reaches the time of the previous observation again.
            return Vec::new();
        }
        let before = self.before.replace((Arc::clone(snapshot), now));
        let before = before.filter(|(_, at)| now.saturating_sub(*at) <= MAX_GAP_SECONDS);
        let Some((before, _)) = before.filter(|_| !is_set_back) else {
            return vec![HoldingEvent::ObservedSince(now)];
        };
        if Arc::ptr_eq(&before, snapshot) {
            return Vec::new();
        }
        let mut shown = Vec::new();
        let mut after = snapshot.pods().iter().peekable();
        for (key, pod) in before.pods() {
            // Snapshots share the keys, and reading the key of each pod would take most of the time.
            let same = after.next_if(|(other, _)| Arc::ptr_eq(other, key)).or_else(|| {
                while after.next_if(|(other, _)| *other < key).is_some() {}
                after.next_if(|(other, _)| *other == key)
            });
            let goes_on = same.is_some_and(|(_, now)| is_same_holding(pod, now));
            let began = pod.started_at.filter(|began| !goes_on && *began < now);
            if let Some(began) = began {
                shown.extend(ended_holdings(&before, pod, began, now));
            }
        }
        shown
    }

    /// Returns `true` if the clock was set back so far that observation must restart.
    pub fn is_clock_set_back(&self, now: i64) -> bool {
        let before = self.before.as_ref();
        before.is_some_and(|(_, at)| at.saturating_sub(now) > MAX_CLOCK_STEP_BACK_SECONDS)
    }

    /// Discards the previous observation, because its results did not reach the consumer.
    pub fn reset(&mut self) {
        self.before = None;
    }
}

/// Returns `true` if the pod of the same name is still the same pod and holds the same units.
fn is_same_holding(before: &Arc<ClusterPod>, now: &Arc<ClusterPod>) -> bool {
    Arc::ptr_eq(before, now)
        || now.holding_node().is_some()
            && now.holding_node() == before.holding_node()
            // The kubelet sets the start time once: another start time means another pod of the same name.
            && (before.started_at.is_none() || now.started_at == before.started_at)
}

/// Units that a pod held, by resource.
fn ended_holdings(
    snapshot: &ClusterSnapshot,
    pod: &ClusterPod,
    began: i64,
    ended: i64,
) -> Vec<HoldingEvent> {
    let node = pod.holding_node().and_then(|name| snapshot.nodes.get(name));
    let Some(node) = node else { return Vec::new() };
    let held = pod.requirements.amounts.accelerators();
    held.map(|(resource, _)| {
        HoldingEvent::Ended(EndedHolding {
            node: Arc::clone(node),
            resource: resource.to_owned(),
            namespace: pod.key.namespace.clone(),
            began,
            ended,
        })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{Amounts, Phase, PodKey, PodRequirements};

    fn pod(name: &str, began: Option<i64>) -> ClusterPod {
        ClusterPod {
            key: PodKey { namespace: "team-a".to_owned(), name: name.to_owned() },
            node: Some("a".to_owned()),
            phase: Phase::Bound,
            started_at: began,
            requirements: PodRequirements {
                amounts: Amounts::default().with("nvidia.com/gpu", 2).with("cpu", 7),
                ..PodRequirements::default()
            },
            ..ClusterPod::default()
        }
    }

    fn snapshot(pods: Vec<ClusterPod>) -> Arc<ClusterSnapshot> {
        let node = ClusterNode { name: "a".to_owned(), ..ClusterNode::default() };
        Arc::new(ClusterSnapshot::new([node], pods))
    }

    /// Start and end of each released holding.
    fn intervals(shown: Vec<HoldingEvent>) -> Vec<(i64, i64)> {
        let intervals = shown.into_iter().map(|shown| match shown {
            HoldingEvent::ObservedSince(at) => (at, at),
            HoldingEvent::Ended(left) => {
                assert_eq!(left.resource, "nvidia.com/gpu");
                (left.began, left.ended)
            }
        });
        intervals.collect()
    }

    #[test]
    fn deleted_finished_and_replaced_pods_have_ended() {
        let mut holders = HoldingObserver::default();
        let all = ["a", "b", "c", "d"].map(|name| pod(name, Some(10)));
        let first = holders.observe(&snapshot(all.to_vec()), 100);
        assert_eq!(intervals(first), [(100, 100)]);
        let mut ended = pod("b", Some(10));
        ended.phase = Phase::Finished;
        let mut elsewhere = pod("d", Some(10));
        elsewhere.node = Some("b".to_owned());
        let now = snapshot(vec![ended, pod("c", Some(130)), elsewhere, pod("e", Some(140))]);
        assert_eq!(intervals(holders.observe(&now, 150)), [(10, 150); 4]);
        assert_eq!(intervals(holders.observe(&now, 160)), []);
    }

    #[test]
    fn pod_without_start_time_has_not_ended() {
        let mut holders = HoldingObserver::default();
        drop(holders.observe(&snapshot(vec![pod("a", None), pod("b", None)]), 100));
        let now = snapshot(vec![pod("a", Some(110))]);
        assert_eq!(intervals(holders.observe(&now, 120)), []);
        assert_eq!(intervals(holders.observe(&snapshot(vec![]), 130)), [(110, 130)]);
    }

    #[test]
    fn pod_starting_after_its_end_is_ignored() {
        let mut holders = HoldingObserver::default();
        let pods = [("a", 119), ("b", 120), ("c", 300)];
        let pods = pods.map(|(name, began)| pod(name, Some(began)));
        drop(holders.observe(&snapshot(pods.to_vec()), 100));
        assert_eq!(intervals(holders.observe(&snapshot(vec![]), 120)), [(119, 120)]);
    }

    #[test]
    fn small_clock_step_is_waited_out_large_one_restarts() {
        let mut holders = HoldingObserver::default();
        let (one, none) = (snapshot(vec![pod("a", Some(10))]), snapshot(vec![]));
        drop(holders.observe(&one, 1000));
        for now in [999, 940] {
            assert!(!holders.is_clock_set_back(now));
            assert_eq!(intervals(holders.observe(&none, now)), []);
        }
        assert_eq!(intervals(holders.observe(&none, 1001)), [(10, 1001)]);
        drop(holders.observe(&one, 1002));
        assert!(holders.is_clock_set_back(941));
        assert_eq!(intervals(holders.observe(&none, 941)), [(941, 941)]);
        assert!(!holders.is_clock_set_back(941));
    }

    #[test]
    fn long_gap_or_reset_restarts_observation() {
        let mut holders = HoldingObserver::default();
        let (one, none) = (snapshot(vec![pod("a", Some(10))]), snapshot(vec![]));
        drop(holders.observe(&one, 100));
        let late = 100 + MAX_GAP_SECONDS + 1;
        assert_eq!(intervals(holders.observe(&none, late)), [(late, late)]);
        drop(holders.observe(&one, late));
        holders.reset();
        assert_eq!(intervals(holders.observe(&none, late + 5)), [(late + 5, late + 5)]);
    }
}
