//! What a device is wired to.

use crate::domain::id::PciAddress;

/// An active NVLink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NvLink {
    /// The link's number on the device.
    pub link: u32,
    /// What is at its other end.
    pub remote: LinkRemote,
}

/// The far end of an NVLink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkRemote {
    /// Another GPU.
    Device(PciAddress),
    /// An NVSwitch.
    Switch(PciAddress),
    /// A kind that was not told (a CPU's bridge, or a guest that hides it).
    Unknown,
}

/// Membership of an NVLink fabric. Source: `nvmlDeviceGetGpuFabricInfoV`, state completed and status success only.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fabric {
    /// The fabric's UUID, lower case with hyphens.
    pub cluster_uuid: String,
    /// The clique within it.
    pub clique_id: u32,
}
