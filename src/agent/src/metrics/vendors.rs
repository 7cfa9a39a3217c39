//! Metrics of devices from vendors other than NVIDIA, as of the last scan: a scrape never queries hardware.
//!
//! A Neuron device is identified by the driver's number, an AMD device by its PCI address. There are as many series as
//! devices. Words in labels come from the catalog and from drivers; serial numbers are only on the `*_info` series. A
//! value that is not reported has no series, and a vendor without devices here has no family.

use std::fmt;
use std::sync::Arc;

use octavo_hardware::DriverHandle;
use octavo_model::accelerators;
use octavo_model::inventory::{
    Amd, Device, DriverLayout, Inventory, Neuron, NeuronDevice, PartitioningMode,
};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;

use super::family_writer::{FamilyWriter, Samples, bytes, count};

/// Metrics of the last observed hardware. Clones share their state.
#[derive(Debug, Clone)]
pub struct VendorMetrics(DriverHandle);

impl VendorMetrics {
    /// Creates the metrics of the hardware behind this handle.
    pub fn new(hardware: DriverHandle) -> Self {
        Self(hardware)
    }

    /// Registers all metrics.
    pub fn registry(&self) -> Registry {
        let mut registry = Registry::with_prefix("octavo");
        registry.register_collector(Box::new(self.clone()));
        registry
    }
}

impl Collector for VendorMetrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        write(encoder, &self.0.latest())
    }
}

fn write(mut encoder: DescriptorEncoder<'_>, inventory: &Arc<Inventory>) -> fmt::Result {
    let mut writer = FamilyWriter(&mut encoder);
    if let Some(neuron) = &inventory.neuron {
        driver(&mut writer, neuron)?;
        neuron_figures(&mut writer, neuron)?;
        neuron_errors(&mut writer, neuron)?;
    }
    let devices = inventory.devices.iter();
    let devices_with_readings: Vec<(&Device, &Amd)> =
        devices.filter_map(|device| Some((device, device.amd.as_ref()?))).collect();
    if devices_with_readings.is_empty() {
        return Ok(());
    }
    amd_info(&mut writer, &devices_with_readings)?;
    amd_figures(&mut writer, &devices_with_readings)
}

fn driver(writer: &mut FamilyWriter<'_, '_>, neuron: &Neuron) -> fmt::Result {
    let layout = match neuron.driver_layout {
        DriverLayout::Known => "known",
        DriverLayout::Unknown => "unknown",
    };
    let version = neuron.driver_version.clone().unwrap_or_default();
    let labels = vec![("version", version), ("layout", layout.to_owned())];
    writer.gauge(
        (
            "neuron_driver_info",
            "Version of the Neuron driver, and whether its sysfs layout is known, as labels; always 1",
        ),
        vec![(labels, 1.0)],
    )?;
    let devices = neuron.devices.iter();
    let info = devices.map(|device| {
        let name = device.device_name.as_deref();
        let facts = name.and_then(accelerators::neuron_chip);
        let labels = vec![
            ("device", device.number.to_string()),
            ("type", word(facts.map(|facts| facts.type_name))),
            ("sku", word(facts.map(|facts| facts.sku))),
            ("chip", word(name)),
            ("cores", word(device.core_architecture.as_deref())),
            ("serial", word(device.serial.as_deref())),
        ];
        (labels, 1.0)
    });
    writer.gauge(("neuron_device_info", "Neuron device identity as labels; always 1"), info)
}

fn word(text: Option<&str>) -> String {
    text.unwrap_or_default().to_owned()
}

/// Returns one series for each device that reports `value`.
fn each(neuron: &Neuron, value: impl Fn(&NeuronDevice) -> Option<f64>) -> Samples {
    let devices = neuron.devices.iter();
    devices
        .filter_map(|device| {
            let labels = vec![("device", device.number.to_string())];
            Some((labels, value(device)?))
        })
        .collect()
}

fn neuron_figures(writer: &mut FamilyWriter<'_, '_>, neuron: &Neuron) -> fmt::Result {
    let devices = neuron.devices.iter();
    let cores = devices.flat_map(|device| {
        let kinds = [("physical", device.cores), ("logical", neuron.logical_cores(device))];
        kinds.into_iter().filter_map(|(kind, cores)| {
            let labels = vec![("device", device.number.to_string()), ("kind", kind.to_owned())];
            Some((labels, f64::from(cores?)))
        })
    });
    writer.gauge(("neuron_cores", "Number of cores of a Neuron device"), cores)?;
    writer.gauge(
        (
            "neuron_memory_total_bytes",
            "Total memory of a Neuron device according to the product catalog, in bytes",
        ),
        each(neuron, |device| {
            accelerators::neuron_memory(device.device_name.as_deref()?).map(bytes)
        }),
    )?;
    writer.gauge(
        ("neuron_memory_used_bytes", "Used memory of a Neuron device, in bytes"),
        each(neuron, |device| device.memory_used.map(bytes)),
    )?;
    writer.gauge(
        ("neuron_power_ratio", "Average power draw of a Neuron device as a ratio of its maximum"),
        each(neuron, |device| device.power_percent.map(|percent| f64::from(percent) / 100.0)),
    )
}

