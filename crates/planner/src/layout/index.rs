//! NVML's index of a device, including devices that NVML counts but cannot identify.

use std::collections::BTreeSet;

use octavo_model::inventory::{Condition, Device, Inventory, Vendor};

/// Returns the index by which a layout selects `device`.
///
/// NVML counts a GPU that was lost before the driver was loaded, but does not identify it. NVML enumerates by PCI
/// address, so the n-th unidentified device gets the n-th index that no other device has. Failing devices are never
/// changed: the index only decides which rule reports them.
pub(super) fn index(device: &Device, inventory: &Inventory) -> Option<u32> {
    if device.index.is_some() || !is_unnamed(device) {
        return device.index;
    }
    let mut unnamed = inventory.devices.iter().filter(|one| is_unnamed(one));
    let position = unnamed.position(|one| one.pci == device.pci)?;
    let named: BTreeSet<u32> = inventory.devices.iter().filter_map(|d| d.index).collect();
    (0..).filter(|index| !named.contains(index)).nth(position)
}

pub(super) fn is_failing(device: &Device) -> bool {
    matches!(device.condition, Condition::Failing { .. })
}

fn is_unnamed(device: &Device) -> bool {
    device.vendor == Vendor::Nvidia && device.index.is_none() && is_failing(device)
}
