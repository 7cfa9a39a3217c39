//! The same metrics with the names and labels of dcgm-exporter, for existing dashboards. Enabled with
//! `--dcgm-metrics`.
//!
//! Source: dcgm-exporter, `etc/default-counters.csv` and `internal/pkg/rendermetrics`. `Hostname` has the old
//! spelling, which most dashboards use; releases differ. A value that a board does not support has no series, where
//! DCGM has a number that means "blank". A device's value is reported once and not once per pod: the pod labels are
//! set if exactly one container holds the device or partition. All are gauges: dcgm-exporter's two counters lack the
//! suffix that the format requires of counters, and `rate()` takes both.

use std::fmt;
use std::sync::Arc;

use octavo_model::id::PciAddress;
use octavo_model::reading::{DeviceMetrics, Reading};
use octavo_node::sharing::usage::{DeviceUsage, UnitUsage};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use tokio::sync::watch;

use super::family_writer::{FamilyWriter, Samples, count, ratio};
use crate::usage::UsageObservation;

/// Observed usage and health as dcgm-exporter would report them.
#[derive(Debug)]
pub(super) struct DcgmCollector {
    seen: watch::Receiver<Arc<UsageObservation>>,
    host: String,
}

/// Name, help text, and accessor of a metric.
type Measure<T> = (&'static str, &'static str, fn(&T) -> Option<f64>);

/// Metrics of a whole device.
const DEVICE_METRICS: [Measure<DeviceMetrics>; 14] = [
    ("SM_CLOCK", "SM clock frequency, in MHz", |reading| reading.compute_clock.map(f64::from)),
    ("MEM_CLOCK", "Memory clock frequency, in MHz", |reading| reading.memory_clock.map(f64::from)),
    ("MEMORY_TEMP", "Memory temperature, in degrees Celsius", |reading| {
        reading.memory_temperature.map(f64::from)
    }),
    ("GPU_TEMP", "GPU temperature, in degrees Celsius", |reading| {
        reading.temperature.map(f64::from)
    }),
    ("POWER_USAGE", "Power draw, in W", |reading| {
        reading.power_mw.map(|power| f64::from(power) / 1e3)
    }),
    ("TOTAL_ENERGY_CONSUMPTION", "Energy consumed since the driver was loaded, in mJ", |reading| {
        reading.energy_mj.map(count)
    }),
    ("PCIE_REPLAY_COUNTER", "Number of PCIe replays", |reading| {
        reading.pcie_replays.map(f64::from)
    }),
    ("GPU_UTIL", "Share of time in which at least one kernel was running, in %", |reading| {
        reading.compute.map(|percent| percent.0.into())
    }),
    (
        "MEM_COPY_UTIL",
        "Share of time in which device memory was read or written, in %",
        |reading| reading.memory.map(|percent| percent.0.into()),
    ),
    ("ENC_UTIL", "Encoder utilization, in %", |reading| {
        reading.encoder.map(|percent| percent.0.into())
    }),
    ("DEC_UTIL", "Decoder utilization, in %", |reading| {
        reading.decoder.map(|percent| percent.0.into())
    }),
    (
        "UNCORRECTABLE_REMAPPED_ROWS",
        "Number of memory rows remapped because of uncorrectable errors",
        |reading| reading.remapped_rows.map(|rows| rows.uncorrectable.into()),
    ),
    (
        "CORRECTABLE_REMAPPED_ROWS",
        "Number of memory rows remapped because of correctable errors",
        |reading| reading.remapped_rows.map(|rows| rows.correctable.into()),
    ),
    ("ROW_REMAP_FAILURE", "Whether a memory row remapping failed (1) or not (0)", |reading| {
        reading.remapped_rows.map(|rows| u8::from(rows.failed).into())
    }),
];

const XID: &str = "Number of the last Xid error that the device reported";

/// Metrics of a device or GPU instance.
const INSTANCE_METRICS: [Measure<UnitUsage>; 4] = [
    ("DEV_FB_FREE", "Free device memory, in MiB", |unit| Some(count(unit.memory?.free().get()))),
    ("DEV_FB_USED", "Used device memory, in MiB", |unit| Some(count(unit.memory?.used.get()))),
    ("DEV_FB_RESERVED", "Device memory reserved by the driver, in MiB", |unit| {
        Some(count(unit.memory?.reserved.get()))
    }),
    (
        "PROF_GR_ENGINE_ACTIVE",
        "Share of time in which at least one kernel was running on a GPU instance, from 0 to 1",
        |unit| unit.utilization.map(ratio),
    ),
];

