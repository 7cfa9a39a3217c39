//! Node pools of Karpenter on AWS: a pool for each type and layout, with the instance types, zones and purchase options
//! that its nodes have today, and no more of them.
//!
//! Source of the fields: Karpenter v1.13.0, `pkg/apis/v1/nodepool.go` and `pkg/apis/v1alpha1/nodeoverlay.go`; of the
//! resources: karpenter-provider-aws v1.8.2, `pkg/apis/v1/labels.go`.

use std::collections::{BTreeMap, BTreeSet};

use octavo_fleet::cluster::{Amounts, CPU};

use crate::error::GenerateError;
use crate::instances::{
    ARCHITECTURE, INSTANCE_TYPE, Instance, InstancePool, ZONE, instance_pools, least,
};
use crate::karpenter_specs::{
    Disruption, NodeClassRef, NodeOverlaySpec, NodePoolSpec, NodeRequirement, NodeTemplate,
    NodeTemplateMetadata, NodeTemplateSpec,
};
use crate::manifest::{CustomObject, Generated, Manifest, ManifestFile, named};
use crate::note::Note;
use crate::pools::{Pools, name_part};

const NODE_POOL_LABEL: &str = "karpenter.sh/nodepool";
const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
/// Accelerator resources that Karpenter derives from the instance type. A `NodeOverlay` cannot replace them.
const PREDICTED: [&str; 4] =
    ["nvidia.com/gpu", "amd.com/gpu", "aws.amazon.com/neuron", "aws.amazon.com/neuroncore"];

/// Generates a `NodePool` for each pool, with nodes of this `EC2NodeClass`.
///
/// # Errors
///
/// Fails if no node is an EC2 instance.
pub fn karpenter(pools: &Pools, node_class: &str) -> Result<Generated, GenerateError> {
    let mut notes = pools.notes.clone();
    let pools = instance_pools(pools, &mut notes)?;
    let node_pools = pools.iter().map(|pool| {
        Manifest::NodePool(Box::new(CustomObject {
            api_version: "karpenter.sh/v1",
            kind: "NodePool",
            metadata: named(&pool.pool.name),
            spec: node_pool(pool, node_class),
        }))
    });
    let overlays: Vec<(String, NodeOverlaySpec)> =
        pools.iter().flat_map(|pool| overlays(pool, &mut notes)).collect();
    let overlays = overlays.into_iter().map(|(name, spec)| {
        Manifest::NodeOverlay(CustomObject {
            api_version: "karpenter.sh/v1alpha1",
            kind: "NodeOverlay",
            metadata: named(&name),
            spec,
        })
    });
    let file = |name, manifests| ManifestFile { name, manifests };
    let files = vec![
        file("node-pools.yaml", node_pools.collect()),
        file("node-overlays.yaml", overlays.collect()),
    ];
    notes.sort_unstable();
    Ok(Generated { files, notes })
}

fn node_pool(pool: &InstancePool<'_>, node_class: &str) -> NodePoolSpec {
    let values = |key, value: for<'a> fn(&Instance<'a>) -> &'a str| {
        let values: BTreeSet<&str> = pool.instances.keys().map(value).collect();
        requirement(key, values)
    };
    let requirements = vec![
        values(CAPACITY_TYPE, |one| if one.is_spot { "spot" } else { "on-demand" }),
        values(ARCHITECTURE, |one| one.architecture),
        values(INSTANCE_TYPE, |one| one.type_name),
        values(ZONE, |one| one.zone),
    ];
    NodePoolSpec {
        template: NodeTemplate {
            metadata: NodeTemplateMetadata { labels: pool.node_labels() },
            spec: NodeTemplateSpec {
                // Karpenter replaces nodes after 30 days by default, and ends the pods of a training run.
                expire_after: "Never",
                node_class_ref: NodeClassRef {
                    group: "karpenter.k8s.aws",
                    kind: "EC2NodeClass",
                    name: node_class.to_owned(),
                },
                requirements,
                taints: pool.pool.taints.clone(),
            },
        },
        // By default, Karpenter also evicts pods from nodes in use to save cost.
        disruption: Disruption { consolidation_policy: "WhenEmpty", consolidate_after: "10m" },
        limits: limits(pool),
    }
}

/// CPU and devices of all nodes. Karpenter estimates the memory of a new node, so that a limit of it could exclude the last
/// node. It does not know the devices of a node that are shared or partitioned.
fn limits(pool: &InstancePool<'_>) -> BTreeMap<String, String> {
    let mut all = Amounts::default();
    for node in pool.nodes() {
        all.add(&node.capacity);
    }
    let devices = all.accelerators().filter(|_| pool.has_whole_devices());
    let names = [CPU].into_iter().chain(devices.map(|(name, _)| name));
    names.map(|name| (name.to_owned(), all.quantity(name))).collect()
}

/// Resources of new nodes that Karpenter cannot derive from the instance type.
fn overlays(pool: &InstancePool<'_>, notes: &mut Vec<Note>) -> Vec<(String, NodeOverlaySpec)> {
    if pool.has_whole_devices() {
        return Vec::new();
    }
    let name = &pool.pool.name;
    let mut by_type: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for (instance, nodes) in &pool.instances {
        by_type.entry(instance.type_name).or_default().extend(nodes);
    }
    let mut overlays = Vec::new();
    let mut has_predicted = false;
    for (instance_type, nodes) in by_type {
        let offered = least(&nodes);
        let (predicted, others): (Vec<_>, Vec<_>) =
            offered.accelerators().partition(|(resource, _)| PREDICTED.contains(resource));
        has_predicted |= !predicted.is_empty();
        if others.is_empty() {
            continue;
        }
        let capacity = others.iter().map(|(name, count)| ((*name).to_owned(), count.to_string()));
        let requirements = vec![
            requirement(NODE_POOL_LABEL, [name.as_str()].into()),
            requirement(INSTANCE_TYPE, [instance_type].into()),
        ];
        let spec = NodeOverlaySpec { requirements, capacity: capacity.collect() };
        overlays.push((format!("{name}-{}", name_part(instance_type)), spec));
    }
    if !overlays.is_empty() {
        notes.push(Note::NeedsOverlay { pool: name.clone() });
    }
    if has_predicted {
        notes.push(Note::CountsDevices { pool: name.clone() });
    }
    overlays
}

fn requirement(key: &'static str, values: BTreeSet<&str>) -> NodeRequirement {
    let values = values.into_iter().map(ToOwned::to_owned).collect();
    NodeRequirement { key, operator: "In", values }
}

#[cfg(test)]
mod tests;
