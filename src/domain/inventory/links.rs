//! What a device is wired to.

use super::Device;
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
    /// An NVSwitch that is not on this machine's PCI bus: NVML reports no address for it.
    HiddenSwitch,
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

/// What GPUs have in common that reach each other through an NVSwitch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SwitchGroup<'a> {
    /// A switch.
    Switch(PciAddress),
    /// A fabric, behind hidden switches.
    Fabric(&'a Fabric),
    /// A [`Device::p2p_group`], behind hidden switches.
    P2p(u32),
}

impl Device {
    /// The group that a link to `remote` makes the device a member of; `None` where that is no switch, or where NVML hides the switches
    /// and does not report which GPUs they connect.
    pub fn switch_group(&self, remote: LinkRemote) -> Option<SwitchGroup<'_>> {
        match remote {
            LinkRemote::Switch(address) => Some(SwitchGroup::Switch(address)),
            LinkRemote::HiddenSwitch => {
                let fabric = self.fabric.as_ref().map(SwitchGroup::Fabric);
                fabric.or_else(|| self.p2p_group.map(SwitchGroup::P2p))
            }
            LinkRemote::Device(_) | LinkRemote::Unknown => None,
        }
    }

    /// Whether it has a link to a switch whose address NVML hides.
    pub fn has_hidden_switch(&self) -> bool {
        let mut links = self.links.iter();
        links.any(|link| link.remote == LinkRemote::HiddenSwitch)
    }
}
