//! Metrics of devices.

use std::fmt;

use octavo_model::quantity::Mebibytes;
use octavo_model::reading::{DeviceMetrics, MemoryUse, Reading};
use octavo_node::sharing::usage::DeviceUsage;

use super::number;
use crate::metrics::family_writer::{FamilyWriter, Samples, bytes, count, flag, ratio};

pub(super) fn devices(
    writer: &mut FamilyWriter<'_, '_>,
    usage: &[DeviceUsage],
    readings: &[Reading],
) -> fmt::Result {
    let info = readings.iter().map(|reading| {
        let uuid = reading.uuid.as_ref().map(ToString::to_string);
        let labels = vec![
            ("device", reading.label()),
            ("pci", reading.pci.to_string()),
            ("uuid", uuid.unwrap_or_default()),
            ("product", reading.product_name.clone().unwrap_or_default()),
        ];
        (labels, 1.0)
    });
    writer.gauge(("device_info", "Device identity as labels; always 1"), info)?;
    let parts = readings.iter().flat_map(|reading| {
        let all = reading.partitions.iter();
        all.map(move |part| {
            let labels = vec![
                ("device", reading.label()),
                ("gi", part.gpu_instance.to_string()),
                ("ci", part.compute_instance.to_string()),
                ("profile", part.profile.clone().unwrap_or_default()),
                ("uuid", part.uuid.clone()),
            ];
            (labels, 1.0)
        })
    });
    writer.gauge(("partition_info", "Partition identity as labels; always 1"), parts)?;
    let samples = |value: fn(&DeviceUsage) -> Option<Mebibytes>| -> Samples {
        let all = usage.iter();
        all.filter_map(|device| Some((vec![("device", number(device))], bytes(value(device)?))))
            .collect()
    };
    memory(writer, "device", |value| {
        let all = usage.iter();
        all.filter_map(|device| {
            let labels = vec![("device", number(device))];
            Some((labels, bytes(value(device.memory?))))
        })
        .collect()
    })?;
    writer.gauge(
        (
            "device_memory_unattributed_bytes",
            "Used memory of a device that is not attributed to any known container or process, in bytes",
        ),
        samples(DeviceUsage::unattributed),
    )
}

/// Writes total, used and driver-reserved memory.
pub(super) fn memory(
    writer: &mut FamilyWriter<'_, '_>,
    whose: &str,
    samples: impl Fn(fn(MemoryUse) -> Mebibytes) -> Samples,
) -> fmt::Result {
    let name = |what: &str| format!("{whose}_memory_{what}_bytes");
    let help = |what: &str| format!("{what} memory of a {whose}, in bytes");
    for (what, words, value) in [
        ("total", "Total", (|memory| memory.total) as fn(MemoryUse) -> Mebibytes),
        ("used", "Used", |memory| memory.used),
        ("reserved", "Driver-reserved", |memory| memory.reserved),
    ] {
        writer.gauge((&name(what), &help(words)), samples(value))?;
    }
    Ok(())
}

/// Name, help text, and accessor of a reading's metric, in base units.
type Measure = (&'static str, &'static str, fn(&DeviceMetrics) -> Option<f64>);

pub(super) fn vitals(writer: &mut FamilyWriter<'_, '_>, readings: &[Reading]) -> fmt::Result {
    const MEASURES: [Measure; 7] = [
        (
            "device_utilization_ratio",
            "Share of time in which at least one kernel was running on a device, from 0 to 1",
            |reading| reading.compute.map(ratio),
        ),
        (
            "device_memory_utilization_ratio",
            "Share of time in which the memory of a device was read or written, from 0 to 1",
            |reading| reading.memory.map(ratio),
        ),
        (
            "device_encoder_utilization_ratio",
            "Video encoder utilization of a device, from 0 to 1",
            |reading| reading.encoder.map(ratio),
        ),
        (
            "device_decoder_utilization_ratio",
            "Video decoder utilization of a device, from 0 to 1",
            |reading| reading.decoder.map(ratio),
        ),
        ("device_power_watts", "Power draw of a device, in watts", |reading| {
            reading.power_mw.map(|power| f64::from(power) / 1e3)
        }),
        (
            "device_temperature_celsius",
            "GPU temperature of a device, in degrees Celsius",
            |reading| reading.temperature.map(f64::from),
        ),
        (
            "device_memory_temperature_celsius",
            "Memory temperature of a device, in degrees Celsius",
            |reading| reading.memory_temperature.map(f64::from),
        ),
    ];
    for (name, help, value) in MEASURES {
        writer.gauge((name, help), each(readings, value))?;
    }
    clocks(writer, readings)?;
    rows(writer, readings)
}

