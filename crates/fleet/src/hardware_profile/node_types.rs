//! Device types of nodes: from agents, otherwise from node labels.

use std::collections::BTreeMap;

use octavo_model::accelerators::{AliasKind, Catalog, Lookup};
use octavo_model::id::TypeName;

use super::TYPE_LABEL;
use crate::cluster::ClusterNode;
use crate::type_source::TypeSource;

/// Number of devices of a node by type; `None` stands for unidentified devices.
pub type DevicesByType = BTreeMap<Option<TypeName>, u64>;

/// Prefix of Octavo's labels with the number of devices of each type.
const TYPE_COUNT_PREFIX: &str = "type.octavo.dev/";
/// Suffixes that gpu-feature-discovery adds to a product name for shared or partitioned devices.
const SHARED_SUFFIX: &str = "-SHARED";
const MIG_INFIX: &str = "-MIG-";
/// GPU Feature Discovery's number of devices. Under time-slicing the capacity counts replicas, and this label still
/// counts devices. Source: k8s-device-plugin, README, "Catalog of Labels".
const GFD_COUNT: &str = "nvidia.com/gpu.count";
/// GPU Feature Discovery's label of the product.
const GFD_PRODUCT: &str = "nvidia.com/gpu.product";
/// Resources that stand for whole devices. If a node has several, the first one counts.
pub(super) const WHOLE_DEVICE_RESOURCES: [&str; 6] = [
    "nvidia.com/gpu",
    "amd.com/gpu",
    "aws.amazon.com/neuron",
    "gpu.intel.com/i915",
    "habana.ai/gaudi",
    "google.com/tpu",
];

/// Devices of a node according to its labels, and the label that names their type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabeledDevices {
    /// Number of devices by type.
    pub held: DevicesByType,
    /// Label that names the type.
    pub source: TypeSource,
}

/// Devices of a node according to its labels: Octavo's first, then those of vendors and clouds. Empty if neither
/// labels nor capacity indicate a device.
pub fn devices_from_labels(node: &ClusterNode, catalogue: &Catalog) -> DevicesByType {
    labeled_devices(node, catalogue).held
}

/// Like [`devices_from_labels`], with the label that names the type.
pub fn labeled_devices(node: &ClusterNode, catalogue: &Catalog) -> LabeledDevices {
    let counted = node.labels.iter().filter_map(|(key, count)| {
        let name = key.strip_prefix(TYPE_COUNT_PREFIX)?;
        Some((name.parse().ok().filter(|_| name != "unknown"), count.parse().ok()?))
    });
    let counted: DevicesByType = counted.collect();
    if !counted.is_empty() {
        return LabeledDevices { held: counted, source: TypeSource::Label(TYPE_LABEL) };
    }
    let own = node.label(TYPE_LABEL).filter(|name| !matches!(*name, "mixed" | "unknown"));
    let own = own.and_then(|name| Some((TYPE_LABEL, name.parse().ok()?)));
    let named = own.or_else(|| type_from_vendor_labels(node, catalogue));
    let count = whole_device_count(node);
    let source = named.as_ref().map_or(TypeSource::Unknown, |(key, _)| TypeSource::Label(key));
    let held = match named {
        None if count == 0 => DevicesByType::new(),
        named => DevicesByType::from([(named.map(|(_, name)| name), count)]),
    };
    LabeledDevices { held, source }
}

/// Label by which a selector matches this node as one of `type_name`: Octavo's, or the first vendor label whose value
/// identifies exactly that type.
pub fn selecting_label<'a>(
    node: &'a ClusterNode,
    type_name: &TypeName,
    catalogue: &Catalog,
) -> Option<(&'a str, &'a str)> {
    if let Some(value) = node.label(TYPE_LABEL)
        && value == type_name.as_str()
    {
        return node.labels.get_key_value(TYPE_LABEL).map(text);
    }
    let all = AliasKind::NODE_LABEL_KINDS.into_iter();
    let mut all = all.flat_map(|kind| kind.labels().iter().map(move |key| (kind, *key)));
    all.find_map(|(kind, key)| {
        let found = node.labels.get_key_value(key)?;
        let named = type_of(catalogue, kind, without_sharing_suffix(found.1))?;
        (named == *type_name).then(|| text(found))
    })
}

fn text<'a>((key, value): (&'a String, &'a String)) -> (&'a str, &'a str) {
    (key, value)
}

/// Number of whole devices, from GPU Feature Discovery's label or from the capacity.
fn whole_device_count(node: &ClusterNode) -> u64 {
    let counted = node.label(GFD_COUNT).filter(|_| !counts_partitions(node));
    let counted = counted.and_then(|count| count.parse().ok());
    let mut counts = WHOLE_DEVICE_RESOURCES.iter().map(|name| node.capacity.get(name));
    let capacity = counts.find(|count| *count > 0).unwrap_or(0);
    counted.filter(|count| *count > 0).unwrap_or(capacity)
}

/// Returns `true` if labels and capacity count MIG partitions as if they were devices, as the strategy `single` does.
pub fn counts_partitions(node: &ClusterNode) -> bool {
    let product = node.label(GFD_PRODUCT);
    product.is_some_and(|product| product.contains(MIG_INFIX))
}

/// Type on which all vendor labels agree, and the first label that names it. A name that several types share is
/// ignored.
fn type_from_vendor_labels(
    node: &ClusterNode,
    catalogue: &Catalog,
) -> Option<(&'static str, TypeName)> {
    let mut found: Option<(&'static str, TypeName)> = None;
    let all = AliasKind::NODE_LABEL_KINDS.into_iter();
    for (kind, key) in all.flat_map(|kind| kind.labels().iter().map(move |key| (kind, *key))) {
        let Some(value) = node.label(key) else {
            continue;
        };
        let Some(name) = type_of(catalogue, kind, without_sharing_suffix(value)) else {
            continue;
        };
        match &found {
            Some((_, found)) if *found != name => return None,
            Some(_) => {}
            None => found = Some((key, name)),
        }
    }
    found
}

/// Product name without suffixes for sharing.
fn without_sharing_suffix(value: &str) -> &str {
    let value = value.strip_suffix(SHARED_SUFFIX).unwrap_or(value);
    value.split_once(MIG_INFIX).map_or(value, |(name, _)| name)
}

fn type_of(catalogue: &Catalog, kind: AliasKind, value: &str) -> Option<TypeName> {
    let skus = match catalogue.lookup_as(kind, value) {
        Lookup::Found(sku) => vec![sku],
        Lookup::Ambiguous(skus) => skus,
        Lookup::Unknown(_) => return None,
    };
    let mut names = skus.iter().filter_map(|sku| Some(catalogue.product(sku)?.type_name.clone()));
    let first = names.next()?;
    names.all(|name| name == first).then_some(first)
}
