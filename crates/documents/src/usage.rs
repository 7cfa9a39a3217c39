//! Usage by pod as JSON: of a node, and as rows across the fleet. Unknown values are omitted.

use octavo_model::id::TypeName;
use octavo_model::quantity::Mebibytes;
use octavo_model::reading::MemoryUse;
use octavo_node::sharing::usage::{DeviceUsage, Tenant, UnitUsage, Usage};
use octavo_node::workload::HoldingCounts;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Who has what of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageJson {
    /// Ordered by address.
    pub devices: Vec<DeviceUsageJson>,
    /// What could not be looked at, so that something is missing here, in words for a person.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

/// Who has what of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeviceUsageJson {
    /// Its PCI address.
    pub pci: String,
    /// What people call it: `GPU 3`.
    pub name: String,
    /// Its memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryUseJson>,
    /// How busy it is, of a hundred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization_percent: Option<u8>,
    /// The whole device, or its partitions.
    pub units: Vec<UnitUsageJson>,
}

/// Memory of a device or partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemoryUseJson {
    /// All there is.
    #[serde(rename = "totalMiB")]
    pub total_mib: u64,
    /// What processes use.
    #[serde(rename = "usedMiB")]
    pub used_mib: u64,
    /// What the driver keeps for itself.
    #[serde(rename = "reservedMiB")]
    pub reserved_mib: u64,
}

/// Who has what of a whole device or of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnitUsageJson {
    /// Its UUID.
    pub uuid: String,
    /// The driver's ids of a partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_instance: Option<u32>,
    /// As `gpuInstance`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_instance: Option<u32>,
    /// What people call the partition: `1g.10gb`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The resource that pods ask for to have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// How many have it by turns; absent where one has it alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    /// How much memory each may use, so that all can. Nobody enforces it.
    #[serde(
        default,
        rename = "fairShareMiB",
        skip_serializing_if = "Option::is_none"
    )]
    pub fair_share_mib: Option<u64>,
    /// Its memory. Partitions of one GPU instance share theirs, and tell the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryUseJson>,
    /// Those who have it.
    pub tenants: Vec<TenantJson>,
    /// What is used and is no tenant's.
    #[serde(
        default,
        rename = "unattributedMiB",
        skip_serializing_if = "Option::is_none"
    )]
    pub unattributed_mib: Option<u64>,
    /// How long the memory lasts if it is used up as fast as of late; absent where that means nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exhausted_in_seconds: Option<u64>,
    /// Whether it is shared and hardly any memory is left.
    #[serde(default)]
    pub nearly_exhausted: bool,
}

/// A container, or a process of none.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TenantJson {
    /// The pod's namespace; absent for who is no pod, or one that kubelet does not name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The pod's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// The beginning of the UID of a pod that kubelet does not name; absent for one that it names, and for who is no pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unnamed_pod: Option<String>,
    /// The container's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// What it was given of the unit; none where it uses it without having been given it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<String>,
    /// Device memory that its processes use.
    #[serde(default, rename = "memoryMiB", skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    /// How busy its processes keep the device, of a hundred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization_percent: Option<u8>,
    /// Some of its processes, by the numbers that the driver names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<u32>,
    /// Whether it uses more than its share.
    #[serde(default)]
    pub over: bool,
}

/// Who uses what over the fleet, ordered as asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageList {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `UsageList`.
    pub kind: String,
    /// Of the fleet; grows with each change.
    pub revision: u64,
    /// Where the next page begins: give it as `continue`. Absent on the last page.
    #[serde(default, rename = "continue", skip_serializing_if = "Option::is_none")]
    pub continue_token: Option<String>,
    /// The containers of this page, once for each unit that they have.
    pub items: Vec<UsageRow>,
}

/// How much of which type each namespace has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageSummary {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `UsageSummary`.
    pub kind: String,
    /// Of the fleet; grows with each change.
    pub revision: u64,
    /// Nodes that were not heard of for too long, and are not counted.
    pub stale_nodes: u64,
    /// Whether the fleet has more than is counted at once.
    pub incomplete: bool,
    /// Ordered by namespace and type.
    pub items: Vec<UsageSum>,
}

/// What the pods of a namespace were given of one type, whether or not they use it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageSum {
    /// The namespace.
    pub namespace: String,
    /// The type; absent for devices that nobody knows.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_name: Option<String>,
    /// How many pods. One that has several types counts with each.
    pub pods: u64,
    /// Whole devices that they have alone.
    pub devices: u64,
    /// MIG partitions that they have alone.
    pub partitions: u64,
    /// Replicas of what is given out by turns.
    pub replicas: u64,
}

impl UsageSum {
    /// Creates the sum from the counted allocations.
    pub fn new(namespace: &str, type_name: Option<&TypeName>, held: HoldingCounts) -> Self {
        Self {
            namespace: namespace.to_owned(),
            type_name: type_name.map(ToString::to_string),
            pods: held.pods,
            devices: held.devices,
            partitions: held.partitions,
            replicas: held.replicas,
        }
    }
}

