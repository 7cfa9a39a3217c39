//! Usage by pod: allocations, memory and utilization.
//!
//! Three independent sources are joined: kubelet reports the ids allocated to each container, the driver the memory
//! of each process and instance, the kernel the container of each process. Nothing is attributed twice; what cannot
//! be attributed is reported separately. The types are also the documents of the REST API and of the agent's socket.

use std::collections::BTreeSet;
use std::fmt;

use octavo_model::id::PciAddress;
use octavo_model::quantity::Mebibytes;
use octavo_model::reading::{MemoryUse, Percent};
use octavo_model::resource::{ResourceName, ShareId};
use serde::{Deserialize, Deserializer, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

/// Usage of a node by pod.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Usage {
    /// Ordered by address.
    pub devices: Vec<DeviceUsage>,
    /// Human-readable descriptions of missing data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// True if kubelet's list of allocations is not available, so that a device without a tenant may be allocated.
    #[serde(default, rename = "allocationsUnknown", skip_serializing_if = "std::ops::Not::not")]
    pub are_allocations_unknown: bool,
}

/// Usage from a time on, which an aggregator may not have stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastUsage {
    /// Time in seconds since 1970.
    pub at: i64,
    /// The devices whose allocations have changed since the usage before it; all devices in the first one.
    pub usage: Usage,
}

/// End of the description of an allocation whose device is unknown.
pub(super) const UNASSIGNED: &str = "which matches no device of this node";
/// End of the description of a device of which not all tenants are listed.
pub const MORE_TENANTS: &str = "more tenants are not listed";

/// Usage of a device by pod.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeviceUsage {
    /// PCI address of the device.
    #[schema(value_type = String)]
    pub pci: PciAddress,
    /// Display name: `GPU 3`.
    pub name: String,
    /// Its memory; absent if the driver does not report it.
    pub memory: Option<MemoryUse>,
    /// Its utilization; absent if the driver does not report it, as for devices in MIG mode.
    #[serde(rename = "utilizationPercent")]
    #[schema(value_type = Option<u8>)]
    pub utilization: Option<Percent>,
    /// Its power draw in watts; absent if the driver does not report it.
    #[serde(rename = "powerWatts")]
    pub power_watts: Option<u32>,
    /// Its temperature in degrees Celsius; absent if the driver does not report it.
    #[serde(rename = "temperatureCelsius")]
    pub temperature_celsius: Option<u32>,
    /// The whole device, or its partitions.
    pub units: Vec<UnitUsage>,
}

/// Usage of a unit by pod: of a whole device or of a partition.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnitUsage {
    /// UUID of the device or partition.
    pub uuid: String,
    /// GPU instance of a partition, by the driver's id.
    pub gpu_instance: Option<u32>,
    /// Compute instance of a partition, by the driver's id.
    pub compute_instance: Option<u32>,
    /// Profile name of the partition: `1g.10gb`.
    pub profile: Option<String>,
    /// The resource under which it is offered; absent if it is not known.
    #[schema(value_type = Option<String>)]
    pub resource: Option<ResourceName>,
    /// Number of replicas; absent if it is not shared.
    pub replicas: Option<u32>,
    /// Memory that each replica can use so that all of them can. It is not enforced.
    #[serde(rename = "fairShareMiB")]
    #[schema(value_type = Option<u64>)]
    pub fair_share: Option<Mebibytes>,
    /// Its memory. Partitions of one GPU instance share theirs, and report the same.
    pub memory: Option<MemoryUse>,
    /// Utilization of a partition's GPU instance, in percent of it; compute instances of one GPU instance report the same.
    /// Absent for whole devices and if the driver does not report it, as before Hopper.
    #[serde(rename = "utilizationPercent")]
    #[schema(value_type = Option<u8>)]
    pub utilization: Option<Percent>,
    /// Its tenants, sorted by memory in descending order, then by name.
    pub tenants: Vec<Tenant>,
    /// Used memory that belongs to no tenant; absent if unknown.
    #[serde(rename = "unattributedMiB")]
    #[schema(value_type = Option<u64>)]
    pub unattributed: Option<Mebibytes>,
    /// Seconds until memory is exhausted at its recent growth rate; absent if it cannot be estimated.
    #[serde(rename = "exhaustedInSeconds")]
    pub exhausted_in: Option<u64>,
    /// True if the unit is shared and, according to the guard, nearly full: further allocations fail.
    #[serde(default, rename = "nearlyExhausted")]
    pub is_nearly_exhausted: bool,
}

