//! Amounts by resource: capacity of a node, requests of a pod.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::quantity::{Quantity, QuantityError};
use super::{CPU, MEMORY, PODS};
use crate::accelerator_resource::is_accelerator;

/// Amount of each resource by its Kubernetes name: CPU in millicores, all others in whole units, as the scheduler
/// counts. Source: Kubernetes, `pkg/scheduler/framework`, `Resource.Add`. Documents have Kubernetes quantities.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, String>", into = "BTreeMap<String, String>")]
pub struct Amounts(BTreeMap<String, u64>);

impl Amounts {
    /// Converts Kubernetes quantities.
    pub fn from_quantities<'a>(all: impl IntoIterator<Item = (&'a str, Quantity)>) -> Self {
        let counted = all.into_iter().map(|(name, quantity)| {
            let count = match name {
                CPU => quantity.thousandths(),
                _ => quantity.rounded_up(),
            };
            (name.to_owned(), count)
        });
        Self(counted.collect())
    }

    /// Sets the amount of one resource.
    #[must_use]
    pub fn with(mut self, name: &str, count: u64) -> Self {
        self.0.insert(name.to_owned(), count);
        self
    }

    /// Amount of one resource; 0 if absent.
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Amount of one resource as a Kubernetes quantity in canonical form: `63500m`, `512Gi`, `8`.
    pub fn quantity(&self, name: &str) -> String {
        let count = self.get(name);
        match name {
            CPU if count.is_multiple_of(1000) => (count / 1000).to_string(),
            CPU => format!("{count}m"),
            MEMORY => binary(count),
            _ => count.to_string(),
        }
    }

    /// Returns `true` if the resource is present, even with amount 0.
    pub fn names(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// All resources and amounts, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, count)| (name.as_str(), *count))
    }

    /// Device resources: their name has a domain that is not one of Kubernetes.
    pub fn devices(&self) -> impl Iterator<Item = (&str, u64)> {
        self.iter().filter(|(name, _)| is_device(name))
    }

    /// Accelerator resources with a count.
    pub fn accelerators(&self) -> impl Iterator<Item = (&str, u64)> {
        self.iter().filter(|(name, count)| *count > 0 && is_accelerator(name))
    }

    /// Adds the amounts of `other`.
    pub fn add(&mut self, other: &Self) {
        for (name, count) in &other.0 {
            // Most names are known, and `entry` would copy each.
            match self.0.get_mut(name) {
                Some(sum) => *sum = sum.saturating_add(*count),
                None => drop(self.0.insert(name.clone(), *count)),
            }
        }
    }

    /// Raises each amount to at least that of `other`.
    pub fn raise_to(&mut self, other: &Self) {
        for (name, count) in &other.0 {
            self.raise(name, *count);
        }
    }

    /// Raises the amount of one resource to at least `count`.
    pub fn raise(&mut self, name: &str, count: u64) {
        match self.0.get_mut(name) {
            Some(most) => *most = count.max(*most),
            None => drop(self.0.insert(name.to_owned(), count)),
        }
    }

    /// Number of pods requesting `wanted` that fit beside `held`; each pod also takes one of [`PODS`].
    pub fn how_many_fit(&self, held: &Self, wanted: &Self) -> u64 {
        let free = |name: &str| self.get(name).saturating_sub(held.get(name));
        let requested = wanted.iter().filter(|(name, count)| *count > 0 && *name != PODS);
        let often = requested.map(|(name, count)| free(name).checked_div(count).unwrap_or(0));
        often.fold(free(PODS), u64::min)
    }
}

impl TryFrom<BTreeMap<String, String>> for Amounts {
    type Error = QuantityError;

    fn try_from(all: BTreeMap<String, String>) -> Result<Self, QuantityError> {
        let parsed = all.iter().map(|(name, text)| Ok((name.as_str(), text.parse()?)));
        let parsed: Vec<(&str, Quantity)> = parsed.collect::<Result<_, QuantityError>>()?;
        Ok(Self::from_quantities(parsed))
    }
}

impl From<Amounts> for BTreeMap<String, String> {
    fn from(amounts: Amounts) -> Self {
        let names = amounts.0.keys();
        names.map(|name| (name.clone(), amounts.quantity(name))).collect()
    }
}

/// Bytes with the largest binary suffix that divides them.
fn binary(bytes: u64) -> String {
    let suffixes = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];
    let (mut count, mut suffix) = (bytes, "");
    for next in suffixes.into_iter().skip(1) {
        if count == 0 || !count.is_multiple_of(1024) {
            break;
        }
        (count, suffix) = (count / 1024, next);
    }
    format!("{count}{suffix}")
}

/// Returns `true` if a resource is a device resource. Kubernetes' own resources have no domain or a domain of
/// Kubernetes.
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
        Amounts::from_quantities(all.iter().map(|(name, text)| (*name, text.parse().unwrap())))
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
    fn quantities_of_documents_are_canonical_and_read_again() {
        let all = amounts(&[
            ("cpu", "64000m"),
            ("memory", "536870912Ki"),
            ("nvidia.com/gpu", "8"),
            ("pods", "0"),
        ]);
        let text = serde_json::to_value(&all).unwrap();
        let expected =
            serde_json::json!({"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8", "pods": "0"});
        assert_eq!(text, expected);
        let odd = amounts(&[("cpu", "1500m"), ("memory", "1025")]);
        assert_eq!(
            (odd.quantity("cpu").as_str(), odd.quantity("memory").as_str()),
            ("1500m", "1025")
        );
        for one in [all, odd] {
            let text = serde_json::to_string(&one).unwrap();
            assert_eq!(serde_json::from_str::<Amounts>(&text).unwrap(), one);
        }
        assert!(serde_json::from_str::<Amounts>(r#"{"cpu": "many"}"#).is_err());
    }

    #[test]
    fn fitting_count_is_limited_by_scarcest_resource_and_pod_limit() {
        let free = amounts(&[("cpu", "10"), ("nvidia.com/gpu", "8"), ("pods", "3")]);
        let nothing = Amounts::default();
        let fit = |wanted: &[(&str, &str)]| free.how_many_fit(&nothing, &amounts(wanted));
        assert_eq!(fit(&[("nvidia.com/gpu", "2")]), 3);
        assert_eq!(fit(&[("nvidia.com/gpu", "2"), ("pods", "9")]), 3);
        assert_eq!(fit(&[("nvidia.com/gpu", "4")]), 2);
        assert_eq!(fit(&[("cpu", "6"), ("nvidia.com/gpu", "1")]), 1);
        assert_eq!(fit(&[("amd.com/gpu", "1")]), 0);
        assert_eq!(amounts(&[("cpu", "1")]).how_many_fit(&nothing, &nothing), 0);
        let held = amounts(&[("nvidia.com/gpu", "6"), ("cpu", "20"), ("pods", "1")]);
        assert_eq!(free.how_many_fit(&held, &amounts(&[("nvidia.com/gpu", "1")])), 2);
        assert_eq!(free.how_many_fit(&held, &amounts(&[("cpu", "1")])), 0);
    }

    #[test]
    fn largest_amounts_are_determined() {
        let mut all = amounts(&[("nvidia.com/gpu", "0")]);
        all.raise_to(&amounts(&[("nvidia.com/gpu", "3")]));
        all.add(&amounts(&[("nvidia.com/gpu", "4")]));
        assert_eq!(all.get("nvidia.com/gpu"), 7);
    }
}
