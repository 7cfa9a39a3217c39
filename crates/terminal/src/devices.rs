//! Names of devices, the same in all outputs.

use octavo_model::id::PciAddress;
use octavo_model::inventory::{Device, Inventory, Vendor};

/// Returns the device at the address.
pub fn find(inventory: &Inventory, pci: PciAddress) -> Option<&Device> {
    inventory.devices.iter().find(|device| device.pci == pci)
}

/// Returns a device's name for users: `GPU 0`, or `GPU 0000:07:00.0` without a number.
pub fn name(device: &Device) -> String {
    format!("{} {}", noun(device), number(device))
}

/// Returns the noun for the kind of device.
pub fn noun(device: &Device) -> &'static str {
    match device.vendor {
        Vendor::Aws => "device",
        Vendor::Nvidia | Vendor::Amd | Vendor::Other(_) => "GPU",
    }
}

/// Returns the driver's number of the device, or its address.
pub fn number(device: &Device) -> String {
    device.index.map_or_else(|| device.pci.to_string(), |index| index.to_string())
}

/// Formats devices as `GPU 0`, `GPU 0-3,5`, or addresses without numbers.
pub fn range(devices: &[&Device]) -> String {
    let noun = devices.first().map_or("GPU", |device| noun(device));
    let indices: Vec<u32> = devices.iter().filter_map(|device| device.index).collect();
    let others = devices.iter().filter(|device| device.index.is_none());
    let mut all = ranges(&indices);
    all.extend(others.map(|device| number(device)));
    format!("{noun} {}", all.join(","))
}

/// Formats numbers with consecutive ones joined: `0-3`, `5`.
pub fn ranges(numbers: &[u32]) -> Vec<String> {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*number) => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let ranges = ranges.iter().map(|(first, last)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    });
    ranges.collect()
}
