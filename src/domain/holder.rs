//! Who is in the way: whatever uses a device or one of its partitions, with what is known of it.

use crate::domain::id::PciAddress;
use crate::domain::inventory::{Inventory, ProcessKind};

/// A user of a device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// The device.
    pub device: PciAddress,
    /// The GPU instance it runs in, by the driver's id; `None` for the device as a whole.
    pub gpu_instance: Option<u32>,
    /// The compute instance, by the driver's id within the GPU instance.
    pub compute_instance: Option<u32>,
    /// What it is.
    pub who: Who,
}

/// What a user of a device is, with whatever could be found out about it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Who {
    /// Process id in the namespace of the driver's host.
    pub pid: Option<u32>,
    /// What the process uses the device for.
    pub kind: Option<ProcessKind>,
    /// The command with its arguments, as a person would type it.
    pub command: Option<String>,
    /// When the process began, in seconds since 1970.
    pub since: Option<u64>,
    /// The pod it belongs to.
    pub pod: Option<Pod>,
}

/// The pod behind a process. What Kubernetes alone knows is absent where nobody asked it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Pod {
    /// Its UID. Source: the name of its control group, which kubelet makes.
    pub uid: Option<String>,
    /// Its namespace.
    pub namespace: Option<String>,
    /// Its name.
    pub name: Option<String>,
    /// The container's name, or its id where the name is not known.
    pub container: Option<String>,
}

/// Everybody who uses a device of a node: the processes that the driver names.
pub fn of(inventory: &Inventory) -> Vec<Holder> {
    let all = inventory.devices.iter().flat_map(|device| {
        let processes = device.processes.iter();
        processes.map(|process| Holder {
            device: device.pci,
            gpu_instance: process.gpu_instance,
            compute_instance: process.compute_instance,
            who: Who {
                pid: Some(process.pid),
                kind: Some(process.kind),
                ..Who::default()
            },
        })
    });
    all.collect()
}
