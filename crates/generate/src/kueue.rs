//! Queues of Kueue: a flavor per pool, a cluster queue with the resources of the nodes, and local queues.
//!
//! CPU, memory and accelerators are in one resource group: in separate groups, Kueue could assign a workload CPU and
//! accelerators from flavors with different nodes. Source of the fields and limits: Kueue v0.19.2, `apis/kueue/v1beta2`.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    LabelSelector, LabelSelectorRequirement, ObjectMeta,
};
use octavo_fleet::cluster::{CPU, MEMORY, Taint};

use crate::error::GenerateError;
use crate::kueue_specs::{
    ClusterQueueSpec, FlavorFungibility, FlavorQuotas, LocalQueueSpec, ResourceFlavorSpec,
    ResourceGroup, ResourceQuota, TopologyLevel, TopologySpec, WorkloadPriority,
};
use crate::manifest::{
    CustomObject, Generated, Manifest, ManifestFile, named, namespaced, priority_values,
};
use crate::pools::{NodePool, Pools};

/// Name of the cluster queue of isolated devices, its cohort, its topology and its local queues.
pub const QUEUE: &str = "accelerators";
/// Name of the cluster queue of time-sliced devices and its local queues. Kueue tries all flavors of a queue, so that in one
/// queue a workload for a whole device or a partition could get a time slice.
pub const SHARED_QUEUE: &str = "accelerators-shared";
/// Maximum number of flavors of a resource group, and of resources of a flavor.
const MAX_FLAVORS: usize = 64;
const MAX_RESOURCES: usize = 64;
/// Label with the name of a namespace, which the API server sets.
pub(crate) const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";
/// Label of the lowest level of a topology.
const HOSTNAME: &str = "kubernetes.io/hostname";
/// Labels of the levels of a topology, from the largest to the smallest. Sources: Kubernetes, "Well-Known Labels"; Google
/// Cloud, "Topology-aware scheduling"; AWS, `topology.k8s.aws`.
const LEVELS: [&str; 7] = [
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "cloud.google.com/gce-topology-block",
    "cloud.google.com/gce-topology-subblock",
    "topology.k8s.aws/network-node-layer-1",
    "topology.k8s.aws/network-node-layer-2",
    "topology.k8s.aws/network-node-layer-3",
];

/// Version of Kueue's API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KueueApi {
    /// `v1beta1`, the only version of Kueue 0.14.
    V1Beta1,
    /// `v1beta2`.
    V1Beta2,
}

/// Settings of the generator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KueueOptions<'a> {
    /// Version of the API.
    pub api: KueueApi,
    /// Namespaces that get a local queue. Without any, workloads of all namespaces can use the cluster queue.
    pub namespaces: &'a [String],
    /// Names of priority classes, the highest priority first.
    pub priorities: &'a [String],
    /// Types whose flavors are tried first, in this order.
    pub preferred: &'a [String],
}

impl KueueOptions<'_> {
    /// The namespaces, ordered by name.
    fn namespaces(&self) -> BTreeSet<&str> {
        self.namespaces.iter().map(String::as_str).collect()
    }
}

impl KueueApi {
    /// Group and version.
    fn group_version(self) -> &'static str {
        match self {
            Self::V1Beta1 => "kueue.x-k8s.io/v1beta1",
            Self::V1Beta2 => "kueue.x-k8s.io/v1beta2",
        }
    }

    fn object<S>(self, kind: &'static str, metadata: ObjectMeta, spec: S) -> CustomObject<S> {
        CustomObject { api_version: self.group_version(), kind, metadata, spec }
    }
}

/// Generates the objects of the pools.
///
/// # Errors
///
/// Fails if the pools exceed a limit of Kueue.
pub fn kueue(pools: &Pools, options: &KueueOptions<'_>) -> Result<Generated, GenerateError> {
    let api = options.api;
    let levels = levels(pools);
    let topology_name = (!levels.is_empty()).then_some(QUEUE);
    let topologies = topology_name.map(|name| {
        Manifest::Topology(api.object("Topology", named(name), TopologySpec { levels }))
    });
    let flavors = pools.all.iter().map(|pool| {
        let spec = flavor(pool, topology_name);
        Manifest::ResourceFlavor(api.object("ResourceFlavor", named(&pool.name), spec))
    });
    let mut queues = Vec::new();
    let (shared, isolated) = pools.all.iter().partition(|pool| pool.is_time_sliced());
    for (name, pools) in [(QUEUE, isolated), (SHARED_QUEUE, shared)] {
        let pools: Vec<&NodePool> = pools;
        if !pools.is_empty() {
            queues.push((name, cluster_queue(pools, options)?));
        }
    }
    let names: Vec<&'static str> = queues.iter().map(|(name, _)| *name).collect();
    let queues = queues
        .into_iter()
        .map(|(name, spec)| Manifest::ClusterQueue(api.object("ClusterQueue", named(name), spec)));
    let local_queues = options.namespaces().into_iter().flat_map(|namespace| {
        names.iter().map(move |name| {
            let spec = LocalQueueSpec { cluster_queue: name };
            Manifest::LocalQueue(api.object("LocalQueue", namespaced(namespace, name), spec))
        })
    });
    let priorities = priority_values(options.priorities).map(|(name, value)| {
        Manifest::WorkloadPriorityClass(WorkloadPriority {
            api_version: api.group_version(),
            kind: "WorkloadPriorityClass",
            metadata: named(name),
            value,
        })
    });
    let file = |name, manifests| ManifestFile { name, manifests };
    Ok(Generated {
        files: vec![
            file("topologies.yaml", topologies.into_iter().collect()),
            file("resource-flavors.yaml", flavors.collect()),
            file("cluster-queues.yaml", queues.collect()),
            file("local-queues.yaml", local_queues.collect()),
            file("workload-priority-classes.yaml", priorities.collect()),
        ],
        notes: pools.notes.clone(),
    })
}

