//! Manifests: objects for `kubectl apply`, grouped into files.

use std::collections::BTreeMap;

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::core::v1::{ConfigMap, LimitRange, ResourceQuota};
use k8s_openapi::api::resource::v1::DeviceClass;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;

use crate::argocd_specs::ApplicationSpec;
use crate::karpenter_specs::{NodeOverlaySpec, NodePoolSpec};
use crate::kueue_specs::{
    ClusterQueueSpec, LocalQueueSpec, ResourceFlavorSpec, TopologySpec, WorkloadPriority,
};
use crate::machine_sets::{ClusterAutoscalerSpec, MachineAutoscalerSpec, MachineSetSpec};
use crate::note::Note;

/// Generated files.
#[derive(Debug, Clone, PartialEq)]
pub struct Generated {
    /// All files that the generator knows, in the order in which they are printed.
    pub files: Vec<ManifestFile>,
    /// Notes for the user.
    pub notes: Vec<Note>,
}

/// Manifests of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct ManifestFile {
    /// File name.
    pub name: &'static str,
    /// The manifests, ordered by namespace and name; without any, the file must not exist.
    pub manifests: Vec<Manifest>,
}

/// An object.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Manifest {
    /// A `Topology` of Kueue.
    Topology(CustomObject<TopologySpec>),
    /// A `ResourceFlavor` of Kueue.
    ResourceFlavor(CustomObject<ResourceFlavorSpec>),
    /// A `ClusterQueue` of Kueue.
    ClusterQueue(CustomObject<ClusterQueueSpec>),
    /// A `LocalQueue` of Kueue.
    LocalQueue(CustomObject<LocalQueueSpec>),
    /// A `WorkloadPriorityClass` of Kueue.
    WorkloadPriorityClass(WorkloadPriority),
    /// A `PriorityClass`.
    PriorityClass(Box<PriorityClass>),
    /// A `ResourceQuota`.
    ResourceQuota(Box<ResourceQuota>),
    /// A `LimitRange`.
    LimitRange(Box<LimitRange>),
    /// A `NodePool` of Karpenter.
    NodePool(Box<CustomObject<NodePoolSpec>>),
    /// A `NodeOverlay` of Karpenter.
    NodeOverlay(CustomObject<NodeOverlaySpec>),
    /// A `MachineSet` of OpenShift.
    MachineSet(Box<CustomObject<MachineSetSpec>>),
    /// A `MachineAutoscaler` of OpenShift.
    MachineAutoscaler(CustomObject<MachineAutoscalerSpec>),
    /// The `ClusterAutoscaler` of OpenShift.
    ClusterAutoscaler(CustomObject<ClusterAutoscalerSpec>),
    /// A `ValidatingAdmissionPolicy`.
    AdmissionPolicy(Box<ValidatingAdmissionPolicy>),
    /// A `ValidatingAdmissionPolicyBinding`.
    AdmissionPolicyBinding(Box<ValidatingAdmissionPolicyBinding>),
    /// A `DeviceClass`.
    DeviceClass(Box<DeviceClass>),
    /// A `ConfigMap`.
    ConfigMap(Box<ConfigMap>),
    /// An `Application` of Argo CD.
    Application(Box<CustomObject<ApplicationSpec>>),
}

/// Custom resource.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CustomObject<S> {
    /// Group and version.
    pub api_version: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// Name, and namespace if it has one.
    pub metadata: ObjectMeta,
    /// The specification.
    pub spec: S,
}

/// Metadata of a cluster-scoped object.
pub(crate) fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}

/// Metadata of an object in a namespace.
pub(crate) fn namespaced(namespace: &str, name: &str) -> ObjectMeta {
    ObjectMeta { namespace: Some(namespace.to_owned()), ..named(name) }
}

/// A `ConfigMap` in a namespace.
pub(crate) fn config_map(namespace: &str, name: &str, data: BTreeMap<String, String>) -> Manifest {
    Manifest::ConfigMap(Box::new(ConfigMap {
        metadata: namespaced(namespace, name),
        data: Some(data),
        ..ConfigMap::default()
    }))
}

/// Values of priority classes whose names are ordered from the highest to the lowest priority: multiples of 1000, so that
/// other classes fit between them.
pub(crate) fn priority_values(names: &[String]) -> impl Iterator<Item = (&String, i32)> {
    let ranks = (1_i32..).map(|rank| rank.saturating_mul(1000));
    let lowest_first: Vec<(&String, i32)> = names.iter().rev().zip(ranks).collect();
    lowest_first.into_iter().rev()
}
