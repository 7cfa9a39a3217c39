//! Metrics of devices from vendors other than NVIDIA, as of the last scan: a scrape never queries hardware.
//!
//! A Neuron device is identified by the driver's number, an AMD device by its PCI address. There are as many series as
//! devices. Words in labels come from the catalog and from drivers; serial numbers are only on the `*_info` series. A
//! value that is not reported has no series, and a vendor without devices here has no family.

use std::fmt;
use std::sync::Arc;

use octavo_hardware::Handle;
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
pub struct VendorMetrics(Handle);

impl VendorMetrics {
    /// Creates the metrics of the hardware behind this handle.
    pub fn new(hardware: Handle) -> Self {
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
    let mut sheet = FamilyWriter(&mut encoder);
    if let Some(neuron) = &inventory.neuron {
        driver(&mut sheet, neuron)?;
        neuron_figures(&mut sheet, neuron)?;
        neuron_trouble(&mut sheet, neuron)?;
    }
    let devices = inventory.devices.iter();
    let told: Vec<(&Device, &Amd)> = devices
        .filter_map(|device| Some((device, device.amd.as_ref()?)))
        .collect();
    if told.is_empty() {
        return Ok(());
    }
    amd_info(&mut sheet, &told)?;
    amd_figures(&mut sheet, &told)
}

fn driver(sheet: &mut FamilyWriter<'_, '_>, neuron: &Neuron) -> fmt::Result {
    let layout = match neuron.driver_layout {
        DriverLayout::Known => "known",
        DriverLayout::Unknown => "unknown",
    };
    let version = neuron.driver_version.clone().unwrap_or_default();
    let labels = vec![("version", version), ("layout", layout.to_owned())];
    sheet.gauge(
        (
            "neuron_driver_info",
            "The Neuron driver, and whether its files are where they are looked for: always 1",
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
    sheet.gauge(
        (
            "neuron_device_info",
            "A Neuron device, to join other series with what it is: always 1",
        ),
        info.collect(),
    )
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

fn neuron_figures(sheet: &mut FamilyWriter<'_, '_>, neuron: &Neuron) -> fmt::Result {
    let devices = neuron.devices.iter();
    let cores = devices.flat_map(|device| {
        let kinds = [
            ("physical", device.cores),
            ("logical", neuron.logical_cores(device)),
        ];
        kinds.into_iter().filter_map(|(kind, cores)| {
            let labels = vec![
                ("device", device.number.to_string()),
                ("kind", kind.to_owned()),
            ];
            Some((labels, f64::from(cores?)))
        })
    });
    sheet.gauge(
        ("neuron_cores", "Cores of a Neuron device"),
        cores.collect(),
    )?;
    sheet.gauge(
        (
            "neuron_memory_total_bytes",
            "Memory of a Neuron device, as the catalogue says of its chip",
        ),
        each(neuron, |device| {
            accelerators::neuron_memory(device.device_name.as_deref()?).map(bytes)
        }),
    )?;
    sheet.gauge(
        (
            "neuron_memory_used_bytes",
            "Memory of a Neuron device that is in use",
        ),
        each(neuron, |device| device.memory_used.map(bytes)),
    )?;
    sheet.gauge(
        (
            "neuron_power_ratio",
            "What a Neuron device draws on average, of the most that it may",
        ),
        each(neuron, |device| {
            device
                .power_percent
                .map(|percent| f64::from(percent) / 100.0)
        }),
    )
}

fn neuron_trouble(sheet: &mut FamilyWriter<'_, '_>, neuron: &Neuron) -> fmt::Result {
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
    sheet.counter(
        (
            "neuron_memory_errors",
            "Errors of a Neuron device's memory since the driver was loaded; repairable ones are among the uncorrected",
        ),
        errors.collect(),
    )?;
    sheet.gauge(
        (
            "neuron_unhealthy_parts",
            "Parts of a Neuron device that its driver says are unhealthy",
        ),
        each(neuron, |device| {
            let parts = device.unhealthy.as_ref()?.len();
            Some(count(u64::try_from(parts).unwrap_or(u64::MAX)))
        }),
    )
}

fn amd_info(sheet: &mut FamilyWriter<'_, '_>, told: &[(&Device, &Amd)]) -> fmt::Result {
    let info = told.iter().map(|(device, amd)| {
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
    sheet.gauge(
        (
            "amd_device_info",
            "An AMD device, to join other series with what it is: always 1",
        ),
        info.collect(),
    )?;
    let modes = told.iter().filter_map(|(device, amd)| {
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
    sheet.gauge(
        (
            "amd_partition_info",
            "How an AMD device's compute and memory are partitioned now: always 1",
        ),
        modes.collect(),
    )
}

fn amd_figures(sheet: &mut FamilyWriter<'_, '_>, told: &[(&Device, &Amd)]) -> fmt::Result {
    let each = |value: &dyn Fn(&Device, &Amd) -> Option<f64>| -> Samples {
        let told = told.iter();
        told.filter_map(|(device, amd)| {
            let labels = vec![("device", device.pci.to_string())];
            Some((labels, value(device, amd)?))
        })
        .collect()
    };
    let many = |number: usize| count(u64::try_from(number).unwrap_or(u64::MAX));
    sheet.gauge(
        ("amd_memory_total_bytes", "Memory of an AMD device"),
        each(&|device, _| device.memory.map(bytes)),
    )?;
    sheet.gauge(
        (
            "amd_memory_used_bytes",
            "Memory of an AMD device that is in use",
        ),
        each(&|_, amd| amd.memory_used.map(bytes)),
    )?;
    sheet.gauge(
        (
            "amd_compute_units",
            "Compute units of an AMD device, of all its partitions together",
        ),
        each(&|_, amd| amd.compute_units.map(f64::from)),
    )?;
    sheet.gauge(
        (
            "amd_partitions",
            "What programs see of an AMD device: 1 where it is whole",
        ),
        each(&|_, amd| {
            Some(amd.partitions.len())
                .filter(|parts| *parts > 0)
                .map(many)
        }),
    )?;
    sheet.gauge(
        (
            "amd_hive_devices",
            "Devices of this node in the xGMI hive of an AMD device, itself among them",
        ),
        each(&|_, amd| {
            let own = amd.hive?;
            Some(many(
                told.iter()
                    .filter(|(_, other)| other.hive == Some(own))
                    .count(),
            ))
        }),
    )
}

#[cfg(test)]
mod tests {
    use octavo_toolkit::telemetry::exposition;

    use super::*;

    #[derive(Debug)]
    struct Of(Arc<Inventory>);

    impl Collector for Of {
        fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
            write(encoder, &self.0)
        }
    }

    fn text(document: &str) -> String {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/machines");
        let json = std::fs::read_to_string(format!("{folder}/{document}/inventory.json")).unwrap();
        let inventory = octavo_documents::inventory::parse(&json).unwrap();
        let mut registry = Registry::with_prefix("octavo");
        registry.register_collector(Box::new(Of(Arc::new(inventory))));
        exposition::write(&registry, std::iter::empty()).unwrap().1
    }

    #[track_caller]
    fn tells(text: &str, samples: &[&str]) {
        for sample in samples {
            assert!(text.lines().any(|line| line == *sample), "{sample}\n{text}");
        }
    }

    #[test]
    fn neuron_device_has_core_memory_and_error_series() {
        let text = text("trn2.48xlarge-lnc2");
        tells(
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
        tells(
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
        let page = include_str!("../../../../docs/metrics.md");
        let both = [text("trn2.48xlarge-lnc2"), text("mi300x-cpx-nps4")].concat();
        let mut families = 0;
        for told in both.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let (name, _) = told.split_once(' ').unwrap();
            let entry = format!("| `{name}` |");
            assert!(page.contains(&entry), "docs/metrics.md has no line {entry}");
            families += 1;
        }
        assert_eq!(families, 15);
        let nothing = Inventory {
            neuron: None,
            machine: octavo_model::inventory::Machine::default(),
            nvml: octavo_model::inventory::NvmlState::Loading,
            devices: Vec::new(),
        };
        let mut registry = Registry::with_prefix("octavo");
        registry.register_collector(Box::new(Of(Arc::new(nothing))));
        let text = exposition::write(&registry, std::iter::empty()).unwrap().1;
        assert!(!text.contains("TYPE"), "{text}");
    }
}