fn clocks(writer: &mut FamilyWriter<'_, '_>, readings: &[Reading]) -> fmt::Result {
    let clocks = readings.iter().flat_map(|reading| {
        let DeviceMetrics { compute_clock, memory_clock, .. } = reading.metrics;
        let both = [("compute", compute_clock), ("memory", memory_clock)];
        both.into_iter().filter_map(|(clock, mhz)| {
            let labels = vec![("device", reading.label()), ("clock", clock.to_owned())];
            Some((labels, f64::from(mhz?) * 1e6))
        })
    });
    writer.gauge(
        ("device_clock_hertz", "Compute and memory clock frequency of a device, in hertz"),
        clocks,
    )
}

/// Writes whether rows of memory are pending a remap, or could not be remapped.
fn rows(writer: &mut FamilyWriter<'_, '_>, readings: &[Reading]) -> fmt::Result {
    let rows = |value: fn(bool, bool) -> bool| {
        readings.iter().filter_map(move |reading| {
            let rows = reading.metrics.remapped_rows?;
            let labels = vec![("device", reading.label())];
            Some((labels, flag(value(rows.pending, rows.failed))))
        })
    };
    writer.gauge(
        (
            "device_row_remap_pending",
            "Whether a memory row remapping of a device is pending until a reset (1) or not (0)",
        ),
        rows(|pending, _| pending),
    )?;
    writer.gauge(
        (
            "device_row_remap_failed",
            "Whether a memory row remapping of a device failed (1) or not (0)",
        ),
        rows(|_, failed| failed),
    )
}

/// Two numbers of a reading with their label values.
type LabeledPair = [(&'static str, Option<u64>); 2];

pub(super) fn counted(writer: &mut FamilyWriter<'_, '_>, readings: &[Reading]) -> fmt::Result {
    writer.counter(
        (
            "device_energy_joules",
            "Energy consumed by a device since its driver was loaded, in joules",
        ),
        each(readings, |reading| reading.energy_mj.map(|energy| count(energy) / 1e3)),
    )?;
    writer.counter(
        ("device_pcie_replays", "Number of PCIe replays of a device"),
        each(readings, |reading| reading.pcie_replays.map(f64::from)),
    )?;
    let by_kind = |label: &'static str, value: fn(&DeviceMetrics) -> LabeledPair| {
        readings.iter().flat_map(move |reading| {
            let both = value(&reading.metrics).into_iter();
            both.filter_map(move |(kind, number)| {
                let device = ("device", reading.label());
                Some((vec![device, (label, kind.to_owned())], count(number?)))
            })
        })
    };
    writer.counter(
        ("device_memory_errors", "Number of memory errors of a device since its driver was loaded"),
        by_kind("kind", |reading| {
            [("corrected", reading.corrected_errors), ("uncorrected", reading.uncorrected_errors)]
        }),
    )?;
    writer.counter(
        ("device_remapped_rows", "Number of remapped memory rows of a device, by cause"),
        by_kind("cause", |reading| {
            let rows = reading.remapped_rows;
            [
                ("correctable", rows.map(|rows| rows.correctable.into())),
                ("uncorrectable", rows.map(|rows| rows.uncorrectable.into())),
            ]
        }),
    )
}

fn each(readings: &[Reading], value: impl Fn(&DeviceMetrics) -> Option<f64>) -> Samples {
    let all = readings.iter();
    all.filter_map(|reading| {
        let labels = vec![("device", reading.label())];
        Some((labels, value(&reading.metrics)?))
    })
    .collect()
}
