//! Who had what, and has it no more: what differs between two looks at a cluster.

use std::sync::Arc;

use super::shape::is_accelerator;
use crate::domain::cluster::{ClusterNode, ClusterPod, Sights};

/// Looks again and again, and remembers the look before.
#[derive(Debug, Default)]
pub struct Holders {
    before: Option<(Arc<Sights>, i64)>,
}

/// What a look has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    /// From this second since 1970 on it is known who ends when; of what was before, nothing.
    Since(i64),
    /// Somebody holds no more what he held.
    Left(Left),
}

/// What a pod held of one resource, and holds no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// The node it was on, as it was then.
    pub node: Arc<ClusterNode>,
    /// The resource.
    pub resource: String,
    /// The pod's namespace.
    pub namespace: String,
    /// When the pod began there, in seconds since 1970.
    pub began: i64,
    /// When it was seen to be gone, in seconds since 1970.
    pub ended: i64,
}

/// After so many seconds without a look, nobody knows any more when those ended that are gone.
const LONGEST_GAP: i64 = 3600;
/// A clock that is set back by no more seconds was corrected, and is waited for.
const SMALL_STEP: i64 = 60;

impl Holders {
    /// Looks at `now`, in seconds since 1970. Of an end between two looks the later is taken for its time. A pod whose beginning was
    /// not told when it was there, or is no earlier than its end by the clocks of two machines, is in none of it.
    pub fn look(&mut self, sights: &Arc<Sights>, now: i64) -> Vec<Shown> {
        let is_set_back = self.is_set_back(now);
        if !is_set_back && self.before.as_ref().is_some_and(|(_, at)| now < *at) {
            // What ended meanwhile is seen when the time of the look before has come again.
            return Vec::new();
        }
        let before = self.before.replace((Arc::clone(sights), now));
        let before = before.filter(|(_, at)| now.saturating_sub(*at) <= LONGEST_GAP);
        let Some((before, _)) = before.filter(|_| !is_set_back) else {
            return vec![Shown::Since(now)];
        };
        if Arc::ptr_eq(&before, sights) {
            return Vec::new();
        }
        let mut shown = Vec::new();
        let mut after = sights.pods.iter().peekable();
        for (key, pod) in &before.pods {
            while after.next_if(|(other, _)| *other < key).is_some() {}
            let same = after.next_if(|(other, _)| *other == key);
            let goes_on = same.is_some_and(|(_, now)| goes_on(pod, now));
            let began = pod.began.filter(|began| !goes_on && *began < now);
            if let Some(began) = began {
                shown.extend(left(&before, pod, began, now));
            }
        }
        shown
    }

    /// Whether at `now` time was set back so far that what is later is not after, and a look begins anew.
    pub fn is_set_back(&self, now: i64) -> bool {
        let before = self.before.as_ref();
        before.is_some_and(|(_, at)| at.saturating_sub(now) > SMALL_STEP)
    }

    /// Forgets the look before: what was shown since did not reach who listens.
    pub fn forget(&mut self) {
        self.before = None;
    }
}

/// Whether what has the name of a pod is still that pod, and holds what it held.
fn goes_on(before: &Arc<ClusterPod>, now: &Arc<ClusterPod>) -> bool {
    Arc::ptr_eq(before, now)
        || now.holds_on().is_some()
            && now.holds_on() == before.holds_on()
            // Kubelet says once when it took a pod in: another time is another pod by the same name.
            && (before.began.is_none() || now.began == before.began)
}