fn flavor(pool: &NodePool, topology_name: Option<&'static str>) -> ResourceFlavorSpec {
    ResourceFlavorSpec {
        node_labels: pool.labels.clone(),
        tolerations: pool.taints.iter().map(toleration).collect(),
        topology_name,
    }
}

fn toleration(taint: &Taint) -> v1::Toleration {
    let value = Some(taint.value.clone()).filter(|value| !value.is_empty());
    v1::Toleration {
        key: Some(taint.key.clone()),
        operator: Some(if value.is_some() { "Equal" } else { "Exists" }.to_owned()),
        value,
        effect: Some(taint.effect.to_string()),
        toleration_seconds: None,
    }
}

fn cluster_queue(
    mut pools: Vec<&NodePool>,
    options: &KueueOptions<'_>,
) -> Result<ClusterQueueSpec, GenerateError> {
    let rank = |pool: &&NodePool| {
        let mut preferred = options.preferred.iter();
        preferred.position(|name| name == pool.type_name.as_str()).unwrap_or(usize::MAX)
    };
    pools.sort_by_key(rank);
    let accelerators = pools.iter().flat_map(|pool| pool.allocatable.accelerators());
    let accelerators: BTreeSet<&str> = accelerators.map(|(name, _)| name).collect();
    let covered: Vec<String> =
        [CPU, MEMORY].into_iter().chain(accelerators).map(str::to_owned).collect();
    let within = |what, count, limit| {
        if count > limit { Err(GenerateError::TooMany { what, count, limit }) } else { Ok(()) }
    };
    within("flavors", pools.len(), MAX_FLAVORS)?;
    within("resources", covered.len(), MAX_RESOURCES)?;
    let flavors = pools.iter().map(|pool| {
        let quotas = covered.iter().map(|name| ResourceQuota {
            name: name.clone(),
            nominal_quota: pool.allocatable.quantity(name),
        });
        FlavorQuotas { name: pool.name.clone(), resources: quotas.collect() }
    });
    let flavors = flavors.collect();
    let (cohort, cohort_name) = match options.api {
        KueueApi::V1Beta1 => (Some(QUEUE), None),
        KueueApi::V1Beta2 => (None, Some(QUEUE)),
    };
    Ok(ClusterQueueSpec {
        cohort,
        cohort_name,
        flavor_fungibility: FlavorFungibility {
            when_can_borrow: "TryNextFlavor",
            when_can_preempt: "TryNextFlavor",
        },
        namespace_selector: namespace_selector(&options.namespaces()),
        resource_groups: vec![ResourceGroup { covered_resources: covered, flavors }],
    })
}

/// Selects the namespaces, or all if there are none.
fn namespace_selector(namespaces: &BTreeSet<&str>) -> LabelSelector {
    let requirement = LabelSelectorRequirement {
        key: NAMESPACE_LABEL.to_owned(),
        operator: "In".to_owned(),
        values: Some(namespaces.iter().map(ToString::to_string).collect()),
    };
    let requirements = (!namespaces.is_empty()).then(|| vec![requirement]);
    LabelSelector { match_expressions: requirements, match_labels: None }
}

/// Levels whose labels all nodes have; none if that is only the host name, which is no topology.
fn levels(pools: &Pools) -> Vec<TopologyLevel> {
    let is_common = |label: &&str| {
        let mut nodes = pools.all.iter().flat_map(|pool| &pool.nodes);
        nodes.all(|node| node.label(label).is_some())
    };
    let mut labels: Vec<&str> = LEVELS.into_iter().filter(is_common).collect();
    if !labels.is_empty() {
        labels.extend([HOSTNAME].into_iter().filter(is_common));
    }
    labels.into_iter().map(|node_label| TopologyLevel { node_label }).collect()
}

#[cfg(test)]
mod tests;