/// A container, or a process outside any container.
#[skip_serializing_none]
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct Tenant {
    /// The pod's namespace; absent for a process outside any pod, or a pod that kubelet does not report.
    pub namespace: Option<String>,
    /// The pod's name.
    pub pod: Option<String>,
    /// The pod's UID. It is part of no document, because only clients that can read the pod may see it.
    #[serde(skip)]
    pub uid: Option<String>,
    /// The beginning of the UID of a pod that kubelet does not report by name; absent for a pod with a name, and for a
    /// process outside any pod.
    pub unnamed_pod: Option<String>,
    /// The container's name.
    pub container: Option<String>,
    /// Name of the resource claim that was allocated the unit, in the pod's namespace; absent for a resource of a device
    /// plugin.
    pub claim: Option<String>,
    /// Its allocated ids of the unit; absent if it uses the unit without an allocation. Numbers for readers who may not
    /// list nodes.
    #[serde(default, deserialize_with = "read_ids", skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub ids: Vec<ShareId>,
    /// Device memory used by its processes; absent if unknown: the driver does not report it, processes are not
    /// visible, or its processes cannot be distinguished from others.
    #[serde(rename = "memoryMiB")]
    #[schema(value_type = Option<u64>)]
    pub memory: Option<Mebibytes>,
    /// Utilization by its processes; absent if the driver does not report it. On a partition, it is known if the tenant
    /// is the only one of the GPU instance.
    #[serde(rename = "utilizationPercent")]
    #[schema(value_type = Option<u8>)]
    pub utilization: Option<Percent>,
    /// Its process ids, as reported by the driver.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<u32>,
    /// True if it exceeds its fair share.
    #[serde(default, rename = "over")]
    pub is_over_share: bool,
}

/// Number of UID characters that identify a pod within its node.
const SHORT_UID_CHARS: usize = 8;

/// Reads ids, and the numbers that replace them for readers who may not list nodes.
fn read_ids<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ShareId>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    let id = |text: &String| text.parse().unwrap_or_else(|_| ShareId::whole(text));
    Ok(texts.iter().map(id).collect())
}

impl Usage {
    /// Returns why a device without a tenant may be allocated; `None` if every allocation is listed with its device.
    pub fn incompleteness(&self) -> Option<String> {
        if self.are_allocations_unknown {
            return Some("the allocations of devices to pods are unknown".to_owned());
        }
        // Too many descriptions end with the number of those that are left out.
        let is_more = |text: &str| text.starts_with("and ") && text.ends_with(" more");
        let is_about_tenants = |text: &&String| {
            text.ends_with(UNASSIGNED) || text.ends_with(MORE_TENANTS) || is_more(text)
        };
        self.missing.iter().find(is_about_tenants).cloned()
    }
}

impl Usage {
    /// Returns the allocated devices and partitions, such as `GPU 0 gi 7 (1g.10gb)`, with the pods that they are allocated
    /// to.
    pub fn allocations(&self) -> impl Iterator<Item = (String, BTreeSet<String>)> {
        let units = self.devices.iter();
        let units = units.flat_map(|device| device.units.iter().map(move |unit| (device, unit)));
        units.filter_map(|(device, unit)| {
            let tenants = unit.allocated_tenants();
            let pods: BTreeSet<String> = tenants.map(Tenant::with_claim).collect();
            let instance = unit.gpu_instance.map(|id| format!(" gi {id}")).unwrap_or_default();
            let profile = unit.profile.as_ref().map(|name| format!(" ({name})"));
            let name = format!("{}{instance}{}", device.name, profile.unwrap_or_default());
            (!pods.is_empty()).then_some((name, pods))
        })
    }
}

impl UnitUsage {
    /// Its tenants with an allocation.
    pub fn allocated_tenants(&self) -> impl Iterator<Item = &Tenant> {
        self.tenants.iter().filter(|tenant| !tenant.ids.is_empty())
    }

