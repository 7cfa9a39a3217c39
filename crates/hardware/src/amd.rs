//! AMD hardware from sysfs: amdgpu's files of each device, and KFD's topology of what programs see.
//!
//! ```text
//! bus/pci/devices/<address>/     amdgpu's files of a device     files.rs
//! class/kfd/kfd/topology/nodes/  what programs see              kfd.rs
//! ```
//!
//! All of it is read in every scan, because partitions can change while the driver is loaded. Nothing is written and no
//! device node is opened: an open device node prevents others from changing partitions. `amdgpu_xcp_*`, which hold the
//! DRM nodes of partitions, are not read: some are dangling, and KFD reports which ones are real.

mod files;
mod kfd;

use octavo_model::id::PciAddress;
use octavo_model::inventory::{Amd, PartitioningMode, PciIds, ReadProblem};

use crate::pci_function::{AmdReading, PciFunction};
use crate::sysfs::{MAX_DEVICE_MEMORY, Sysfs};
use files::Files;
use kfd::Topology;

const DEVICES: &str = "bus/pci/devices";
const MODULE: &str = "module/amdgpu";
const DRIVER: &str = "amdgpu";
const AMD: u16 = 0x1002;

/// PCI device IDs of virtual functions: MI210, MI300X, MI325X, V710, V620. Source: AMD GPU Operator, its
/// node-feature-discovery rule (`amd-vgpu`).
const VIRTUAL_FUNCTION_IDS: [u16; 5] = [0x7410, 0x74b5, 0x74b9, 0x7461, 0x73ae];

/// Reads the values of each function that is bound to amdgpu.
pub(crate) fn scan_devices(sys: &Sysfs, functions: &mut [PciFunction]) {
    if !functions.iter().any(is_bound_to_amdgpu) {
        return;
    }
    let mut readings: Vec<(PciAddress, AmdReading)> = functions
        .iter()
        .filter(|function| is_bound_to_amdgpu(function))
        .map(|function| (function.address, device(sys, function)))
        .collect();
    Topology::read(sys).add_to_devices(&mut readings);
    for (address, reading) in readings {
        let function = functions.iter_mut().find(|known| known.address == address);
        if let Some(function) = function {
            function.amd = Some(reading);
        }
    }
}

fn is_bound_to_amdgpu(function: &PciFunction) -> bool {
    function.ids.vendor == AMD && function.kernel_driver.as_deref() == Some(DRIVER)
}

fn is_virtual(ids: PciIds) -> bool {
    VIRTUAL_FUNCTION_IDS.contains(&ids.device)
}

/// Reads amdgpu's own files of a device. Source: Linux, "Misc AMDGPU driver information".
fn device(sys: &Sysfs, function: &PciFunction) -> AmdReading {
    let mut module = Files::open(sys, MODULE.to_owned());
    let driver_version = module.version("version");
    let mut files = Files::open(sys, format!("{DEVICES}/{}", function.address));
    let memory = files.bytes("mem_info_vram_total", MAX_DEVICE_MEMORY);
    let memory = memory.filter(|memory| memory.get() > 0);
    let amd = Amd {
        driver_version,
        unique_id: files.id("unique_id"),
        serial: files.text("serial_number"),
        memory_used: files.bytes("mem_info_vram_used", memory.unwrap_or(MAX_DEVICE_MEMORY)),
        compute: mode(&mut files, "compute"),
        memory: mode(&mut files, "memory"),
        is_virtual: is_virtual(function.ids),
        ..Amd::default()
    };
    let product_name = files.text("product_name");
    let mut problems = files.problems;
    problems.extend(
        module.problems.into_iter().map(|problem| ReadProblem {
            source: format!("{MODULE}/{}", problem.source),
            ..problem
        }),
    );
    AmdReading { amd, product_name, memory, problems }
}

fn mode(files: &mut Files<'_>, kind: &str) -> Option<PartitioningMode> {
    let current = files.mode(&format!("current_{kind}_partition"));
    let available = files.modes(&format!("available_{kind}_partition"));
    current.map(|current| PartitioningMode { current, available })
}

#[cfg(test)]
mod tests;
