//! Requests of pending pods, in the order in which they are planned.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use octavo_fleet::availability::Shape;
use octavo_fleet::cluster::{ClusterPod, ClusterSnapshot};

use super::profile_of_any;
use crate::fleet::Fleet;

/// Minimum age of a pod, because the scheduler places most pods within seconds.
pub(crate) const MIN_AGE_SECONDS: i64 = 10;
/// Number of pods of a namespace that are planned before the further ones of all namespaces, so that one namespace does not exhaust the limit.
const PODS_FIRST: usize = 64;
/// Maximum number of instances of a pod for which places are searched. No node has more.
const MAX_INSTANCES: u64 = 128;

/// Pending pod that requests MIG instances.
#[derive(Debug)]
pub(super) struct Request<'a> {
    pub(super) pod: &'a ClusterPod,
    /// Seconds since its creation.
    pub(super) age: Option<i64>,
    /// Number of instances by resource.
    pub(super) amounts: Vec<(&'a str, u64)>,
}

/// Returns whether any pod waits for MIG instances.
pub fn has_requests(snapshot: &ClusterSnapshot) -> bool {
    snapshot.pods().values().any(|pod| Request::new(pod, 0).is_some())
}

/// Returns whether a resource is that of MIG instances which are not shared.
pub(super) fn is_instance(resource: &str) -> bool {
    matches!(Shape::from_resource(resource, None), Shape::Mig(_))
}

/// Sorts requests by age: the pods that have waited longest come first, pods of unknown age last.
pub(super) fn by_age<'r, 'a>(all: &'r [Request<'a>]) -> Vec<&'r Request<'a>> {
    let mut sorted: Vec<&Request<'a>> = all.iter().collect();
    sorted.sort_by_key(|one| (Reverse(one.age), &one.pod.key));
    limit_by_namespace(sorted)
}

/// Sorts requests like [`by_age`], but the pods of a minute by size, because the instances of small pods can take the only places of large
/// ones.
pub(super) fn by_size<'r, 'a>(all: &'r [Request<'a>], fleet: &Fleet) -> Vec<&'r Request<'a>> {
    let mut sorted: Vec<&Request<'a>> = all.iter().collect();
    sorted.sort_by_cached_key(|one| {
        let minute = one.pod.created_at.map(|at| at.div_euclid(60));
        let age = Reverse(one.age);
        (minute.is_none(), minute, Reverse(one.size(fleet)), age, &one.pod.key)
    });
    limit_by_namespace(sorted)
}

/// Moves the pods of a namespace beyond [`PODS_FIRST`] to the end.
fn limit_by_namespace<'r, 'a>(all: Vec<&'r Request<'a>>) -> Vec<&'r Request<'a>> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut first, further): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| {
        let count = counts.entry(one.pod.key.namespace.as_str()).or_default();
        *count = count.saturating_add(1);
        *count <= PODS_FIRST
    });
    first.extend(further);
    first
}

impl<'a> Request<'a> {
    /// The requests of all pending pods that are old enough, and the number of younger pods.
    pub(super) fn all(snapshot: &'a ClusterSnapshot, now: i64) -> (Vec<Self>, usize) {
        let pods = snapshot.pods().values().filter_map(|pod| Request::new(pod, now));
        let (all, recent): (Vec<Self>, Vec<Self>) =
            pods.partition(|pod| pod.age.is_none_or(|age| age >= MIN_AGE_SECONDS));
        (all, recent.len())
    }

    fn new(pod: &'a ClusterPod, now: i64) -> Option<Self> {
        if !pod.is_pending() {
            return None;
        }
        let amounts = pod.requirements.amounts.accelerators();
        let amounts: Vec<(&str, u64)> =
            amounts.filter(|(resource, _)| is_instance(resource)).collect();
        let age = pod.created_at.map(|created| now.saturating_sub(created).max(0));
        (!amounts.is_empty()).then_some(Self { pod, age, amounts })
    }

    /// Number of instances.
    pub(super) fn count(&self) -> usize {
        let count = self.amounts.iter().map(|(_, count)| *count).fold(0, u64::saturating_add);
        usize::try_from(count.min(MAX_INSTANCES)).unwrap_or(usize::MAX)
    }

    /// The resource of each instance; up to the limit, which no node reaches.
    pub(super) fn instances(&self) -> impl Iterator<Item = &'a str> {
        self.amounts.iter().flat_map(|(resource, count)| {
            (0..(*count).min(MAX_INSTANCES)).map(move |_number| *resource)
        })
    }

    /// GPU slices and memory slices of all instances.
    pub(super) fn size(&self, fleet: &Fleet) -> (u32, u32) {
        let each = self.amounts.iter().filter_map(|(resource, count)| {
            let (slices, memory_slices) = profile_of_any(fleet, resource)?.size();
            let count = u32::try_from(*count).unwrap_or(u32::MAX);
            Some((slices.saturating_mul(count), memory_slices.saturating_mul(count)))
        });
        each.fold((0, 0), |sum: (u32, u32), one| {
            (sum.0.saturating_add(one.0), sum.1.saturating_add(one.1))
        })
    }
}