fn neuron_errors(writer: &mut FamilyWriter<'_, '_>, neuron: &Neuron) -> fmt::Result {
    let devices = neuron.devices.iter();
    let errors = devices.flat_map(|device| {
        let errors = device.errors;
        let kinds = [
            ("memory", "uncorrected", errors.memory_uncorrected),
            ("memory", "repairable", errors.memory_repairable),
            ("memory", "corrected", errors.memory_corrected),
            ("sram", "uncorrected", errors.sram_uncorrected),
            ("sram", "corrected", errors.sram_corrected),
        ];
        kinds.into_iter().filter_map(|(place, kind, errors)| {
            let labels = vec![
                ("device", device.number.to_string()),
                ("place", place.to_owned()),
                ("kind", kind.to_owned()),
            ];
            Some((labels, count(errors?)))
        })
    });
    writer.counter(
        (
            "neuron_memory_errors",
            "Number of memory errors of a Neuron device since the driver was loaded; uncorrected errors include repairable ones",
        ),
        errors,
    )?;
    writer.gauge(
        (
            "neuron_unhealthy_parts",
            "Number of parts of a Neuron device that the driver reports as unhealthy",
        ),
        each(neuron, |device| {
            let parts = device.unhealthy.as_ref()?.len();
            Some(count(u64::try_from(parts).unwrap_or(u64::MAX)))
        }),
    )
}

fn amd_info(writer: &mut FamilyWriter<'_, '_>, devices: &[(&Device, &Amd)]) -> fmt::Result {
    let info = devices.iter().map(|(device, amd)| {
        let identity = &device.identity;
        let hive = amd.hive.map(|hive| format!("{hive:016x}"));
        let text = |text: Option<String>| text.unwrap_or_default();
        let labels = vec![
            ("device", device.pci.to_string()),
            ("type", text(identity.type_name().map(ToString::to_string))),
            ("sku", text(identity.sku().map(ToString::to_string))),
            ("product", word(device.product_name.as_deref())),
            ("driver", word(amd.driver_version.as_deref())),
            ("gfx", word(amd.gfx_target.as_deref())),
            ("hive", text(hive)),
            ("serial", word(amd.serial.as_deref())),
        ];
        (labels, 1.0)
    });
    writer.gauge(("amd_device_info", "AMD device identity as labels; always 1"), info)?;
    let modes = devices.iter().filter_map(|(device, amd)| {
        let current =
            |mode: &Option<PartitioningMode>| word(mode.as_ref().map(|mode| mode.current.as_str()));
        if amd.compute.is_none() && amd.memory.is_none() {
            return None;
        }
        let labels = vec![
            ("device", device.pci.to_string()),
            ("compute", current(&amd.compute)),
            ("memory", current(&amd.memory)),
        ];
        Some((labels, 1.0))
    });
    writer.gauge(
        (
            "amd_partition_info",
            "Current compute and memory partitioning modes of an AMD device, as labels; always 1",
        ),
        modes,
    )
}

fn amd_figures(writer: &mut FamilyWriter<'_, '_>, devices: &[(&Device, &Amd)]) -> fmt::Result {
    let each = |value: &dyn Fn(&Device, &Amd) -> Option<f64>| -> Samples {
        let all = devices.iter();
        all.filter_map(|(device, amd)| {
            let labels = vec![("device", device.pci.to_string())];
            Some((labels, value(device, amd)?))
        })
        .collect()
    };
    let many = |number: usize| count(u64::try_from(number).unwrap_or(u64::MAX));
    writer.gauge(
        ("amd_memory_total_bytes", "Total memory of an AMD device, in bytes"),
        each(&|device, _| device.memory.map(bytes)),
    )?;
    writer.gauge(
        ("amd_memory_used_bytes", "Used memory of an AMD device, in bytes"),
        each(&|_, amd| amd.memory_used.map(bytes)),
    )?;
    writer.gauge(
        ("amd_compute_units", "Number of compute units of an AMD device, over all its partitions"),
        each(&|_, amd| amd.compute_units.map(f64::from)),
    )?;
    writer.gauge(
        ("amd_partitions", "Number of partitions of an AMD device; 1 if it is not partitioned"),
        each(&|_, amd| Some(amd.partitions.len()).filter(|parts| *parts > 0).map(many)),
    )?;
    writer.gauge(
        (
            "amd_hive_devices",
            "Number of devices of this node in the xGMI hive of an AMD device, including the device itself",
        ),
        each(&|_, amd| {
            let own = amd.hive?;
            Some(many(devices.iter().filter(|(_, other)| other.hive == Some(own)).count()))
        }),
    )
}

