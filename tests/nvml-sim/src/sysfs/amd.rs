//! Files of amdgpu and KFD in sysfs. Ids, unit counts, gfx and partition numbers are those in the test data of AMD's
//! device plugin; the rest is invented in the drivers' formats.

use std::fmt::Write;

use super::{Device, Files};
use crate::model::{AmdChip, AmdDevice};

const AMD: u16 = 0x1002;
const MIB: u64 = 1 << 20;
const NODES: &str = "sys/class/kfd/kfd/topology/nodes";
const DRIVER: &str = "6.12.12";

/// Number of processor nodes, which come first.
const PROCESSORS: u64 = 2;
const FIRST_RENDER_MINOR: u64 = 128;

struct Chip {
    name: &'static str,
    device: u16,
    class: u32,
    gfx: u32,
    simds: u32,
}

fn chip(chip: AmdChip) -> Chip {
    match chip {
        AmdChip::Mi210 => Chip {
            name: "AMD Instinct MI210",
            device: 0x740f,
            class: 0x03_8000,
            gfx: 90_010,
            simds: 416,
        },
        AmdChip::Mi300x => Chip {
            name: "AMD Instinct MI300X OAM",
            device: 0x74a1,
            class: 0x12_0000,
            gfx: 90_402,
            simds: 1216,
        },
    }
}

pub(super) fn add(files: &mut Files, devices: &[AmdDevice]) {
    if devices.is_empty() {
        return;
    }
    files.text("sys/module/amdgpu/version", DRIVER);
    for node in 0..PROCESSORS {
        let properties =
            "cpu_cores_count 96\nsimd_count 0\nvendor_id 0\nlocation_id 0\ndrm_render_minor 0";
        files.text(&format!("{NODES}/{node}/properties"), properties);
    }
    let mut node = PROCESSORS;
    for (number, device) in (0_u64..).zip(devices) {
        function(files, device);
        for part in 0..device.compute.parts() {
            let minor = FIRST_RENDER_MINOR + number * 8 + u64::from(part);
            partition(files, device, part, (node, minor));
            node = node.saturating_add(1);
        }
    }
}

fn function(files: &mut Files, device: &AmdDevice) {
    let chip = chip(device.chip);
    let on_bus = Device {
        vendor: AMD,
        id: chip.device,
        subsystem: (AMD, 0x0c34),
        class: chip.class,
        revision: 0,
        numa: i64::from(device.numa_node),
    };
    on_bus.add(files, device.pci);
    files.driver(device.pci, "amdgpu");
    let at = format!("sys/bus/pci/devices/{}", device.pci.sysfs());
    let bytes = |mib: u64| mib.saturating_mul(MIB).to_string();
    let mut put = |file: &str, value: &str| files.text(&format!("{at}/{file}"), value);
    put("product_name", chip.name);
    put("unique_id", &format!("{:016x}", device.unique_id));
    put("mem_info_vram_total", &bytes(device.chip.memory_mib()));
    put("mem_info_vram_used", &bytes(device.used_mib));
    if device.chip.has_partitions() {
        put("current_compute_partition", device.compute.name());
        put("available_compute_partition", "SPX, DPX, QPX, CPX");
        put("current_memory_partition", device.memory.name());
        put("available_memory_partition", "NPS1, NPS4");
    }
}

/// A node of KFD's topology. Partitions are functions of their device, and each has a share of its memory.
fn partition(files: &mut Files, device: &AmdDevice, part: u32, (node, minor): (u64, u64)) {
    let chip = chip(device.chip);
    let location = (u32::from(device.pci.bus) << 8) + part;
    let simds = chip.simds / device.compute.parts();
    let mut properties = "cpu_cores_count 0".to_owned();
    for (key, value) in [
        ("simd_count", u64::from(simds)),
        ("simd_per_cu", 4),
        ("gfx_target_version", u64::from(chip.gfx)),
        ("vendor_id", u64::from(AMD)),
        ("device_id", u64::from(chip.device)),
        ("location_id", u64::from(location)),
        ("domain", 0),
        ("drm_render_minor", minor),
        ("hive_id", device.hive),
        ("unique_id", device.unique_id),
    ] {
        // Writing to a text cannot fail.
        let _ = write!(properties, "\n{key} {value}");
    }
    files.text(&format!("{NODES}/{node}/properties"), &properties);
    let size = device.chip.memory_mib() / u64::from(device.memory.parts());
    let bank = format!("heap_type 1\nsize_in_bytes {}", size.saturating_mul(MIB));
    files.text(&format!("{NODES}/{node}/mem_banks/0/properties"), &bank);
}
