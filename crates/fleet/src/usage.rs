//! Usage by pod as rows across the fleet: documents of the REST API. Unknown values are omitted.

use octavo_model::id::TypeName;
use octavo_model::quantity::Mebibytes;
use octavo_model::resource::{ResourceName, ShareId};
use octavo_node::sharing::usage::{Tenant, Usage};
use octavo_node::workload::HoldingCounts;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

/// Usage by pod across the fleet, in the requested order.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageList {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `UsageList`.
    pub kind: String,
    /// Revision of the fleet; increases with every change.
    pub revision: u64,
    /// Start of the next page, for the parameter `continue`; absent on the last page.
    #[serde(rename = "continue")]
    pub continue_token: Option<String>,
    /// The containers of this page, once for each of their units.
    pub items: Vec<UsageRow>,
}

/// Allocations of each namespace by type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageSummary {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `UsageSummary`.
    pub kind: String,
    /// Revision of the fleet; increases with every change.
    pub revision: u64,
    /// Number of stale nodes, which are not counted.
    pub stale_nodes: u64,
    /// True if the fleet has more than the maximum number that is counted.
    pub incomplete: bool,
    /// Sums, ordered by namespace and type.
    pub items: Vec<UsageSum>,
}

/// Allocations of one type to the pods of a namespace, used or not.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageSum {
    /// The namespace.
    pub namespace: String,
    /// The type; absent for unidentified devices.
    #[serde(rename = "type")]
    #[schema(value_type = Option<String>)]
    pub type_name: Option<TypeName>,
    /// Number of pods. A pod with several types counts for each.
    pub pods: u64,
    /// Whole devices allocated exclusively.
    pub devices: u64,
    /// MIG partitions allocated exclusively.
    pub partitions: u64,
    /// Replicas of shared devices and partitions.
    pub replicas: u64,
}

impl UsageSum {
    /// Creates the sum from the counted allocations.
    pub fn new(namespace: &str, type_name: Option<&TypeName>, held: HoldingCounts) -> Self {
        Self {
            namespace: namespace.to_owned(),
            type_name: type_name.cloned(),
            pods: held.pods,
            devices: held.devices,
            partitions: held.partitions,
            replicas: held.replicas,
        }
    }
}

/// A container, or a process outside any container, and its usage of one device or partition.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageRow {
    /// Name of the Kubernetes node; empty, like device, address and UUID, for readers who may not list nodes.
    pub node: String,
    /// True if the node is stale: its last report is outdated.
    #[serde(default)]
    pub stale: bool,
    /// Display name of the device: `GPU 3`.
    pub device: String,
    /// The device's PCI address.
    pub pci: String,
    /// UUID of the device or partition.
    pub uuid: String,
    /// Profile name of the partition; absent for a whole device.
    pub profile: Option<String>,
    /// The resource that pods request.
    pub resource: Option<String>,
    /// Number of replicas; absent if it is not shared.
    pub replicas: Option<u32>,
    /// Fair share of memory: the amount that all replicas can use at the same time.
    #[serde(rename = "fairShareMiB")]
    #[schema(value_type = Option<u64>)]
    pub fair_share: Option<Mebibytes>,
    /// Total memory of the device or partition.
    #[serde(rename = "totalMiB")]
    #[schema(value_type = Option<u64>)]
    pub total: Option<Mebibytes>,
    /// True if it is shared and nearly full.
    #[serde(default)]
    pub nearly_exhausted: bool,
    /// The container or process.
    #[serde(flatten)]
    pub tenant: Tenant,
}

impl UsageRow {
    /// Removes everything that identifies the node and the device, for clients that are not authorized to read nodes.
    /// The number of allocated shares is preserved.
    pub fn redact_location(&mut self) {
        for text in [&mut self.node, &mut self.device, &mut self.pci, &mut self.uuid] {
            text.clear();
        }
        for (number, id) in self.tenant.ids.iter_mut().enumerate() {
            *id = ShareId::whole(&number.to_string());
        }
        self.tenant.processes.clear();
    }

    /// Fair share of memory, summed over all allocated IDs.
    pub fn total_fair_share(&self) -> Option<Mebibytes> {
        let allocated = u64::try_from(self.tenant.ids.len()).unwrap_or(u64::MAX);
        let share = self.fair_share?.get().saturating_mul(allocated.max(1));
        Some(Mebibytes::new(share))
    }

    /// Sort key of the rows of a node: equal for the same container and unit.
    pub fn sort_key(&self) -> String {
        let tenant = &self.tenant;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let first = tenant.processes.first().copied().unwrap_or_default();
        format!(
            "{}/{}/{}/{}/{}/{first:010}",
            self.pci,
            self.uuid,
            text(&tenant.namespace),
            text(&tenant.pod),
            text(&tenant.container)
        )
    }
}

/// Creates one row per tenant of the node's devices.
pub fn rows(node: &str, stale: bool, usage: &Usage) -> Vec<UsageRow> {
    let units =
        usage.devices.iter().flat_map(|device| device.units.iter().map(move |unit| (device, unit)));
    let rows = units.flat_map(|(device, unit)| {
        unit.tenants.iter().map(move |tenant| UsageRow {
            node: node.to_owned(),
            stale,
            device: device.name.clone(),
            pci: device.pci.to_string(),
            uuid: unit.uuid.clone(),
            profile: unit.profile.clone(),
            resource: unit.resource.as_ref().map(ResourceName::to_string),
            replicas: unit.replicas,
            fair_share: unit.fair_share,
            total: unit.memory.map(|memory| memory.total),
            nearly_exhausted: unit.is_nearly_exhausted,
            tenant: tenant.clone(),
        })
    });
    rows.collect()
}
