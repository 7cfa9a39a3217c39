//! Types of each node of a cluster: from its agent, or from its labels without an agent.

use std::collections::BTreeMap;

use octavo_fleet::cluster::ClusterSnapshot;
use octavo_fleet::hardware_profile::{DevicesByType, devices_from_labels};
use octavo_model::accelerators::Catalog;
use octavo_model::id::{NodeName, TypeName};

use crate::fleet::Fleet;

/// Types and counts by node name.
pub(super) fn types(
    fleet: &Fleet,
    snapshot: &ClusterSnapshot,
    catalog: &Catalog,
) -> BTreeMap<String, DevicesByType> {
    let nodes = snapshot.nodes.values().map(|node| {
        let name: Option<NodeName> = node.name.parse().ok();
        let reported = name.and_then(|name| reported_types(fleet, &name));
        let held = reported.unwrap_or_else(|| devices_from_labels(node, catalog));
        (node.name.clone(), held)
    });
    nodes.collect()
}

/// Memory per device of each type in MiB, as reported by drivers; the minimum over all nodes.
pub(super) fn min_memory_by_type(fleet: &Fleet) -> BTreeMap<TypeName, u64> {
    let mut least: BTreeMap<TypeName, u64> = BTreeMap::new();
    let types = fleet.local_nodes().flat_map(|node| &node.summary.types);
    for one in types {
        let (Some(name), Some(memory)) = (&one.type_name, one.memory) else {
            continue;
        };
        let known = least.entry(name.clone()).or_insert(u64::MAX);
        *known = memory.get().min(*known);
    }
    least
}

/// Types reported by the node's agent, even if stale, because the devices of a node rarely change.
fn reported_types(fleet: &Fleet, name: &NodeName) -> Option<DevicesByType> {
    let node = fleet.nodes.get(name).filter(|node| node.is_local())?;
    let types = node.summary.types.iter();
    let held: DevicesByType =
        types.map(|one| (one.type_name.clone(), u64::from(one.counts.total))).collect();
    (!held.is_empty()).then_some(held)
}
