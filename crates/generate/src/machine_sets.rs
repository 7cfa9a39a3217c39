//! Fields of OpenShift's machine objects, and parts of existing machine sets. Sources: openshift/api, `machine/v1beta1`;
//! cluster-autoscaler-operator, `pkg/apis/autoscaling`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use octavo_fleet::cluster::Taint;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::instances::{ARCHITECTURE, Instance};

/// Annotation with labels of the first node, where the machine controller adds the architecture.
const LABELS_ANNOTATION: &str = "capacity.cluster-autoscaler.kubernetes.io/labels";

/// List of machine sets, as printed by `oc get machinesets -o yaml`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct MachineSetList {
    /// The machine sets.
    pub items: Vec<MachineSet>,
}

/// Machine set of the cluster.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct MachineSet {
    pub(crate) metadata: MachineSetMetadata,
    pub(crate) spec: ExistingSpec,
}

/// Metadata of a machine set of the cluster.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct MachineSetMetadata {
    pub(crate) name: String,
    pub(crate) namespace: String,
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) annotations: BTreeMap<String, String>,
}

/// Specification of a machine set of the cluster.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct ExistingSpec {
    pub(crate) template: ExistingTemplate,
}

/// Template of a machine set of the cluster.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct ExistingTemplate {
    pub(crate) spec: ExistingMachine,
}

/// Machine of a machine set of the cluster.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExistingMachine {
    pub(crate) provider_spec: ProviderSpec,
}

/// Settings of the cloud.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ProviderSpec {
    pub(crate) value: Value,
}

impl MachineSet {
    /// Returns `true` if machines with its settings can be such an instance.
    pub(crate) fn creates(&self, instance: &Instance<'_>) -> bool {
        let zone =
            self.spec.template.spec.provider_spec.value.pointer("/placement/availabilityZone");
        let labels = self.metadata.annotations.get(LABELS_ANNOTATION);
        let mut labels = labels.into_iter().flat_map(|labels| labels.split(','));
        let architecture = labels.find_map(|one| one.strip_prefix(ARCHITECTURE)?.strip_prefix('='));
        zone.and_then(Value::as_str) == Some(instance.zone)
            && architecture.unwrap_or("amd64") == instance.architecture
    }
}

/// Specification of a `MachineSet`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MachineSetSpec {
    pub(crate) replicas: usize,
    pub(crate) selector: LabelSelector,
    pub(crate) template: MachineTemplate,
}

/// Template of machines.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct MachineTemplate {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: MachineSpec,
}

/// Specification of machines, whose metadata are those of the nodes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MachineSpec {
    pub(crate) metadata: ObjectMeta,
    pub(crate) provider_spec: ProviderSpec,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) taints: Vec<Taint>,
}

/// Specification of a `MachineAutoscaler`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineAutoscalerSpec {
    pub(crate) min_replicas: usize,
    pub(crate) max_replicas: usize,
    pub(crate) scale_target_ref: ScaleTarget,
}

/// Reference to a machine set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ScaleTarget {
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) name: String,
}

/// Specification of the `ClusterAutoscaler`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAutoscalerSpec {
    pub(crate) resource_limits: ResourceLimits,
    pub(crate) scale_down: ScaleDown,
}

/// Limits of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ResourceLimits {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) gpus: Vec<GpuLimit>,
}

/// Limits of one type of GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct GpuLimit {
    #[serde(rename = "type")]
    pub(crate) type_name: String,
    pub(crate) min: u64,
    pub(crate) max: u64,
}

/// Removal of idle machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ScaleDown {
    pub(crate) enabled: bool,
}
