//! Usage by pod: allocations, memory and utilization.
//!
//! Three independent sources are joined: kubelet reports the ids allocated to each container, the driver the memory
//! of each process and instance, the kernel the container of each process. Nothing is attributed twice; what cannot
//! be attributed is reported separately.

use octavo_model::id::PciAddress;
use octavo_model::quantity::Mebibytes;
use octavo_model::reading::{MemoryUse, Percent};
use octavo_model::resource::{ResourceName, ShareId};

/// Usage of a node by pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Usage {
    /// Ordered by address.
    pub devices: Vec<DeviceUsage>,
    /// Human-readable descriptions of missing data.
    pub missing: Vec<String>,
}

/// Usage of a device by pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceUsage {
    /// The device.
    pub pci: PciAddress,
    /// Display name: `GPU 3`.
    pub name: String,
    /// Its memory; `None` if the driver does not report it.
    pub memory: Option<MemoryUse>,
    /// Its utilization; `None` if the driver does not report it, as for devices in MIG mode.
    pub utilization: Option<Percent>,
    /// The whole device, or its partitions.
    pub units: Vec<UnitUsage>,
}

/// Usage of a unit by pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitUsage {
    /// UUID of the device or partition.
    pub uuid: String,
    /// GPU instance and compute instance of a partition.
    pub partition: Option<(u32, u32)>,
    /// Profile name of the partition: `1g.10gb`.
    pub profile: Option<String>,
    /// The resource under which it is offered; `None` if it is not known.
    pub resource: Option<ResourceName>,
    /// Number of replicas; `None` if it is not shared.
    pub replicas: Option<u32>,
    /// Memory that each replica can use so that all of them can.
    pub fair_share: Option<Mebibytes>,
    /// Its memory. Partitions of one GPU instance share theirs, and report the same.
    pub memory: Option<MemoryUse>,
    /// Its tenants, sorted by memory in descending order, then by name.
    pub tenants: Vec<Tenant>,
    /// Used memory that belongs to no tenant; `None` if unknown.
    pub unattributed: Option<Mebibytes>,
    /// Seconds until memory is exhausted at its recent growth rate; `None` if it cannot be estimated.
    pub exhausted_in: Option<u64>,
    /// True if the unit is shared and, according to the guard, nearly full: further allocations fail.
    pub is_nearly_exhausted: bool,
}

/// A container, or a process outside any container.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Tenant {
    /// The pod's namespace; `None` for a process outside any pod, or a pod that kubelet does not report.
    pub namespace: Option<String>,
    /// The pod's name.
    pub pod: Option<String>,
    /// The pod's UID.
    pub uid: Option<String>,
    /// The container's name.
    pub container: Option<String>,
    /// Its allocated ids of the unit; empty if it uses the unit without an allocation.
    pub ids: Vec<ShareId>,
    /// Device memory used by its processes; `None` if unknown: the driver does not report it, processes are not
    /// visible, or its processes cannot be distinguished from others.
    pub memory: Option<Mebibytes>,
    /// Utilization by its processes; `None` if the driver does not report it.
    pub utilization: Option<Percent>,
    /// Its process ids, as reported by the driver.
    pub processes: Vec<u32>,
    /// True if it exceeds its fair share.
    pub is_over_share: bool,
}

/// Number of UID characters that identify a pod within its node.
const SHORT_UID_CHARS: usize = 8;

impl Tenant {
    /// The shortened UID of a pod that kubelet does not report by name; `None` for a pod with a name, and for a
    /// process outside any pod.
    pub fn unnamed_pod_uid(&self) -> Option<String> {
        self.short_uid().filter(|_| self.pod.is_none())
    }

    /// The shortened UID of its pod, if known: sufficient to distinguish it from an earlier pod of the same name.
    pub fn short_uid(&self) -> Option<String> {
        let uid = self.uid.as_deref()?;
        Some(uid.chars().take(SHORT_UID_CHARS).collect())
    }
}
