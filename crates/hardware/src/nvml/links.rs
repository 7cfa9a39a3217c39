//! The `NVLinks` of a device and their remote ends.

use std::collections::BTreeMap;

use nvml_wrapper_sys::bindings::{
    nvmlGpuP2PCapsIndex_enum_NVML_P2P_CAPS_INDEX_NVLINK as P2P_NVLINK,
    nvmlGpuP2PStatus_enum_NVML_P2P_STATUS_OK as P2P_OK,
    nvmlGpuP2PStatus_enum_NVML_P2P_STATUS_UNKNOWN as P2P_UNKNOWN,
    nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_GPU as GPU,
    nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_SWITCH as SWITCH,
};
use octavo_model::id::PciAddress;
use octavo_model::inventory::{Device, LinkRemote, NvLink, ReadProblem};

use crate::error::{DriverError, NvmlCode};
use crate::nvml::session::{DeviceHandle, DeviceSession, Session, optional, raw};

/// Upper bound of link numbers, in case the driver reports no end.
const MAX_LINKS: u32 = 64;

/// PCI device and vendor IDs of `NVSwitches`, for drivers that do not report the type of the remote end.
const SWITCH_IDS: [u32; 2] = [0x1af1_10de, 0x22a3_10de];

/// Cached link data. The set of links is constant, and the remote end is constant while a link stays up. The link state
/// is read every time.
#[derive(Debug, Default)]
pub(super) struct Links {
    present: Option<Vec<u32>>,
    remotes: BTreeMap<u32, LinkRemote>,
}

impl Links {
    /// Returns the active links, ordered by number.
    pub(super) fn read(
        &mut self,
        gpu: DeviceSession<'_>,
        problems: &mut Vec<ReadProblem>,
    ) -> Result<Vec<NvLink>, DriverError> {
        let queried = self.present.clone().unwrap_or_else(|| (0..MAX_LINKS).collect());
        let mut present = Vec::new();
        let mut links = Vec::new();
        let problems_before = problems.len();
        for link in queried {
            let result = gpu.query("nvmlDeviceGetNvLinkState", |device| {
                device.link_wrapper_for(link).is_active()
            });
            if matches!(&result, Err(error) if error.is(NvmlCode::INVALID_ARGUMENT)) {
                break;
            }
            let Some(active) = optional(result, problems)? else {
                continue;
            };
            present.push(link);
            if active {
                let remote = self.remote(gpu, link, problems)?;
                links.push(NvLink { link, remote });
            } else {
                self.remotes.remove(&link);
            }
        }
        // A link that did not respond may exist, so the set of links is read again.
        if problems.len() == problems_before {
            self.present.get_or_insert(present);
        }
        Ok(links)
    }

    fn remote(
        &mut self,
        gpu: DeviceSession<'_>,
        link: u32,
        problems: &mut Vec<ReadProblem>,
    ) -> Result<LinkRemote, DriverError> {
        if let Some(known) = self.remotes.get(&link) {
            return Ok(*known);
        }
        let remote = ask_remote(gpu, link, problems)?;
        // An unknown remote end may become known once the fabric is trained.
        if remote != LinkRemote::Unknown {
            self.remotes.insert(link, remote);
        }
        Ok(remote)
    }
}

/// Reads the type first: for switches that are not on the PCI bus, NVML returns `FFFFFFFF:FF:FF.0` as their address.
fn ask_remote(
    gpu: DeviceSession<'_>,
    link: u32,
    problems: &mut Vec<ReadProblem>,
) -> Result<LinkRemote, DriverError> {
    let mut number = u32::MAX;
    // SAFETY: the handle comes from this library, and `number` is writable until the call returns.
    let result = raw!(gpu, nvmlDeviceGetNvLinkRemoteDeviceType, |f| unsafe {
        f(gpu.handle.0, link, &raw mut number)
    });
    let kind = optional(result, problems)?.map(|()| number);
    let pci = gpu.query("nvmlDeviceGetNvLinkRemotePciInfo_v2", |device| {
        device.link_wrapper_for(link).remote_pci_info()
    });
    let pci = optional(pci, problems)?;
    let address = pci.as_ref().and_then(|pci| pci.bus_id.parse().ok());
    let has_switch_id = pci.is_some_and(|pci| SWITCH_IDS.contains(&pci.pci_device_id));
    let is_switch = match kind {
        Some(SWITCH) => true,
        Some(GPU) => false,
        Some(_) => return Ok(LinkRemote::Unknown),
        // Drivers without the call: switches are identified by their PCI IDs.
        None => has_switch_id,
    };
    Ok(match (is_switch, address) {
        (true, Some(address)) => LinkRemote::Switch(address),
        (true, None) => LinkRemote::HiddenSwitch,
        (false, Some(address)) => LinkRemote::Device(address),
        (false, None) => LinkRemote::Unknown,
    })
}

/// Numbers the groups of GPUs that reach each other through hidden switches if no fabric identifies the groups.
///
/// In a guest, GPUs behind the same switches can be in different partitions, which have no peer-to-peer access to each
/// other. A switch connects every pair within a partition, so each GPU is compared only with the first one of each
/// group.
pub(super) fn group_by_p2p(
    session: Session<'_>,
    handles: &[(PciAddress, DeviceHandle)],
    devices: &mut [Device],
) -> Result<(), DriverError> {
    let mut hidden: Vec<&mut Device> = devices
        .iter_mut()
        .filter(|device| device.has_hidden_switch() && device.fabric.is_none())
        .collect();
    // NVML's order changes between drivers and reboots, but the numbers must not.
    hidden.sort_by_key(|device| device.pci);
    let mut groups: Vec<DeviceHandle> = Vec::new();
    for device in hidden {
        let Some((_, handle)) = handles.iter().find(|(pci, _)| *pci == device.pci) else {
            continue;
        };
        let gpu = session.for_device(device.pci).with_handle(*handle);
        device.p2p_group = group_of(gpu, &mut groups, &mut device.problems)?;
    }
    Ok(())
}

/// Returns the group number of `gpu`, a new one if it reaches no other group; `None` if NVML does not report it.
fn group_of(
    gpu: DeviceSession<'_>,
    groups: &mut Vec<DeviceHandle>,
    problems: &mut Vec<ReadProblem>,
) -> Result<Option<u32>, DriverError> {
    let mut number = 0;
    for first in groups.iter() {
        let mut status = P2P_UNKNOWN;
        // SAFETY: the handles come from this library, and `status` is writable until the call returns.
        let result = raw!(gpu, nvmlDeviceGetP2PStatus, |f| unsafe {
            f(first.0, gpu.handle.0, P2P_NVLINK, &raw mut status)
        });
        let status = optional(result, problems)?.map(|()| status);
        match status.filter(|status| *status != P2P_UNKNOWN) {
            Some(P2P_OK) => return Ok(Some(number)),
            Some(_) => number += 1,
            None => return Ok(None),
        }
    }
    groups.push(gpu.handle);
    Ok(Some(number))
}