/// What a pod held, of each resource.
fn left(sights: &Sights, pod: &ClusterPod, began: i64, ended: i64) -> Vec<Shown> {
    let node = pod.holds_on().and_then(|name| sights.nodes.get(name));
    let Some(node) = node else { return Vec::new() };
    let held = pod.wants.amounts.devices();
    let held = held.filter(|(name, count)| is_accelerator(name) && *count > 0);
    let one = |(resource, _): (&str, u64)| {
        Shown::Left(Left {
            node: Arc::clone(node),
            resource: resource.to_owned(),
            namespace: pod.key.namespace.clone(),
            began,
            ended,
        })
    };
    held.map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::cluster::{Amounts, Phase, PodKey, Wants};

    fn pod(name: &str, began: Option<i64>) -> ClusterPod {
        ClusterPod {
            key: PodKey {
                namespace: "team-a".to_owned(),
                name: name.to_owned(),
            },
            node: Some("a".to_owned()),
            phase: Phase::Bound,
            began,
            wants: Wants {
                amounts: Amounts::default().with("nvidia.com/gpu", 2).with("cpu", 7),
                ..Wants::default()
            },
            ..ClusterPod::default()
        }
    }

    fn sights(pods: Vec<ClusterPod>) -> Arc<Sights> {
        let node = ClusterNode {
            name: "a".to_owned(),
            ..ClusterNode::default()
        };
        Arc::new(Sights::of([node], pods))
    }

    /// When each began and ended of those who left.
    fn told(shown: Vec<Shown>) -> Vec<(i64, i64)> {
        let told = shown.into_iter().map(|shown| match shown {
            Shown::Since(at) => (at, at),
            Shown::Left(left) => {
                assert_eq!(left.resource, "nvidia.com/gpu");
                (left.began, left.ended)
            }
        });
        told.collect()
    }

    #[test]
    fn who_is_gone_or_has_ended_or_is_another_by_the_same_name_has_left() {
        let mut holders = Holders::default();
        let all = ["a", "b", "c", "d"].map(|name| pod(name, Some(10)));
        let first = holders.look(&sights(all.to_vec()), 100);
        assert_eq!(told(first), [(100, 100)]);
        let mut ended = pod("b", Some(10));
        ended.phase = Phase::Finished;
        let mut elsewhere = pod("d", Some(10));
        elsewhere.node = Some("b".to_owned());
        let now = sights(vec![
            ended,
            pod("c", Some(130)),
            elsewhere,
            pod("e", Some(140)),
        ]);
        assert_eq!(told(holders.look(&now, 150)), [(10, 150); 4]);
        assert_eq!(told(holders.look(&now, 160)), []);
    }

    #[test]
    fn who_was_not_told_to_have_begun_has_not_left_and_is_the_same_when_it_begins() {
        let mut holders = Holders::default();
        drop(holders.look(&sights(vec![pod("a", None), pod("b", None)]), 100));
        let now = sights(vec![pod("a", Some(110))]);
        assert_eq!(told(holders.look(&now, 120)), []);
        assert_eq!(told(holders.look(&sights(vec![]), 130)), [(110, 130)]);
    }

    #[test]
    fn who_began_no_earlier_than_he_ended_has_not_left() {
        let mut holders = Holders::default();
        let pods = [("a", 119), ("b", 120), ("c", 300)];
        let pods = pods.map(|(name, began)| pod(name, Some(began)));
        drop(holders.look(&sights(pods.to_vec()), 100));
        assert_eq!(told(holders.look(&sights(vec![]), 120)), [(119, 120)]);
    }

    #[test]
    fn a_small_step_back_is_waited_for_and_after_a_large_one_it_begins_anew() {
        let mut holders = Holders::default();
        let (one, none) = (sights(vec![pod("a", Some(10))]), sights(vec![]));
        drop(holders.look(&one, 1000));
        for now in [999, 940] {
            assert!(!holders.is_set_back(now));
            assert_eq!(told(holders.look(&none, now)), []);
        }
        assert_eq!(told(holders.look(&none, 1001)), [(10, 1001)]);
        drop(holders.look(&one, 1002));
        assert!(holders.is_set_back(941));
        assert_eq!(told(holders.look(&none, 941)), [(941, 941)]);
        assert!(!holders.is_set_back(941));
    }

    #[test]
    fn after_a_long_silence_or_a_loss_it_begins_anew() {
        let mut holders = Holders::default();
        let (one, none) = (sights(vec![pod("a", Some(10))]), sights(vec![]));
        drop(holders.look(&one, 100));
        let late = 100 + LONGEST_GAP + 1;
        assert_eq!(told(holders.look(&none, late)), [(late, late)]);
        drop(holders.look(&one, late));
        holders.forget();
        assert_eq!(told(holders.look(&none, late + 5)), [(late + 5, late + 5)]);
    }
}
