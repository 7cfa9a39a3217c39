//! Links of a device.

use super::Device;
use crate::id::PciAddress;

/// Active NVLink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NvLink {
    /// Link number on the device.
    pub link: u32,
    /// Remote end.
    pub remote: LinkRemote,
}

/// Remote end of an NVLink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkRemote {
    /// Another GPU.
    Device(PciAddress),
    /// An NVSwitch.
    Switch(PciAddress),
    /// An NVSwitch that is not on this machine's PCI bus: NVML reports no address for it.
    HiddenSwitch,
    /// Kind not reported (a CPU's bridge, or a guest that hides it).
    Unknown,
}

/// Membership of an NVLink fabric. Source: `nvmlDeviceGetGpuFabricInfoV`, state completed and status success only.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fabric {
    /// UUID of the fabric, in lower case with hyphens.
    pub cluster_uuid: String,
    /// Clique within the fabric.
    pub clique_id: u32,
}

/// Group of GPUs that reach each other through an NVSwitch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SwitchGroup<'a> {
    /// GPUs on this switch.
    Switch(PciAddress),
    /// GPUs of a fabric behind hidden switches.
    Fabric(&'a Fabric),
    /// GPUs of a [`Device::p2p_group`] behind hidden switches.
    P2p(u32),
}

impl Device {
    /// Group that a link to `remote` makes the device a member of; `None` if the remote end is no switch, or if NVML
    /// hides the switches and does not report which GPUs they connect.
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

    /// Returns `true` if it has a link to a switch whose address NVML hides.
    pub fn has_hidden_switch(&self) -> bool {
        let mut links = self.links.iter();
        links.any(|link| link.remote == LinkRemote::HiddenSwitch)
    }
}
