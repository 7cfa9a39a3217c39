//! The `NVLinks` of a device and what is at their other ends.

use std::collections::BTreeMap;

use nvml_wrapper_sys::bindings::{
    nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_GPU as GPU,
    nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_SWITCH as SWITCH,
};

use crate::domain::inventory::{LinkRemote, NvLink, Problem};
use crate::hw::error::{Code, DriverError};
use crate::hw::nvml::session::{DeviceHandle, Session, optional, raw};

/// Link numbers end where the driver says so; this is where we stop believing that it will.
const LAST_LINK: u32 = 64;

/// `NVSwitches` by PCI device and vendor id, for drivers that do not tell the kind of the far end.
const SWITCH_IDS: [u32; 2] = [0x1af1_10de, 0x22a3_10de];

/// What is known of a device's links. Which ones it has never changes, and what is at the other end does not while a
/// link stays up; whether it is up is asked every time.
#[derive(Debug, Default)]
pub(super) struct Links {
    present: Option<Vec<u32>>,
    remotes: BTreeMap<u32, LinkRemote>,
}

impl Links {
    /// The active links, ordered by number.
    pub(super) fn read(
        &mut self,
        session: Session<'_>,
        device: DeviceHandle,
        problems: &mut Vec<Problem>,
    ) -> Result<Vec<NvLink>, DriverError> {
        let asked = self
            .present
            .clone()
            .unwrap_or_else(|| (0..LAST_LINK).collect());
        let mut present = Vec::new();
        let mut links = Vec::new();
        let problems_before = problems.len();
        for link in asked {
            let wrapped = session.device(device);
            let answer = session.wrapped("nvmlDeviceGetNvLinkState", || {
                wrapped.link_wrapper_for(link).is_active()
            });
            if matches!(&answer, Err(error) if error.is(Code::INVALID_ARGUMENT)) {
                break;
            }
            let Some(active) = optional(answer, problems)? else {
                continue;
            };
            present.push(link);
            if active {
                let remote = self.remote(session, device, link, problems)?;
                links.push(NvLink { link, remote });
            } else {
                self.remotes.remove(&link);
            }
        }
        // A link that did not answer may be there all the same, so which ones are is asked again.
        if problems.len() == problems_before {
            self.present.get_or_insert(present);
        }
        Ok(links)
    }

    fn remote(
        &mut self,
        session: Session<'_>,
        device: DeviceHandle,
        link: u32,
        problems: &mut Vec<Problem>,
    ) -> Result<LinkRemote, DriverError> {
        if let Some(known) = self.remotes.get(&link) {
            return Ok(*known);
        }
        let remote = ask_remote(session, device, link, problems)?;
        // One that is not told yet may be later, once the fabric is trained.
        if remote != LinkRemote::Unknown {
            self.remotes.insert(link, remote);
        }
        Ok(remote)
    }
}

fn ask_remote(
    session: Session<'_>,
    device: DeviceHandle,
    link: u32,
    problems: &mut Vec<Problem>,
) -> Result<LinkRemote, DriverError> {
    let wrapped = session.device(device);
    let pci = session.wrapped("nvmlDeviceGetNvLinkRemotePciInfo_v2", || {
        wrapped.link_wrapper_for(link).remote_pci_info()
    });
    let Some(pci) = optional(pci, problems)? else {
        return Ok(LinkRemote::Unknown);
    };
    let Ok(address) = pci.bus_id.parse() else {
        return Ok(LinkRemote::Unknown);
    };
    let mut kind = u32::MAX;
    // SAFETY: the handle is this library's, and `kind` may be written until the call returns.
    let answer = raw!(session, nvmlDeviceGetNvLinkRemoteDeviceType, |f| unsafe {
        f(device.0, link, &raw mut kind)
    });
    let told = optional(answer, problems)?.is_some();
    Ok(match kind {
        GPU => LinkRemote::Device(address),
        SWITCH => LinkRemote::Switch(address),
        _ if told => LinkRemote::Unknown,
        _ if SWITCH_IDS.contains(&pci.pci_device_id) => LinkRemote::Switch(address),
        _ => LinkRemote::Device(address),
    })
}
