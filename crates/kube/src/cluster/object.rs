//! Nodes and Pods as the API server serializes them, reduced to the fields that scheduling depends on.
//!
//! Most of a Pod is irrelevant here, and any user can make one large. Fields that are not declared are skipped during
//! deserialization and never stored. Optional fields are optional here as well and have the server's defaults.

use std::collections::BTreeMap;

use octavo_fleet::cluster::Affinity;
use serde::Deserialize;
use serde_json::Value;

/// Amounts by resource name; valid values are strings.
pub(super) type Resources = BTreeMap<String, Value>;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Metadata {
    pub(super) name: String,
    pub(super) uid: Option<String>,
    pub(super) namespace: Option<String>,
    pub(super) resource_version: Option<String>,
    pub(super) labels: Option<BTreeMap<String, String>>,
    pub(super) annotations: Option<Annotations>,
    pub(super) creation_timestamp: Option<String>,
    pub(super) deletion_timestamp: Option<String>,
    pub(super) owner_references: Option<Vec<OwnerReference>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct OwnerReference {
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) controller: Option<bool>,
}

/// Octavo's annotations of a Node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Annotations {
    #[serde(rename = "octavo.dev/status")]
    pub(super) status: Option<String>,
    #[serde(rename = "octavo.dev/policy")]
    pub(super) policy: Option<String>,
    #[serde(rename = "octavo.dev/drain")]
    pub(super) drain: Option<String>,
}

/// Content of the annotation `octavo.dev/status`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct LayoutStatus {
    pub(super) layout: Option<String>,
    pub(super) state: Option<String>,
    pub(super) message: Option<String>,
    pub(super) devices: Vec<DeviceStatus>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct DeviceStatus {
    pub(super) name: String,
    pub(super) state: String,
    pub(super) message: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Node {
    pub(super) metadata: Metadata,
    pub(super) spec: Option<NodeSpec>,
    pub(super) status: Option<NodeStatus>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct NodeSpec {
    pub(super) taints: Option<Vec<Taint>>,
    pub(super) unschedulable: Option<bool>,
    #[serde(rename = "providerID")]
    pub(super) provider_id: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Taint {
    pub(super) key: String,
    pub(super) value: Option<String>,
    pub(super) effect: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct NodeStatus {
    pub(super) conditions: Option<Vec<Condition>>,
    pub(super) capacity: Option<Resources>,
    pub(super) allocatable: Option<Resources>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Condition {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) status: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Pod {
    pub(super) metadata: Metadata,
    pub(super) spec: Option<PodSpec>,
    pub(super) status: Option<PodStatus>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PodSpec {
    pub(super) node_name: Option<String>,
    pub(super) scheduling_gates: Option<Vec<Gate>>,
    pub(super) containers: Option<Vec<Container>>,
    pub(super) init_containers: Option<Vec<Container>>,
    pub(super) resources: Option<ResourceRequirements>,
    pub(super) overhead: Option<Resources>,
    pub(super) node_selector: Option<BTreeMap<String, String>>,
    pub(super) affinity: Option<PodAffinity>,
    pub(super) tolerations: Option<Vec<Toleration>>,
    pub(super) active_deadline_seconds: Option<i64>,
    pub(super) priority: Option<i32>,
    pub(super) resource_claims: Option<Vec<Claim>>,
}

/// Only the existence of a gate matters.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Gate {}

/// Only the existence of a claim matters.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Claim {}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Container {
    pub(super) resources: Option<ResourceRequirements>,
    pub(super) restart_policy: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ResourceRequirements {
    pub(super) requests: Option<Resources>,
    pub(super) limits: Option<Resources>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PodAffinity {
    pub(super) node_affinity: Option<NodeAffinity>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct NodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub(super) required: Option<Affinity>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Toleration {
    pub(super) key: Option<String>,
    pub(super) operator: Option<String>,
    pub(super) value: Option<String>,
    pub(super) effect: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PodStatus {
    pub(super) phase: Option<String>,
    pub(super) start_time: Option<String>,
}
