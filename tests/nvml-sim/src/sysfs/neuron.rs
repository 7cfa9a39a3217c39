//! Files of AWS Neuron's driver in sysfs, in the layout of releases up to 2.30. Values are invented in its formats.

use super::{AMAZON, Device, Entry, Files};
use crate::model::{Neuron, NeuronChip, PciAddress};

const MIB: u64 = 1 << 20;

/// A system peripheral.
const CLASS: u32 = 0x08_8000;

/// The chip's name, the internal names of its devices and cores, and its PCI device.
fn device_facts(chip: NeuronChip) -> (&'static str, &'static str, &'static str, u16) {
    match chip {
        NeuronChip::Inferentia => ("Inferentia", "NDv1", "NCv1", 0x7064),
        NeuronChip::Inferentia2 => ("Inferentia2", "NDv3", "NCv2", 0x7264),
        NeuronChip::Trainium1 => ("Trainium1", "NDv2", "NCv2", 0x7164),
        NeuronChip::Trainium2 => ("Trainium2", "NDv3", "NCv3", 0x7364),
    }
}

pub(super) fn add(files: &mut Files, neuron: &Neuron, seed: u64) {
    files.text("sys/module/neuron/version", &neuron.driver);
    if let Some(size) = neuron.logical_core {
        let setting = format!("NEURON_LOGICAL_NC_CONFIG={size}");
        files.text("opt/aws/neuron/logical_nc_config", &setting);
    }
    let devices = (0_u8..).zip(neuron.links.iter().zip(&neuron.used_mib));
    let count = neuron.links.len().max(1);
    for ((number, (near, used)), unhealthy) in devices.zip(&neuron.unhealthy) {
        let target = format!("../../devices/virtual/neuron_device/neuron{number}");
        let class = format!("sys/class/neuron_device/neuron{number}");
        files.0.insert(class, Entry::Link(target));
        let serial = seed.wrapping_add(u64::from(number)) | 1 << 63;
        device(files, neuron, number, &DeviceFacts { near, used: *used, unhealthy, serial });
        let (.., id) = device_facts(neuron.chip);
        let address =
            PciAddress { domain: 0, bus: number.saturating_add(0x10), device: 0x1e, function: 0 };
        let node = usize::from(number).saturating_mul(2) / count;
        let function = Device {
            vendor: AMAZON,
            id,
            subsystem: (0, 0),
            class: CLASS,
            revision: 0,
            numa: i64::try_from(node).unwrap_or(0),
        };
        function.add(files, address);
        files.driver(address, "neuron");
    }
}

/// Facts of one device.
struct DeviceFacts<'a> {
    near: &'a [u32],
    used: u64,
    unhealthy: &'a [String],
    serial: u64,
}

fn device(files: &mut Files, neuron: &Neuron, number: u8, facts: &DeviceFacts<'_>) {
    let chip = neuron.chip;
    let (name, device_architecture, core_architecture, _) = device_facts(chip);
    let root = format!("sys/devices/virtual/neuron_device/neuron{number}");
    let mut put = |file: &str, value: &str| files.text(&format!("{root}/{file}"), value);
    put("core_count", &chip.cores().to_string());
    let near: Vec<String> = facts.near.iter().map(u32::to_string).collect();
    put("connected_devices", &near.join(", "));
    put("reset", "1");
    put("info/architecture/device_name", name);
    put("info/architecture/arch_type", device_architecture);
    if chip.reports_errors_and_serial() {
        put("info/serial_number", &format!("{:016x}", facts.serial));
        for counter in
            ["mem_ecc_uncorrected", "mem_ecc_repairable_uncorrected", "sram_ecc_uncorrected"]
        {
            put(&format!("stats/hardware/{counter}"), "0");
        }
    }
    if chip == NeuronChip::Trainium2 {
        let parts = "stats/hardware/health_status/unhealthy_components";
        put(parts, &facts.unhealthy.join(","));
    }
    for core in 0..chip.cores() {
        let used = facts.used.saturating_mul(MIB);
        let core = format!("neuron_core{core}");
        put(&format!("{core}/info/architecture/arch_type"), core_architecture);
        let memory = format!("{core}/stats/memory_usage/device_mem");
        put(&format!("{memory}/total"), &used.to_string());
        put(&format!("{memory}/present"), "0");
        put(&format!("{memory}/peak"), &used.to_string());
    }
}
