//! Quotas of namespaces without Kueue: `ResourceQuota`, `LimitRange` and `PriorityClass`.
//!
//! A `ResourceQuota` limits a resource, and several types can offer the same one. Such types share one quota, because
//! separate ones would all apply to the same pods.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    LimitRange, LimitRangeItem, LimitRangeSpec, ResourceQuota, ResourceQuotaSpec,
};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use octavo_fleet::cluster::Amounts;

use crate::manifest::{Generated, Manifest, ManifestFile, named, namespaced, priority_values};
use crate::note::Note;
use crate::pools::{Pools, name_part};

/// Name of the limits of a namespace.
const LIMITS: &str = "accelerators";

/// Settings of the generator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaOptions<'a> {
    /// Namespaces that share the devices equally.
    pub namespaces: &'a [String],
    /// Names of priority classes, the highest priority first.
    pub priorities: &'a [String],
}

/// Types that offer the same resources.
struct Family {
    types: BTreeSet<String>,
    allocatable: Amounts,
}

/// Generates the objects of the pools. The quotas of all namespaces add up to the resources of the nodes.
pub fn quotas(pools: &Pools, options: &QuotaOptions<'_>) -> Generated {
    let namespaces: BTreeSet<&str> = options.namespaces.iter().map(String::as_str).collect();
    let families = families(pools);
    let mut quotas = Vec::new();
    for (rank, namespace) in namespaces.iter().enumerate() {
        quotas.extend(families.iter().map(|family| {
            let share = |count| share(count, namespaces.len(), rank);
            Manifest::ResourceQuota(Box::new(quota(namespace, family, share)))
        }));
    }
    let limits = namespaces.iter().map(|namespace| limit_range(namespace, pools));
    let priorities = priority_values(options.priorities).map(|(name, value)| {
        let class = PriorityClass { metadata: named(name), value, ..PriorityClass::default() };
        Manifest::PriorityClass(Box::new(class))
    });
    let file = |name, manifests| ManifestFile { name, manifests };
    let mut notes = pools.notes.clone();
    notes.extend(
        families
            .iter()
            .filter(|family| family.types.len() > 1)
            .map(|family| Note::SharedResource { types: family.types.iter().cloned().collect() }),
    );
    notes.sort_unstable();
    Generated {
        files: vec![
            file("priority-classes.yaml", priorities.collect()),
            file("resource-quotas.yaml", quotas),
            file("limit-ranges.yaml", limits.collect()),
        ],
        notes,
    }
}

impl Family {
    fn resources(&self) -> impl Iterator<Item = &str> {
        self.allocatable.accelerators().map(|(name, _)| name)
    }

    /// Name of its quota: the type, or the first resource of several types.
    fn name(&self) -> String {
        match (self.types.first(), self.types.len()) {
            (Some(only), 1) => name_part(only),
            _ => name_part(self.resources().next().unwrap_or_default()),
        }
    }
}

/// Groups types that have a resource in common, directly or by way of other types.
fn families(pools: &Pools) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    for pool in &pools.all {
        let mut family = Family {
            types: [pool.type_name.to_string()].into(),
            allocatable: pool.allocatable.clone(),
        };
        let is_related = |other: &Family| {
            let mut resources = pool.allocatable.accelerators();
            other.types.contains(pool.type_name.as_str())
                || resources.any(|(name, _)| other.allocatable.get(name) > 0)
        };
        let (related, rest): (Vec<Family>, Vec<Family>) =
            families.into_iter().partition(is_related);
        families = rest;
        for other in related {
            family.types.extend(other.types);
            family.allocatable.add(&other.allocatable);
        }
        families.push(family);
    }
    families.sort_by_key(Family::name);
    families
}

/// Share of the namespace with this rank; the first ones get the remainder.
fn share(count: u64, namespaces: usize, rank: usize) -> u64 {
    let [namespaces, rank] = [namespaces, rank].map(|n| u64::try_from(n).unwrap_or(u64::MAX));
    let whole = count.checked_div(namespaces).unwrap_or(0);
    let remainder = count.checked_rem(namespaces).unwrap_or(0);
    whole.saturating_add(u64::from(rank < remainder))
}

fn quota(namespace: &str, family: &Family, share: impl Fn(u64) -> u64) -> ResourceQuota {
    let hard = family.allocatable.accelerators();
    // Kubernetes has quotas for requests of extended resources only.
    let hard =
        hard.map(|(name, count)| (format!("requests.{name}"), Quantity(share(count).to_string())));
    ResourceQuota {
        metadata: namespaced(namespace, &family.name()),
        spec: Some(ResourceQuotaSpec {
            hard: Some(hard.collect()),
            ..ResourceQuotaSpec::default()
        }),
        status: None,
    }
}

/// Limits the devices of one container to those of the largest node. The default is no device: without it, Kubernetes would
/// give every container the maximum.
fn limit_range(namespace: &str, pools: &Pools) -> Manifest {
    let mut largest = Amounts::default();
    for node in pools.all.iter().flat_map(|pool| &pool.nodes) {
        largest.raise_to(&node.allocatable);
    }
    let max: BTreeMap<String, Quantity> = largest
        .accelerators()
        .map(|(name, count)| (name.to_owned(), Quantity(count.to_string())))
        .collect();
    let none: BTreeMap<String, Quantity> =
        max.keys().map(|name| (name.clone(), Quantity("0".to_owned()))).collect();
    let item = LimitRangeItem {
        default: Some(none.clone()),
        default_request: Some(none),
        max: Some(max),
        type_: "Container".to_owned(),
        ..LimitRangeItem::default()
    };
    Manifest::LimitRange(Box::new(LimitRange {
        metadata: namespaced(namespace, LIMITS),
        spec: Some(LimitRangeSpec { limits: vec![item] }),
    }))
}

#[cfg(test)]
mod tests;