/// A container, or a process of none, and what it has of one device or partition.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageRow {
    /// The Kubernetes node's name; empty, as device, address and UUID are, for a reader who may not list nodes.
    pub node: String,
    /// Whether the node has not been heard of for too long: what is shown was so then.
    #[serde(default)]
    pub stale: bool,
    /// What people call the device: `GPU 3`.
    pub device: String,
    /// The device's PCI address.
    pub pci: String,
    /// UUID of the device or partition.
    pub uuid: String,
    /// What people call the partition; absent for a whole device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The resource that pods ask for to have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// How many have it by turns; absent where one has it alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    /// How much memory each of them may use, so that all can.
    #[serde(
        default,
        rename = "fairShareMiB",
        skip_serializing_if = "Option::is_none"
    )]
    pub fair_share_mib: Option<u64>,
    /// All memory of the device or partition.
    #[serde(default, rename = "totalMiB", skip_serializing_if = "Option::is_none")]
    pub total_mib: Option<u64>,
    /// Whether it is shared and hardly any of that is left.
    #[serde(default)]
    pub nearly_exhausted: bool,
    /// Who it is.
    #[serde(flatten)]
    pub tenant: TenantJson,
}

impl UsageRow {
    /// Removes everything that identifies the node and the device, for clients that are not authorized to read nodes.
    /// The number of allocated shares is preserved.
    pub fn redact_location(&mut self) {
        for text in [
            &mut self.node,
            &mut self.device,
            &mut self.pci,
            &mut self.uuid,
        ] {
            text.clear();
        }
        for (number, id) in self.tenant.ids.iter_mut().enumerate() {
            *id = number.to_string();
        }
        self.tenant.processes.clear();
    }

    /// Fair share of memory in MiB, summed over all allocated IDs.
    pub fn total_fair_share_mib(&self) -> Option<u64> {
        let given = u64::try_from(self.tenant.ids.len()).unwrap_or(u64::MAX);
        Some(self.fair_share_mib?.saturating_mul(given.max(1)))
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
pub fn rows(node: &str, stale: bool, usage: &UsageJson) -> Vec<UsageRow> {
    let units = usage
        .devices
        .iter()
        .flat_map(|device| device.units.iter().map(move |unit| (device, unit)));
    let rows = units.flat_map(|(device, unit)| {
        unit.tenants.iter().map(move |tenant| UsageRow {
            node: node.to_owned(),
            stale,
            device: device.name.clone(),
            pci: device.pci.clone(),
            uuid: unit.uuid.clone(),
            profile: unit.profile.clone(),
            resource: unit.resource.clone(),
            replicas: unit.replicas,
            fair_share_mib: unit.fair_share_mib,
            total_mib: unit.memory.map(|memory| memory.total_mib),
            nearly_exhausted: unit.nearly_exhausted,
            tenant: tenant.clone(),
        })
    });
    rows.collect()
}

impl From<&Usage> for UsageJson {
    fn from(usage: &Usage) -> Self {
        Self {
            devices: usage.devices.iter().map(DeviceUsageJson::from).collect(),
            missing: usage.missing.clone(),
        }
    }
}

impl From<&DeviceUsage> for DeviceUsageJson {
    fn from(device: &DeviceUsage) -> Self {
        Self {
            pci: device.pci.to_string(),
            name: device.name.clone(),
            memory: device.memory.map(MemoryUseJson::from),
            utilization_percent: device.utilization.map(|percent| percent.0),
            units: device.units.iter().map(UnitUsageJson::from).collect(),
        }
    }
}

impl From<MemoryUse> for MemoryUseJson {
    fn from(memory: MemoryUse) -> Self {
        Self {
            total_mib: memory.total.get(),
            used_mib: memory.used.get(),
            reserved_mib: memory.reserved.get(),
        }
    }
}

impl From<&UnitUsage> for UnitUsageJson {
    fn from(unit: &UnitUsage) -> Self {
        Self {
            uuid: unit.uuid.clone(),
            gpu_instance: unit.partition.map(|(gpu_instance, _)| gpu_instance),
            compute_instance: unit.partition.map(|(_, compute_instance)| compute_instance),
            profile: unit.profile.clone(),
            resource: unit.resource.as_ref().map(ToString::to_string),
            replicas: unit.replicas,
            fair_share_mib: unit.fair_share.map(Mebibytes::get),
            memory: unit.memory.map(MemoryUseJson::from),
            tenants: unit.tenants.iter().map(TenantJson::from).collect(),
            unattributed_mib: unit.unattributed.map(Mebibytes::get),
            exhausted_in_seconds: unit.exhausted_in,
            nearly_exhausted: unit.is_nearly_exhausted,
        }
    }
}

/// Omits the full UID of a pod, which is disclosed only to clients that can read the pod.
impl From<&Tenant> for TenantJson {
    fn from(tenant: &Tenant) -> Self {
        Self {
            namespace: tenant.namespace.clone(),
            pod: tenant.pod.clone(),
            unnamed_pod: tenant.unnamed_pod_uid(),
            container: tenant.container.clone(),
            ids: tenant.ids.iter().map(ToString::to_string).collect(),
            memory_mib: tenant.memory.map(Mebibytes::get),
            utilization_percent: tenant.utilization.map(|percent| percent.0),
            processes: tenant.processes.clone(),
            over: tenant.is_over_share,
        }
    }
}