    /// Returns whether the tenant holds replicas of the unit. With NVIDIA's plugin, this may be known from the ids only.
    pub fn is_time_sliced(&self, tenant: &Tenant) -> bool {
        self.replicas.is_some() || tenant.ids.iter().any(|id| id.number().is_some())
    }

    /// GPU instance and compute instance of a partition.
    pub fn partition(&self) -> Option<(u32, u32)> {
        self.gpu_instance.zip(self.compute_instance)
    }
}

impl Tenant {
    /// Sets the pod's UID, after its name.
    #[must_use]
    pub fn with_uid(mut self, uid: Option<String>) -> Self {
        self.uid = uid;
        self.unnamed_pod = self.short_uid().filter(|_| self.pod.is_none());
        self
    }

    /// Returns whether it has no process, so that it cannot use memory: all have ended, or none has started.
    pub fn is_without_process(&self) -> bool {
        self.processes.is_empty() && self.memory.is_some_and(|used| used.get() == 0)
    }

    /// Namespace and name of the pod, and the resource claim: `team/train-0 (resource claim train)`.
    fn with_claim(&self) -> String {
        match &self.claim {
            Some(claim) if self.pod.is_some() => format!("{self} (resource claim {claim})"),
            Some(_) | None => self.to_string(),
        }
    }

    /// The shortened UID of its pod, if known: sufficient to distinguish it from an earlier pod of the same name.
    pub fn short_uid(&self) -> Option<String> {
        let uid = self.uid.as_deref()?;
        Some(uid.chars().take(SHORT_UID_CHARS).collect())
    }
}

/// Formats the namespace and name of the pod, or what is known about a tenant without one.
impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.namespace, &self.pod, &self.unnamed_pod) {
            (Some(namespace), Some(pod), _) => write!(f, "{namespace}/{pod}"),
            (None, Some(pod), _) => f.write_str(pod),
            (_, None, Some(uid)) => write!(f, "(unnamed pod: uid {uid})"),
            (namespace, None, None) => match (namespace, &self.claim, self.processes.first()) {
                (Some(namespace), Some(claim), _) => {
                    write!(f, "(resource claim {namespace}/{claim})")
                }
                (_, _, Some(pid)) => write!(f, "(no pod: pid {pid})"),
                (_, _, None) => f.write_str("(no pod)"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uid_of_named_pod_is_in_no_document() {
        let uid = Some("7d1c5a3e-1111-2222-3333-444455556666".to_owned());
        let unnamed = Tenant::default().with_uid(uid.clone());
        let named = Tenant { pod: Some("a".to_owned()), ..Tenant::default() };
        let text = |tenant: &Tenant| serde_json::to_string(tenant).unwrap();
        assert_eq!(text(&unnamed), r#"{"unnamedPod":"7d1c5a3e","over":false}"#);
        assert_eq!(text(&named.with_uid(uid)), r#"{"pod":"a","over":false}"#);
    }

    #[test]
    fn unknown_unassigned_and_omitted_allocations_are_incomplete() {
        let of = |texts: &[&str]| {
            let missing = texts.iter().map(|text| (*text).to_owned()).collect();
            Usage { missing, ..Usage::default() }.incompleteness()
        };
        assert_eq!(of(&["GPU 0: the driver does not report its memory"]), None);
        for text in [
            "pod n/z was allocated nvidia.com/gpu 0, which matches no device of this node",
            "GPU 0: 3 more tenants are not listed",
            "and 3 more",
        ] {
            assert_eq!(of(&["other", text]).as_deref(), Some(text));
        }
        let unknown = Usage { are_allocations_unknown: true, ..Usage::default() };
        assert!(unknown.incompleteness().is_some());
    }

    #[test]
    fn hidden_ids_are_read() {
        let text = r#"{"ids":["0","1"],"over":false}"#;
        let tenant: Tenant = serde_json::from_str(text).unwrap();
        assert_eq!(tenant.ids, ["0", "1"].map(ShareId::whole));
        assert_eq!(serde_json::to_string(&tenant).unwrap(), text);
    }
}