impl DcgmCollector {
    pub(super) fn new(seen: watch::Receiver<Arc<UsageObservation>>, host: String) -> Self {
        Self { seen, host }
    }

    fn labels(
        &self,
        reading: &Reading,
        device: &DeviceUsage,
        unit: Option<&UnitUsage>,
    ) -> Vec<(&'static str, String)> {
        let uuid = reading.uuid.as_ref().map(ToString::to_string);
        let minor = reading.minor.map(|minor| format!("nvidia{minor}"));
        let mut labels = vec![
            ("gpu", reading.label()),
            ("UUID", uuid.unwrap_or_default()),
            ("pci_bus_id", bus_id(reading.pci)),
            ("device", minor.unwrap_or_default()),
            ("modelName", reading.product_name.clone().unwrap_or_default()),
        ];
        if let Some((unit, gi)) = unit.and_then(|unit| Some((unit, unit.gpu_instance?))) {
            let profile = unit.profile.clone().unwrap_or_default();
            labels.push(("GPU_I_PROFILE", profile));
            labels.push(("GPU_I_ID", gi.to_string()));
        }
        labels.push(("Hostname", self.host.clone()));
        let alone = match device.units.as_slice() {
            [one] if one.gpu_instance.is_none() => Some(one),
            all => unit.filter(|unit| {
                // The value belongs to the GPU instance, whose memory its compute instances share.
                let mut same = all.iter().filter(|one| instance(one) == instance(unit));
                same.nth(1).is_none()
            }),
        };
        let (container, namespace, pod) = alone.and_then(only).unwrap_or_default();
        labels.extend([("container", container), ("namespace", namespace), ("pod", pod)]);
        labels
    }
}

fn instance(unit: &UnitUsage) -> Option<u32> {
    unit.gpu_instance
}

/// Returns the only container that a unit is allocated to, if the unit is not shared.
fn only(unit: &UnitUsage) -> Option<(String, String, String)> {
    let mut allocations = unit.allocated_tenants();
    let one = allocations.next()?;
    if allocations.next().is_some() || unit.replicas.is_some_and(|replicas| replicas > 1) {
        return None;
    }
    Some((one.container.clone()?, one.namespace.clone()?, one.pod.clone()?))
}

/// Formats an address as NVML does: with eight digits of the domain, in upper case.
fn bus_id(pci: PciAddress) -> String {
    let text = pci.to_string().to_uppercase();
    let (domain, rest) = text.split_once(':').unwrap_or(("", &text));
    format!("{domain:0>8}:{rest}")
}

impl Collector for DcgmCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let seen = Arc::clone(&self.seen.borrow());
        let both: Vec<(&Reading, &DeviceUsage)> = seen
            .readings
            .iter()
            .filter_map(|reading| {
                let mut all = seen.usage.devices.iter();
                Some((reading, all.find(|device| device.pci == reading.pci)?))
            })
            .collect();
        let mut writer = FamilyWriter(&mut encoder);
        for (name, help, value) in DEVICE_METRICS {
            let readings = both.iter().filter_map(|(reading, device)| {
                let value = value(&reading.metrics)?;
                Some((self.labels(reading, device, None), value))
            });
            let samples: Samples = readings.collect();
            if !samples.is_empty() {
                writer.gauge((&format!("DCGM_FI_DEV_{name}"), help), samples)?;
            }
        }
        let xids = both.iter().filter_map(|(reading, device)| {
            let last = *seen.xids.get(&reading.pci)?;
            Some((self.labels(reading, device, None), count(last)))
        });
        let xids: Samples = xids.collect();
        if !xids.is_empty() {
            writer.gauge(("DCGM_FI_DEV_XID_ERRORS", XID), xids)?;
        }
        for (name, help, value) in INSTANCE_METRICS {
            let mut samples: Samples = Vec::new();
            for (reading, device) in &both {
                let mut reported = Vec::new();
                for unit in &device.units {
                    // Compute instances report values of their GPU instance: only the first of them counts.
                    let instance = instance(unit);
                    if let Some(value) = value(unit)
                        && !reported.contains(&instance)
                    {
                        reported.push(instance);
                        samples.push((self.labels(reading, device, Some(unit)), value));
                    }
                }
            }
            if !samples.is_empty() {
                writer.gauge((&format!("DCGM_FI_{name}"), help), samples)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_formatted_as_by_nvml() {
        let address = PciAddress::new(0, 0x3b, 0, 0).unwrap();
        assert_eq!(bus_id(address), "00000000:3B:00.0");
    }
}
