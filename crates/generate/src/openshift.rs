//! Machine pools of OpenShift on AWS: `MachineSets`, `MachineAutoscalers`, and limits of the `ClusterAutoscaler`.
//!
//! Network, image and credentials of new machines come from the cluster's own `MachineSets`. Sources of the fields:
//! openshift/api, `machine/v1beta1`; cluster-autoscaler-operator, `pkg/apis/autoscaling`; of the annotations:
//! openshift/kubernetes-autoscaler, `cloudprovider/clusterapi/clusterapi_unstructured.go`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use octavo_fleet::cluster::{CPU, ClusterNode, MEMORY, PODS};
use serde_json::{Value, json};

use crate::error::GenerateError;
use crate::instances::{Instance, InstancePool, instance_pools, least};
use crate::machine_sets::{
    ClusterAutoscalerSpec, GpuLimit, MachineAutoscalerSpec, MachineSet, MachineSetSpec,
    MachineSpec, MachineTemplate, ProviderSpec, ResourceLimits, ScaleDown, ScaleTarget,
};
use crate::manifest::{CustomObject, Generated, Manifest, ManifestFile, named, namespaced};
use crate::note::{Exclusion, Note};
use crate::pools::{Pools, name_part};

const CLUSTER_LABEL: &str = "machine.openshift.io/cluster-api-cluster";
const MACHINE_SET_LABEL: &str = "machine.openshift.io/cluster-api-machineset";
/// Label by whose value the autoscaler limits GPUs.
const ACCELERATOR_LABEL: &str = "cluster-api/accelerator";
/// Prefix of annotations with the resources of the first node.
const CAPACITY: &str = "capacity.cluster-autoscaler.kubernetes.io";
/// Argo CD does not delete an object with these options, in whichever application it is.
const NEVER_DELETED: (&str, &str) = ("argocd.argoproj.io/sync-options", "Prune=false,Delete=false");
/// The only accelerator resource that OpenShift's autoscaler predicts.
const GPU: &str = "nvidia.com/gpu";
/// Maximum length of the name of a machine set, which is a value of labels.
const MAX_NAME: usize = 63;

/// Machines of a pool with the same instance.
struct Machines<'a> {
    name: String,
    pool: &'a InstancePool<'a>,
    instance: &'a Instance<'a>,
    nodes: &'a [&'a ClusterNode],
    /// Machine set of the cluster in the same zone.
    source: &'a MachineSet,
}

/// Generates the objects of the pools, with the settings of the cluster's machine sets.
///
/// # Errors
///
/// Fails if no node is an EC2 instance in a zone with a machine set, or if a name is too long.
pub fn openshift(pools: &Pools, existing: &[MachineSet]) -> Result<Generated, GenerateError> {
    let mut notes = pools.notes.clone();
    let pools = instance_pools(pools, &mut notes)?;
    let all = machines(&pools, existing, &mut notes)?;
    for pool in pools.iter().filter(|pool| !scales_from_zero(pool)) {
        if all.iter().any(|machines| machines.pool.pool.name == pool.pool.name) {
            notes.push(Note::NotFromZero { pool: pool.pool.name.clone() });
        }
    }
    let sets = all.iter().map(|one| Manifest::MachineSet(Box::new(machine_set(one))));
    let autoscalers = all.iter().map(|one| Manifest::MachineAutoscaler(autoscaler(one)));
    let cluster = Manifest::ClusterAutoscaler(CustomObject {
        api_version: "autoscaling.openshift.io/v1",
        kind: "ClusterAutoscaler",
        // The operator ignores other names.
        metadata: named("default"),
        spec: ClusterAutoscalerSpec {
            resource_limits: ResourceLimits { gpus: gpu_limits(&all) },
            scale_down: ScaleDown { enabled: true },
        },
    });
    let file = |name, manifests| ManifestFile { name, manifests };
    let files = vec![
        file("machine-sets.yaml", sets.collect()),
        file("machine-autoscalers.yaml", autoscalers.collect()),
        file("cluster-autoscaler.yaml", vec![cluster]),
    ];
    notes.sort_unstable();
    Ok(Generated { files, notes })
}

fn machines<'a>(
    pools: &'a [InstancePool<'a>],
    existing: &'a [MachineSet],
    notes: &mut Vec<Note>,
) -> Result<Vec<Machines<'a>>, GenerateError> {
    let mut all = Vec::new();
    let mut excluded: BTreeMap<Exclusion, Vec<String>> = BTreeMap::new();
    for pool in pools {
        for (instance, nodes) in &pool.instances {
            let found = existing.iter().filter(|set| set.creates(instance));
            let Some(source) = found.min_by_key(|set| &set.metadata.name) else {
                let why = Exclusion::NoMachineSet {
                    zone: instance.zone.to_owned(),
                    architecture: instance.architecture.to_owned(),
                };
                let names = nodes.iter().map(|node| node.name.clone());
                excluded.entry(why).or_default().extend(names);
                continue;
            };
            let name = name(pool, instance);
            if name.len() > MAX_NAME {
                return Err(GenerateError::LongName { name, limit: MAX_NAME });
            }
            all.push(Machines { name, pool, instance, nodes, source });
        }
    }
    notes.extend(excluded.into_iter().map(|(why, nodes)| Note::Excluded { why, nodes }));
    if all.is_empty() {
        notes.sort_unstable();
        return Err(GenerateError::NoNodes(notes.clone()));
    }
    Ok(all)
}

