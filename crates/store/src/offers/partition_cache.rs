//! MIG partitions of nodes, cached per version of the node.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use octavo_fleet::matching::Bytes;
use octavo_fleet::summary::partitions_of;
use octavo_model::id::{NodeName, TypeName};
use octavo_stream::status::NodeStatus;
use octavo_toolkit::error::chain;
use tracing::debug;

use crate::fleet::{Fleet, Node};

/// Partitions of one type and profile on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NodePartitions {
    pub(super) type_name: TypeName,
    pub(super) profile: String,
    pub(super) memory: Option<Bytes>,
    pub(super) count: u32,
    pub(super) free: u32,
}

/// Cache of partitions by node. It holds weak references, so a removed or changed node leaves only a small entry until
/// [`Self::retain_nodes_of`].
#[derive(Debug, Default)]
pub struct PartitionCache(Mutex<BTreeMap<NodeName, CachedPartitions>>);

/// Version of a node, and its partitions.
type CachedPartitions = (Weak<Node>, Arc<[NodePartitions]>);

impl PartitionCache {
    /// Partitions of `node`; empty if its status cannot be decoded, which the node's page reports.
    pub(super) fn parts(&self, node: &Arc<Node>) -> Arc<[NodePartitions]> {
        {
            let cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((of, parts)) = cache.get(&node.name)
                && std::ptr::eq(of.as_ptr(), Arc::as_ptr(node))
            {
                return Arc::clone(parts);
            }
        }
        let parts: Arc<[NodePartitions]> = read(node).into();
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cache.insert(node.name.clone(), (Arc::downgrade(node), Arc::clone(&parts)));
        parts
    }

    /// Removes nodes that are not in `fleet`.
    pub fn retain_nodes_of(&self, fleet: &Fleet) {
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cache.retain(|name, _| fleet.nodes.get(name).is_some());
    }
}

fn read(node: &Node) -> Vec<NodePartitions> {
    let inventory = match node.status() {
        Ok(NodeStatus { inventory, .. }) => inventory,
        Err(error) => {
            debug!(node = %node.name, error = chain(&error), "cannot decode the partitions of the node; skipping them");
            return Vec::new();
        }
    };
    let mut all: BTreeMap<(TypeName, String), NodePartitions> = BTreeMap::new();
    for device in &inventory.devices {
        let Some(type_name) = device.identity.type_name() else {
            continue;
        };
        for one in partitions_of(device, &inventory.nvml) {
            let key = (type_name.clone(), one.profile.clone());
            let part = all.entry(key).or_insert_with(|| NodePartitions {
                type_name: type_name.clone(),
                profile: one.profile,
                memory: None,
                count: 0,
                free: 0,
            });
            part.count = part.count.saturating_add(1);
            part.free = part.free.saturating_add(u32::from(!one.in_use));
            part.memory = super::min_memory(part.memory, one.memory.map(Bytes::from));
        }
    }
    all.into_values().collect()
}
