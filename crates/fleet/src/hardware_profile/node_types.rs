//! Device types of nodes: from agents, otherwise from node labels.

use std::collections::BTreeMap;

use octavo_model::accelerators::Catalog;
use octavo_model::id::TypeName;

use crate::cluster::ClusterNode;
use crate::type_labels::{
    NVIDIA_PRODUCT_LABEL, TYPE_LABEL, parse_product_label, parse_type, type_of, vendor_labels,
};
use crate::type_source::TypeSource;

/// Number of devices of a node by type; `None` stands for unidentified devices.
pub type DevicesByType = BTreeMap<Option<TypeName>, u64>;

/// Prefix of Octavo's labels with the number of devices of each type.
const TYPE_COUNT_PREFIX: &str = "type.octavo.dev/";
/// GPU Feature Discovery's number of devices. Under time-slicing the capacity counts replicas, and this label still
/// counts devices. Source: k8s-device-plugin, README, "Catalog of Labels".
const GFD_COUNT: &str = "nvidia.com/gpu.count";
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
pub fn devices_from_labels(node: &ClusterNode, catalog: &Catalog) -> DevicesByType {
    labeled_devices(node, catalog).held
}

/// Like [`devices_from_labels`], with the label that names the type.
pub fn labeled_devices(node: &ClusterNode, catalog: &Catalog) -> LabeledDevices {
    let counted = node.labels.iter().filter_map(|(key, count)| {
        let name = key.strip_prefix(TYPE_COUNT_PREFIX)?;
        Some((name.parse().ok().filter(|_| name != "unknown"), count.parse().ok()?))
    });
    let counted: DevicesByType = counted.collect();
    if !counted.is_empty() {
        return LabeledDevices { held: counted, source: TypeSource::Label(TYPE_LABEL) };
    }
    let own = node.label(TYPE_LABEL).and_then(|name| Some((TYPE_LABEL, parse_type(name)?)));
    let named = own.or_else(|| type_from_vendor_labels(node, catalog));
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
    catalog: &Catalog,
) -> Option<(&'a str, &'a str)> {
    if node.label(TYPE_LABEL) == Some(type_name.as_str()) {
        return node.label(TYPE_LABEL).map(|value| (TYPE_LABEL, value));
    }
    vendor_labels().find_map(|(kind, key)| {
        let value = node.label(key)?;
        (type_of(catalog, kind, value)? == *type_name).then_some((key, value))
    })
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
    let product = node.label(NVIDIA_PRODUCT_LABEL);
    product.is_some_and(|product| parse_product_label(product).1.is_some())
}

/// Type on which all vendor labels agree, and the first label that names it. A name that several types share is
/// ignored.
fn type_from_vendor_labels(
    node: &ClusterNode,
    catalog: &Catalog,
) -> Option<(&'static str, TypeName)> {
    let mut named = vendor_labels()
        .filter_map(|(kind, key)| Some((key, type_of(catalog, kind, node.label(key)?)?)));
    let (key, name) = named.next()?;
    named.all(|(_, other)| other == name).then_some((key, name))
}
