//! How much of each resource: what a node can give, what a pod asks for.

use std::collections::BTreeMap;

use super::quantity::Quantity;
use super::{CPU, PODS};

/// How much of each resource, by Kubernetes' name of it: processor time in thousandths of a processor, all else in whole ones,
/// as the scheduler counts. Source: Kubernetes, `pkg/scheduler/framework`, `Resource.Add`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Amounts(BTreeMap<String, u64>);

impl Amounts {
    /// Of what Kubernetes says of each.
    pub fn of<'a>(all: impl IntoIterator<Item = (&'a str, Quantity)>) -> Self {
        let counted = all.into_iter().map(|(name, quantity)| {
            let count = match name {
                CPU => quantity.thousandths(),
                _ => quantity.rounded_up(),
            };
            (name.to_owned(), count)
        });
        Self(counted.collect())
    }

    /// The same with so many of one more resource.
    #[must_use]
    pub fn with(mut self, name: &str, count: u64) -> Self {
        self.0.insert(name.to_owned(), count);
        self
    }

    /// Of one resource; 0 where there is none.
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Whether the resource is named at all, be it with 0.
    pub fn names(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Each resource that is named, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, count)| (name.as_str(), *count))
    }

    /// Each resource that is a device or a part of one: its name has a domain, and it is nothing of Kubernetes' own.
    pub fn devices(&self) -> impl Iterator<Item = (&str, u64)> {
        self.iter().filter(|(name, _)| is_device(name))
    }

    /// More by what `other` has.
    pub fn add(&mut self, other: &Self) {
        for (name, count) in &other.0 {
            let sum = self.0.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*count);
        }
    }

    /// Less by what `other` has; of nothing there is less than none.
    pub fn subtract(&mut self, other: &Self) {
        for (name, count) in &other.0 {
            if let Some(rest) = self.0.get_mut(name) {
                *rest = rest.saturating_sub(*count);
            }
        }
    }

    /// At least what `other` has, of each.
    pub fn raise(&mut self, other: &Self) {
        for (name, count) in &other.0 {
            let most = self.0.entry(name.clone()).or_default();
            *most = (*most).max(*count);
        }
    }

    /// How often `wanted` is in it. One pod more is always asked for beside what is named.
    pub fn times(&self, wanted: &Self) -> u64 {
        let one = wanted.clone().with(PODS, 1);
        let asked = one.0.iter().filter(|(_, count)| **count > 0);
        let often = asked.map(|(name, count)| self.get(name).checked_div(*count).unwrap_or(0));
        often.min().unwrap_or(0)
    }

    /// The first resource of which there is not enough for one more pod that asks for `wanted`.
    pub fn lacks(&self, wanted: &Self) -> Option<String> {
        let one = wanted.clone().with(PODS, 1);
        let lacking = one.0.iter().find(|(name, count)| self.get(name) < **count);
        lacking.map(|(name, _)| name.clone())
    }
}

/// Whether a resource is a device or a part of one. Kubernetes' own resources have no domain, or one of its own.
pub(super) fn is_device(name: &str) -> bool {
    let Some((domain, _)) = name.split_once('/') else {
        return false;
    };
    domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(all: &[(&str, &str)]) -> Amounts {
        Amounts::of(
            all.iter()
                .map(|(name, text)| (*name, text.parse().unwrap())),
        )
    }

    #[test]
    fn processors_are_counted_in_thousandths_and_all_else_whole() {
        let all = amounts(&[("cpu", "1.5"), ("memory", "1Gi"), ("nvidia.com/gpu", "8")]);
        assert_eq!(
            (all.get("cpu"), all.get("memory"), all.get("nvidia.com/gpu")),
            (1500, 1 << 30, 8)
        );
        assert_eq!(all.devices().collect::<Vec<_>>(), [("nvidia.com/gpu", 8)]);
    }

    #[test]
    fn what_fits_is_bounded_by_the_scarcest_and_by_the_number_of_pods() {
        let free = amounts(&[("cpu", "10"), ("nvidia.com/gpu", "8"), ("pods", "3")]);
        assert_eq!(free.times(&amounts(&[("nvidia.com/gpu", "2")])), 3);
        assert_eq!(free.times(&amounts(&[("nvidia.com/gpu", "4")])), 2);
        assert_eq!(
            free.times(&amounts(&[("cpu", "6"), ("nvidia.com/gpu", "1")])),
            1
        );
        assert_eq!(free.times(&amounts(&[("amd.com/gpu", "1")])), 0);
        assert_eq!(
            free.lacks(&amounts(&[("amd.com/gpu", "1")])).as_deref(),
            Some("amd.com/gpu")
        );
        assert_eq!(
            amounts(&[("cpu", "1")])
                .lacks(&Amounts::default())
                .as_deref(),
            Some(PODS)
        );
    }

    #[test]
    fn nothing_is_ever_less_than_none() {
        let mut all = amounts(&[("nvidia.com/gpu", "1")]);
        all.subtract(&amounts(&[("nvidia.com/gpu", "2"), ("cpu", "1")]));
        assert_eq!(all, amounts(&[("nvidia.com/gpu", "0")]));
        all.raise(&amounts(&[("nvidia.com/gpu", "3")]));
        all.add(&amounts(&[("nvidia.com/gpu", "4")]));
        assert_eq!(all.get("nvidia.com/gpu"), 7);
    }
}