/// Name of a machine set. Names of pools are long, so that it has the instance type only if the pool has several.
fn name(pool: &InstancePool<'_>, instance: &Instance<'_>) -> String {
    let has_several = |differs: fn(&Instance<'_>, &Instance<'_>) -> bool| {
        pool.instances.keys().any(|other| differs(other, instance))
    };
    let mut words = vec![pool.pool.name.as_str()];
    if has_several(|one, other| one.type_name != other.type_name) {
        words.push(instance.type_name);
    }
    if instance.is_spot && has_several(|one, other| one.is_spot != other.is_spot) {
        words.push("spot");
    }
    words.push(instance.zone);
    name_part(&words.join("-"))
}

/// Returns `true` if the autoscaler predicts all devices of the first node.
fn scales_from_zero(pool: &InstancePool<'_>) -> bool {
    pool.pool.allocatable.accelerators().all(|(name, _)| name == GPU)
}

/// Minimum number of machines.
fn least_machines(machines: &Machines<'_>) -> usize {
    usize::from(!scales_from_zero(machines.pool))
}

fn machine_set(machines: &Machines<'_>) -> CustomObject<MachineSetSpec> {
    let source = machines.source;
    let cluster = source.metadata.labels.get(CLUSTER_LABEL);
    let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    let cluster = cluster.map(|name| owned((CLUSTER_LABEL, name)));
    let selected: BTreeMap<String, String> =
        cluster.clone().into_iter().chain([owned((MACHINE_SET_LABEL, &machines.name))]).collect();
    let roles = ["role", "type"].map(|kind| {
        (format!("machine.openshift.io/cluster-api-machine-{kind}"), "worker".to_owned())
    });
    let node_labels = node_labels(machines);
    let metadata = ObjectMeta {
        annotations: Some(annotations(machines, &node_labels)),
        labels: Some(cluster.into_iter().collect()),
        ..namespaced(&source.metadata.namespace, &machines.name)
    };
    CustomObject {
        api_version: "machine.openshift.io/v1beta1",
        kind: "MachineSet",
        metadata,
        spec: MachineSetSpec {
            replicas: least_machines(machines),
            selector: LabelSelector {
                match_expressions: None,
                match_labels: Some(selected.clone()),
            },
            template: MachineTemplate {
                metadata: ObjectMeta {
                    labels: Some(selected.into_iter().chain(roles).collect()),
                    ..ObjectMeta::default()
                },
                spec: MachineSpec {
                    metadata: ObjectMeta { labels: Some(node_labels), ..ObjectMeta::default() },
                    provider_spec: ProviderSpec { value: provider(machines) },
                    taints: machines.pool.pool.taints.clone(),
                },
            },
        },
    }
}

/// Labels of new nodes.
fn node_labels(machines: &Machines<'_>) -> BTreeMap<String, String> {
    let mut labels = machines.pool.node_labels();
    if scales_from_zero(machines.pool) {
        labels.insert(ACCELERATOR_LABEL.to_owned(), machines.pool.pool.type_name.to_string());
    }
    labels
}

/// Annotations that describe the first node to the autoscaler: what pods can be allocated on such a node. The machine
/// controller would write the capacity of the instance type, which includes the resources that the system reserves and counts no replicas.
fn annotations(
    machines: &Machines<'_>,
    labels: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let offered = least(machines.nodes);
    let mut values: Vec<(&str, String)> = [("cpu", CPU), ("memory", MEMORY), ("maxPods", PODS)]
        .into_iter()
        .filter(|(_, resource)| offered.get(resource) > 0)
        .map(|(key, resource)| (key, offered.quantity(resource)))
        .collect();
    if scales_from_zero(machines.pool) {
        values.push(("gpu-count", offered.quantity(GPU)));
        values.push(("gpu-type", GPU.to_owned()));
    }
    let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    values.push(("labels", labels.join(",")));
    let values = values.into_iter().map(|(key, value)| (format!("{CAPACITY}/{key}"), value));
    values.chain([(NEVER_DELETED.0.to_owned(), NEVER_DELETED.1.to_owned())]).collect()
}

/// Settings of the cloud, with another instance type and purchase option.
fn provider(machines: &Machines<'_>) -> Value {
    let mut value = machines.source.spec.template.spec.provider_spec.value.clone();
    if let Some(settings) = value.as_object_mut() {
        // A reservation is for the instance type of the other machine set.
        for key in ["marketType", "capacityReservationId", "spotMarketOptions"] {
            settings.remove(key);
        }
        settings.insert("instanceType".to_owned(), json!(machines.instance.type_name));
        if machines.instance.is_spot {
            settings.insert("spotMarketOptions".to_owned(), json!({}));
        }
    }
    value
}

fn autoscaler(machines: &Machines<'_>) -> CustomObject<MachineAutoscalerSpec> {
    CustomObject {
        api_version: "autoscaling.openshift.io/v1beta1",
        kind: "MachineAutoscaler",
        metadata: namespaced(&machines.source.metadata.namespace, &machines.name),
        spec: MachineAutoscalerSpec {
            min_replicas: least_machines(machines),
            max_replicas: machines.nodes.len(),
            scale_target_ref: ScaleTarget {
                api_version: "machine.openshift.io/v1beta1",
                kind: "MachineSet",
                name: machines.name.clone(),
            },
        },
    }
}

/// GPUs of all nodes by type.
fn gpu_limits(all: &[Machines<'_>]) -> Vec<GpuLimit> {
    let mut by_type: BTreeMap<String, u64> = BTreeMap::new();
    for machines in all.iter().filter(|machines| scales_from_zero(machines.pool)) {
        let sum = by_type.entry(machines.pool.pool.type_name.to_string()).or_default();
        let counts = machines.nodes.iter().map(|node| node.allocatable.get(GPU));
        *sum = counts.fold(*sum, u64::saturating_add);
    }
    by_type.into_iter().map(|(type_name, max)| GpuLimit { type_name, min: 0, max }).collect()
}

#[cfg(test)]
mod tests;
