//! Who has what, and how much of it.
//!
//! Three that do not know each other are joined: kubelet knows which container was given which ids, the driver which process uses
//! how much memory of which instance, the kernel which process is of which container. Nothing is attributed twice; what cannot be
//! attributed is a number of its own and not somebody's.

use super::resource::{ResourceName, ShareId};
use crate::domain::id::PciAddress;
use crate::domain::quantity::Mebibytes;

/// Who has what of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Usage {
    /// In the order of their addresses.
    pub devices: Vec<DeviceUsage>,
    /// What could not be looked at, so that something is missing here, in words for a person.
    pub missing: Vec<String>,
}

/// Who has what of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceUsage {
    /// The device.
    pub pci: PciAddress,
    /// What people call it: `GPU 3`.
    pub name: String,
    /// Its memory; `None` where the driver does not tell.
    pub memory: Option<MemoryUse>,
    /// How busy it is; `None` where the driver does not tell, as of devices in MIG mode.
    pub utilization: Option<Percent>,
    /// The whole device, or its partitions.
    pub units: Vec<UnitUsage>,
}

/// Memory of a device or partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryUse {
    /// All there is.
    pub total: Mebibytes,
    /// What processes use.
    pub used: Mebibytes,
    /// What the driver keeps for itself.
    pub reserved: Mebibytes,
}

/// A part of a hundred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Percent(pub u8);

/// Who has what of a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitUsage {
    /// UUID of the device or partition.
    pub uuid: String,
    /// GPU instance and compute instance of a partition.
    pub partition: Option<(u32, u32)>,
    /// What people call the partition: `1g.10gb`.
    pub profile: Option<String>,
    /// The resource that it is given out as; `None` where nobody knows of one.
    pub resource: Option<ResourceName>,
    /// How many have it by turns; `None` where one has it alone.
    pub replicas: Option<u32>,
    /// How much memory each may use, so that all can.
    pub fair_share: Option<Mebibytes>,
    /// Its memory. Partitions of one GPU instance share theirs, and tell the same.
    pub memory: Option<MemoryUse>,
    /// Those who have it, the one that uses most memory first, then by name.
    pub tenants: Vec<Tenant>,
    /// What is used and is no tenant's; `None` where it is not known.
    pub unattributed: Option<Mebibytes>,
    /// How long the memory lasts if it is used up as fast as of late, in seconds; `None` where that means nothing.
    pub exhausted_in: Option<u64>,
    /// Whether it is shared and hardly any memory is left, as the guard says: whoever asks for more fails next.
    pub is_nearly_exhausted: bool,
}

/// A container, or a process of none.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Tenant {
    /// The pod's namespace; `None` for who is no pod, or one that kubelet does not name.
    pub namespace: Option<String>,
    /// The pod's name.
    pub pod: Option<String>,
    /// The pod's UID.
    pub uid: Option<String>,
    /// The container's name.
    pub container: Option<String>,
    /// What it was given of the unit; none where it uses it without having been given it.
    pub ids: Vec<ShareId>,
    /// Device memory that its processes use; `None` where that is not known: the driver does not tell, nobody may look
    /// at processes, or nothing tells its processes from others'.
    pub memory: Option<Mebibytes>,
    /// How busy its processes keep the device; `None` where the driver does not tell.
    pub utilization: Option<Percent>,
    /// Its processes, by the numbers that the driver names.
    pub processes: Vec<u32>,
    /// Whether it uses more than its share.
    pub is_over: bool,
}

/// Characters of a UID that tell a pod from the others of its node.
const SHORT_UID: usize = 8;

impl Tenant {
    /// The beginning of the UID of a pod that kubelet does not name; `None` for one that it names, and for who is no pod.
    pub fn unnamed(&self) -> Option<String> {
        self.short_uid().filter(|_| self.pod.is_none())
    }

    /// The beginning of its pod's UID, where that is known: enough to tell it from an earlier pod of the same name.
    pub fn short_uid(&self) -> Option<String> {
        let uid = self.uid.as_deref()?;
        Some(uid.chars().take(SHORT_UID).collect())
    }
}
