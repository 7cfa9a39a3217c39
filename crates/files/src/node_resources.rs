//! Resources advertised by a node, as printed by `octavo sharing check -o json`, and parsing of a Node's allocatable
//! resources.
//!
//! Fields are only ever added. Values that do not apply or are unknown are omitted.

use std::collections::BTreeMap;

use octavo_model::API_VERSION;
use octavo_model::quantity::Mebibytes;
use octavo_model::resource::{ResourceName, ShareId};
use octavo_node::label_set::LabelSet;
use octavo_node::sharing::forecast::placeholder_number;
use octavo_node::sharing::{Offer, Offers, Unit};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Resources that a node advertises under a layout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeResourcesDocument {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `Sharing`.
    pub kind: String,
    /// Name of the layout.
    pub layout: String,
    /// Ordered by name.
    pub resources: Vec<NodeResource>,
    /// All node labels under the layout.
    pub labels: BTreeMap<String, String>,
    /// Human-readable warnings about possible mistakes.
    pub warnings: Vec<String>,
}

/// A resource advertised by the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeResource {
    /// Name of the resource.
    pub name: String,
    /// Number of devices advertised to the kubelet.
    pub count: usize,
    /// Whether a container that requests more than one is rejected.
    pub fail_requests_greater_than_one: bool,
    /// Ordered by device, then by instance.
    pub units: Vec<ResourceUnit>,
}

/// A device or partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceUnit {
    /// UUID; absent for a partition that does not exist yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// PCI address of the device.
    pub device: String,
    /// MIG profile of a partition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Number of replicas; absent if the unit is not time-sliced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    /// Memory in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    /// Fair share of memory per replica, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_share_mib: Option<u64>,
    /// Device IDs advertised to the kubelet. A partition that does not exist yet has the placeholder UUID
    /// `MIG-(new 1)`.
    pub ids: Vec<String>,
}

/// Creates the document.
pub fn document(
    layout: &str,
    offers: &Offers,
    labels: &LabelSet,
    warnings: &[String],
) -> NodeResourcesDocument {
    let labels = labels.iter();
    NodeResourcesDocument {
        api_version: API_VERSION.to_owned(),
        kind: "Sharing".to_owned(),
        layout: layout.to_owned(),
        resources: offers.resources.iter().map(NodeResource::from).collect(),
        labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        warnings: warnings.to_vec(),
    }
}

impl From<&Offer> for NodeResource {
    fn from(offer: &Offer) -> Self {
        Self {
            name: offer.name.to_string(),
            count: offer.count(),
            fail_requests_greater_than_one: offer.fail_requests_greater_than_one,
            units: offer.units.iter().map(ResourceUnit::from).collect(),
        }
    }
}

impl From<&Unit> for ResourceUnit {
    fn from(unit: &Unit) -> Self {
        let partition = unit.partition.as_ref();
        Self {
            uuid: Some(unit.uuid.clone()).filter(|uuid| placeholder_number(uuid).is_none()),
            device: unit.pci.to_string(),
            profile: partition.map(|partition| partition.profile.to_string()),
            replicas: unit.replicas,
            memory_mib: unit.memory.map(Mebibytes::get),
            fair_share_mib: unit.fair_share().map(Mebibytes::get),
            ids: unit.ids().iter().map(id).collect(),
        }
    }
}

/// Formats a device ID for display. A partition that does not exist yet has no UUID.
pub fn id(id: &ShareId) -> String {
    match (placeholder_number(id.uuid()), id.number()) {
        (None, _) => id.to_string(),
        (Some(new), None) => format!("MIG-(new {new})"),
        (Some(new), Some(number)) => format!("MIG-(new {new})::{number}"),
    }
}

/// Error while reading the allocatable resources of a Node.
#[derive(Debug, Error)]
pub enum AllocatableError {
    /// The text is neither JSON nor YAML.
    #[error("neither JSON nor YAML")]
    Syntax(#[source] Box<serde_saphyr::Error>),
    /// The text is not a Node.
    #[error("it has no status.allocatable; expected a Node as printed by kubectl")]
    NotANode,
    /// A count is not a number.
    #[error("{name} in status.allocatable is {count:?}, which is not a number of devices")]
    Count {
        /// Name of the resource.
        name: String,
        /// The value.
        count: String,
    },
}

#[derive(Deserialize)]
struct Node {
    status: Option<NodeStatus>,
}

#[derive(Deserialize)]
struct NodeStatus {
    allocatable: Option<BTreeMap<String, String>>,
}

/// Reads the allocatable NVIDIA resources of a Node, as printed by `kubectl get node -o json` or `-o yaml`.
///
/// # Errors
/// Fails if the text is not a Node.
pub fn allocatable(text: &str) -> Result<BTreeMap<ResourceName, u64>, AllocatableError> {
    // YAML is a superset of JSON.
    let node: Node = serde_saphyr::from_str(text.trim_start_matches('\u{feff}'))
        .map_err(|error| AllocatableError::Syntax(Box::new(error)))?;
    let status = node.status.and_then(|status| status.allocatable);
    let all = status.ok_or(AllocatableError::NotANode)?.into_iter();
    let known = all.filter_map(|(name, count)| Some((name.parse::<ResourceName>().ok()?, count)));
    let counted = known.map(|(name, count)| {
        let number = count
            .parse()
            .map_err(|_| AllocatableError::Count { name: name.to_string(), count: count.clone() });
        Ok((name, number?))
    });
    counted.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocatable_is_read_from_json_and_yaml() {
        let expected = BTreeMap::from([("nvidia.com/gpu".parse().unwrap(), 12_u64)]);
        for text in [
            r#"{"kind": "Node", "status": {"allocatable": {"cpu": "64", "nvidia.com/gpu": "12"}}}"#,
            "kind: Node\nstatus:\n  allocatable:\n    cpu: '64'\n    nvidia.com/gpu: \"12\"\n",
        ] {
            assert_eq!(allocatable(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn i12_text_that_is_not_a_node_is_rejected() {
        for text in
            ["", "{", "{}", "[]", "status: {}", "status: {allocatable: {nvidia.com/gpu: '1k'}}"]
        {
            assert!(allocatable(text).is_err(), "{text}");
        }
    }
}
