//! Fields of Karpenter's objects. Source: Karpenter v1.13.0, `pkg/apis/v1` and `pkg/apis/v1alpha1`.

use std::collections::BTreeMap;

use octavo_fleet::cluster::Taint;
use serde::Serialize;

/// Specification of a `NodePool`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodePoolSpec {
    pub(crate) template: NodeTemplate,
    pub(crate) disruption: Disruption,
    pub(crate) limits: BTreeMap<String, String>,
}

/// Template of new nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct NodeTemplate {
    pub(crate) metadata: NodeTemplateMetadata,
    pub(crate) spec: NodeTemplateSpec,
}

/// Metadata of new nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct NodeTemplateMetadata {
    pub(crate) labels: BTreeMap<String, String>,
}

/// Specification of new nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeTemplateSpec {
    pub(crate) expire_after: &'static str,
    pub(crate) node_class_ref: NodeClassRef,
    pub(crate) requirements: Vec<NodeRequirement>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) taints: Vec<Taint>,
}

/// Reference to the settings of the cloud.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct NodeClassRef {
    pub(crate) group: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) name: String,
}

/// Values that a label of new nodes can have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct NodeRequirement {
    pub(crate) key: &'static str,
    pub(crate) operator: &'static str,
    pub(crate) values: Vec<String>,
}

/// Conditions under which nodes are removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Disruption {
    pub(crate) consolidation_policy: &'static str,
    pub(crate) consolidate_after: &'static str,
}

/// Specification of a `NodeOverlay`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeOverlaySpec {
    pub(crate) requirements: Vec<NodeRequirement>,
    pub(crate) capacity: BTreeMap<String, String>,
}
