//! Which types of devices nodes have: what agents say, and where none speaks, what labels say.

use std::collections::BTreeMap;

use crate::domain::accelerators::{AliasKind, Catalogue, Lookup};
use crate::domain::cluster::ClusterNode;
use crate::domain::id::TypeName;

use super::TYPE_LABEL;

/// How many devices of each type a node has; without a type are those that nobody knows.
pub type Held = BTreeMap<Option<TypeName>, u64>;

/// Keys of ours, each with how many of a type there are.
const COUNTED: &str = "type.octavo.dev/";
/// What gpu-feature-discovery adds to a product's name where devices are shared or partitioned.
const SHARED: &str = "-SHARED";
const IN_PARTS: &str = "-MIG-";
/// Resources that stand for whole devices. Where a node has several, the first counts.
pub(super) const WHOLE: [&str; 6] = [
    "nvidia.com/gpu",
    "amd.com/gpu",
    "aws.amazon.com/neuron",
    "gpu.intel.com/i915",
    "habana.ai/gaudi",
    "google.com/tpu",
];

/// What the labels of a node say that it has: ours first, then those that vendors and clouds write. Nothing where neither labels
/// nor capacity speak of a device.
pub fn of_labels(node: &ClusterNode, catalogue: &Catalogue) -> Held {
    let counted = node.labels.iter().filter_map(|(key, count)| {
        let name = key.strip_prefix(COUNTED)?;
        Some((
            name.parse().ok().filter(|_| name != "unknown"),
            count.parse().ok()?,
        ))
    });
    let counted: Held = counted.collect();
    if !counted.is_empty() {
        return counted;
    }
    let own = node
        .label(TYPE_LABEL)
        .filter(|name| !matches!(*name, "mixed" | "unknown"));
    let own = own.and_then(|name| name.parse().ok());
    let name = own.or_else(|| of_vendor(node, catalogue));
    let count = whole(node);
    if name.is_none() && count == 0 {
        return Held::new();
    }
    Held::from([(name, count)])
}

/// How many whole devices kubelet says there are.
fn whole(node: &ClusterNode) -> u64 {
    let mut counts = WHOLE.iter().map(|name| node.capacity.get(name));
    counts.find(|count| *count > 0).unwrap_or(0)
}

/// The one type that the labels of others agree on. A name that several types share says nothing.
fn of_vendor(node: &ClusterNode, catalogue: &Catalogue) -> Option<TypeName> {
    let mut found: Option<TypeName> = None;
    for (key, value) in &node.labels {
        let Some(kind) = AliasKind::of_label(key) else {
            continue;
        };
        let Some(name) = type_of(catalogue, kind, bare(value)) else {
            continue;
        };
        if found.as_ref().is_some_and(|found| *found != name) {
            return None;
        }
        found = Some(name);
    }
    found
}

/// A product's name without what sharing makes of it.
fn bare(value: &str) -> &str {
    let value = value.strip_suffix(SHARED).unwrap_or(value);
    value.split_once(IN_PARTS).map_or(value, |(name, _)| name)
}

fn type_of(catalogue: &Catalogue, kind: AliasKind, value: &str) -> Option<TypeName> {
    let skus = match catalogue.lookup_as(kind, value) {
        Lookup::Found(sku) => vec![sku],
        Lookup::Ambiguous(skus) => skus,
        Lookup::Unknown(_) => return None,
    };
    let mut names = skus
        .iter()
        .filter_map(|sku| Some(catalogue.product(sku)?.type_name.clone()));
    let first = names.next()?;
    names.all(|name| name == first).then_some(first)
}