#[cfg(test)]
mod tests {
    use octavo_toolkit::telemetry::exposition;

    use super::*;

    #[derive(Debug)]
    struct InventoryCollector(Arc<Inventory>);

    impl Collector for InventoryCollector {
        fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
            write(encoder, &self.0)
        }
    }

    fn text(document: &str) -> String {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/machines");
        let json =
            std::fs::read_to_string(format!("{directory}/{document}/inventory.json")).unwrap();
        let inventory = octavo_files::inventory::parse(&json).unwrap();
        let mut registry = Registry::with_prefix("octavo");
        registry.register_collector(Box::new(InventoryCollector(Arc::new(inventory))));
        exposition::write(&registry, std::iter::empty()).unwrap().1
    }

    #[track_caller]
    fn check_samples(text: &str, samples: &[&str]) {
        for sample in samples {
            assert!(text.lines().any(|line| line == *sample), "{sample}\n{text}");
        }
    }

    #[test]
    fn neuron_device_has_core_memory_and_error_series() {
        let text = text("trn2.48xlarge-lnc2");
        check_samples(
            &text,
            &[
                "octavo_neuron_driver_info{version=\"2.29.1.0\",layout=\"known\"} 1.0",
                "octavo_neuron_device_info{device=\"0\",type=\"aws-trainium2-96gb\",sku=\"aws-trainium2\",chip=\"Trainium2\",cores=\"NCv3\",serial=\"9ff5434815c8bd80\"} 1.0",
                "octavo_neuron_cores{device=\"15\",kind=\"physical\"} 8.0",
                "octavo_neuron_cores{device=\"15\",kind=\"logical\"} 4.0",
                "octavo_neuron_memory_total_bytes{device=\"3\"} 103079215104.0",
                "octavo_neuron_memory_used_bytes{device=\"3\"} 0.0",
                "octavo_neuron_memory_errors_total{device=\"3\",place=\"sram\",kind=\"uncorrected\"} 0.0",
            ],
        );
        assert!(!text.contains("amd"), "{text}");
        // A value that is not reported has no series, in particular not a 0.
        assert!(!text.contains("neuron_power_ratio{"), "{text}");
    }

    #[test]
    fn amd_device_has_partition_and_link_series() {
        let text = text("mi300x-cpx-nps4");
        check_samples(
            &text,
            &[
                "octavo_amd_partition_info{device=\"0000:05:00.0\",compute=\"CPX\",memory=\"NPS4\"} 1.0",
                "octavo_amd_partitions{device=\"0000:05:00.0\"} 8.0",
                "octavo_amd_hive_devices{device=\"0000:05:00.0\"} 8.0",
                "octavo_amd_memory_total_bytes{device=\"0000:05:00.0\"} 206141652992.0",
            ],
        );
        assert!(!text.contains("neuron"), "{text}");
    }

    #[test]
    fn absent_vendors_have_no_family_and_every_family_is_documented() {
        let page = include_str!("../../../../docs/reference/metrics.md");
        let both = [text("trn2.48xlarge-lnc2"), text("mi300x-cpx-nps4")].concat();
        let mut families = 0;
        for family in both.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let (name, _) = family.split_once(' ').unwrap();
            let entry = format!("\n### `{name}`\n");
            assert!(page.contains(&entry), "docs/reference/metrics.md does not list {name}");
            families += 1;
        }
        assert_eq!(families, 15);
        let nothing = Inventory {
            machine: octavo_model::inventory::Machine::default(),
            nvml: octavo_model::inventory::NvmlState::Loading,
            ..Inventory::default()
        };
        let mut registry = Registry::with_prefix("octavo");
        registry.register_collector(Box::new(InventoryCollector(Arc::new(nothing))));
        let text = exposition::write(&registry, std::iter::empty()).unwrap().1;
        assert!(!text.contains("TYPE"), "{text}");
    }
}
