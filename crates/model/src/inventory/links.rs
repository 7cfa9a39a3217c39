//! Links of a device.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use thiserror::Error;
use utoipa::ToSchema;

use super::Device;
use crate::id::PciAddress;

/// Active NVLink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "NvLinkDocument", into = "NvLinkDocument")]
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
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fabric {
    /// UUID of the fabric, in lower case with hyphens.
    pub cluster_uuid: String,
    /// Clique within the fabric.
    pub clique_id: u32,
}

/// JSON shape of [`NvLink`]: the kind of the remote end, and its address beside it.
#[skip_serializing_none]
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = Link)]
pub(super) struct NvLinkDocument {
    /// Link number on the device.
    link: u32,
    remote: RemoteKind,
    /// Present for a device and a switch only.
    #[schema(value_type = Option<String>)]
    remote_pci: Option<PciAddress>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Remote)]
enum RemoteKind {
    Device,
    Switch,
    /// An NVSwitch that is not on the PCI bus: NVML reports no address for it.
    HiddenSwitch,
    Unknown,
}

/// Contradiction in a link.
#[derive(Debug, Error)]
pub(super) enum LinkError {
    #[error("remotePci is missing, but the remote end of the link is a device or a switch")]
    RemoteMissing,
    #[error("remotePci is set, but the remote end of the link has no address")]
    UnexpectedRemote,
}

impl TryFrom<NvLinkDocument> for NvLink {
    type Error = LinkError;

    fn try_from(document: NvLinkDocument) -> Result<Self, LinkError> {
        let remote = match (document.remote, document.remote_pci) {
            (RemoteKind::Device, Some(pci)) => LinkRemote::Device(pci),
            (RemoteKind::Switch, Some(pci)) => LinkRemote::Switch(pci),
            (RemoteKind::HiddenSwitch, None) => LinkRemote::HiddenSwitch,
            (RemoteKind::Unknown, None) => LinkRemote::Unknown,
            (RemoteKind::Device | RemoteKind::Switch, None) => {
                return Err(LinkError::RemoteMissing);
            }
            (RemoteKind::HiddenSwitch | RemoteKind::Unknown, Some(_)) => {
                return Err(LinkError::UnexpectedRemote);
            }
        };
        let link = document.link;
        Ok(Self { link, remote })
    }
}

impl From<NvLink> for NvLinkDocument {
    fn from(NvLink { link, remote }: NvLink) -> Self {
        let (remote, remote_pci) = match remote {
            LinkRemote::Device(pci) => (RemoteKind::Device, Some(pci)),
            LinkRemote::Switch(pci) => (RemoteKind::Switch, Some(pci)),
            LinkRemote::HiddenSwitch => (RemoteKind::HiddenSwitch, None),
            LinkRemote::Unknown => (RemoteKind::Unknown, None),
        };
        Self { link, remote, remote_pci }
    }
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
