//! AMD interconnect, from hives: devices of one hive are linked by xGMI.
//!
//! In a hive of bridged cards (two or four), or of an OAM board since the MI300, every pair of devices is linked. In
//! one of MI250 modules some pairs are not, and the available data does not show which, so the interconnect of these
//! is unknown. Source: AMD, "CDNA 2" and "CDNA 3" white papers, node diagrams.

use super::{Interconnect, InterconnectKind, interconnect_of};
use crate::inventory::{Condition, Device, Vendor};

/// MI250 and MI250X. Source: pci.ids.
const PARTIALLY_LINKED_DEVICES: [u16; 2] = [0x7408, 0x740c];

pub(super) fn of(devices: &[Device]) -> Option<Interconnect> {
    let is_reporting =
        |device: &&Device| device.vendor == Vendor::Amd && device.condition == Condition::Working;
    let mut nodes: Vec<&Device> = devices.iter().filter(is_reporting).collect();
    nodes.sort_by_key(|device| device.pci);
    let doubtful = |device: &&Device| {
        hive(device).is_some() && PARTIALLY_LINKED_DEVICES.contains(&device.pci_ids.device)
    };
    if !(2..=64).contains(&nodes.len()) || nodes.iter().any(doubtful) {
        return None;
    }
    let linked: Vec<u64> = (0..nodes.len()).map(|at| neighbors(&nodes, at)).collect();
    let kind = if linked.iter().any(|neighbours| *neighbours != 0) {
        InterconnectKind::Xgmi
    } else {
        let is_complete =
            nodes.len() == devices.len() && nodes.iter().all(|device| is_hive_known(device));
        is_complete.then_some(InterconnectKind::Pcie)?
    };
    Some(interconnect_of(kind, &nodes, &linked))
}

fn hive(device: &Device) -> Option<u64> {
    device.amd.as_ref()?.hive
}

/// The hive is known if KFD's topology is, which contains the partitions.
fn is_hive_known(device: &Device) -> bool {
    let amd = device.amd.as_ref();
    amd.is_some_and(|amd| !amd.partitions.is_empty())
}

/// Devices of the same hive, as a bit set.
fn neighbors(nodes: &[&Device], at: usize) -> u64 {
    let Some(own) = nodes.get(at).and_then(|device| hive(device)) else {
        return 0;
    };
    let others = nodes.iter().enumerate();
    others
        .filter(|(other, device)| *other != at && hive(device) == Some(own))
        .fold(0, |bits, (other, _)| bits | 1 << other)
}
