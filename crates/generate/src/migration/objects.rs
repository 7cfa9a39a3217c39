//! Objects of a cluster with the GPU Operator, as `kubectl get -o yaml` prints them. Only the fields that a migration needs are read.

use std::collections::BTreeMap;

use octavo_node::mig_strategy::MigStrategy;
use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

/// Namespace of the operator if its `ClusterPolicy` does not report one.
pub const DEFAULT_NAMESPACE: &str = "gpu-operator";

/// Objects of a cluster.
#[derive(Debug, Clone, Default)]
pub struct OperatorObjects {
    pub(super) policies: Vec<ClusterPolicy>,
    pub(super) config_maps: Vec<ConfigMap>,
    pub(super) nodes: Vec<NodeObject>,
}

/// Object that cannot be read.
#[derive(Debug, Error)]
#[error("cannot read {kind} {name}")]
pub struct ObjectError {
    kind: String,
    name: String,
    source: serde_json::Error,
}

/// Name and labels of an object.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Metadata {
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    pub(super) labels: BTreeMap<String, String>,
}

/// The operator's settings. Source: NVIDIA gpu-operator, `ClusterPolicySpec` of `nvidia.com/v1`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ClusterPolicy {
    pub(super) metadata: Metadata,
    pub(super) spec: PolicySettings,
    pub(super) status: Option<PolicyState>,
}

/// Settings of the operator's parts.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PolicySettings {
    mig: Option<Mig>,
    pub(super) mig_manager: Option<Operand>,
    pub(super) device_plugin: Option<Operand>,
    pub(super) sandbox_workloads: Option<Operand>,
    pub(super) vgpu_manager: Option<Operand>,
    pub(super) vgpu_device_manager: Option<Operand>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Mig {
    strategy: Option<String>,
}

/// A part of the operator.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Operand {
    pub(super) enabled: Option<bool>,
    pub(super) config: Option<ConfigReference>,
}

/// `ConfigMap` with the configurations of an operand, and the configuration of nodes without a label.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ConfigReference {
    name: Option<String>,
    default: Option<String>,
}

/// State that the operator reports.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct PolicyState {
    namespace: Option<String>,
}

/// A `ConfigMap`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ConfigMap {
    pub(super) metadata: Metadata,
    pub(super) data: BTreeMap<String, String>,
}

/// A Node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct NodeObject {
    pub(super) metadata: Metadata,
    status: Option<NodeStatus>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct NodeStatus {
    allocatable: BTreeMap<String, Value>,
}

impl OperatorObjects {
    /// Adds an object, or the objects of a list. Objects of other kinds are ignored.
    pub fn add(&mut self, object: Value) -> Result<(), ObjectError> {
        let text = |path: &str| {
            let value = object.pointer(path).and_then(Value::as_str);
            value.unwrap_or_default().to_owned()
        };
        let (kind, name) = (text("/kind"), text("/metadata/name"));
        if let Some(of) = kind.strip_suffix("List") {
            let items = object.get("items").and_then(Value::as_array);
            let mut items = items.cloned().unwrap_or_default();
            for item in items.iter_mut().filter_map(Value::as_object_mut) {
                // The API server omits the kind of the items of a list.
                if !of.is_empty() && !item.contains_key("kind") {
                    item.insert("kind".to_owned(), Value::from(of));
                }
            }
            return items.into_iter().try_for_each(|item| self.add(item));
        }
        let failed = |source| ObjectError { kind: kind.clone(), name, source };
        match kind.as_str() {
            "ClusterPolicy" => self.policies.push(serde_json::from_value(object).map_err(failed)?),
            "ConfigMap" => self.config_maps.push(serde_json::from_value(object).map_err(failed)?),
            "Node" => self.nodes.push(serde_json::from_value(object).map_err(failed)?),
            _ => {}
        }
        Ok(())
    }

    /// Returns the `ConfigMap` of this name in the operator's namespace.
    pub(super) fn config_map(&self, namespace: &str, name: &str) -> Option<&ConfigMap> {
        self.config_maps.iter().find(|map| {
            map.metadata.name == name && map.metadata.namespace.as_deref() == Some(namespace)
        })
    }
}

impl ClusterPolicy {
    /// Returns the operator's namespace.
    pub(super) fn namespace(&self) -> &str {
        let reported = self.status.as_ref().and_then(|status| status.namespace.as_deref());
        reported.filter(|name| !name.is_empty()).unwrap_or(DEFAULT_NAMESPACE)
    }

    /// Returns the MIG strategy of the operator's device plugin and GPU Feature Discovery.
    pub(super) fn strategy(&self) -> MigStrategy {
        let text = self.spec.mig.as_ref().and_then(|mig| mig.strategy.as_deref());
        text.and_then(|text| text.parse().ok()).unwrap_or_default()
    }
}

impl Operand {
    /// Returns whether the operand is enabled, if this is its default.
    pub(super) fn is_enabled(operand: Option<&Self>, default: bool) -> bool {
        operand.and_then(|operand| operand.enabled).unwrap_or(default)
    }

    /// Returns the name of the operand's `ConfigMap`.
    pub(super) fn config_name(operand: Option<&Self>) -> Option<&str> {
        Self::field(operand, |config| config.name.as_deref())
    }

    /// Returns the configuration of nodes without a label.
    pub(super) fn config_default(operand: Option<&Self>) -> Option<&str> {
        Self::field(operand, |config| config.default.as_deref())
    }

    fn field(
        operand: Option<&Self>,
        field: impl FnOnce(&ConfigReference) -> Option<&str>,
    ) -> Option<&str> {
        operand?.config.as_ref().and_then(field).filter(|text| !text.is_empty())
    }
}

impl NodeObject {
    /// Returns the value of a label that is not empty.
    pub(super) fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Returns the number in a label.
    pub(super) fn count(&self, key: &str) -> Option<u64> {
        self.label(key)?.parse().ok()
    }

    /// Returns NVIDIA's resources with at least one allocatable unit, without their domain.
    pub(super) fn resources(&self) -> Vec<(&str, u64)> {
        let allocatable = self.status.iter().flat_map(|status| &status.allocatable);
        let all = allocatable.filter_map(|(name, amount)| {
            let name = name.strip_prefix("nvidia.com/")?;
            let units = amount.as_u64().or_else(|| amount.as_str()?.parse().ok())?;
            (units > 0).then_some((name, units))
        });
        all.collect()
    }
}
