//! Metrics of devices.

use std::fmt;

use octavo_model::quantity::Mebibytes;
use octavo_model::reading::{DeviceMetrics, MemoryUse, Reading};
use octavo_node::sharing::usage::DeviceUsage;

use super::number;
use crate::metrics::family_writer::{FamilyWriter, Samples, bytes, count, flag, ratio};

pub(super) fn devices(
    sheet: &mut FamilyWriter<'_, '_>,
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
    sheet.gauge(
        (
            "device_info",
            "A device, to join other series with what it is: always 1",
        ),
        info.collect(),
    )?;
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
    sheet.gauge(
        (
            "partition_info",
            "A partition, to join other series with what it is: always 1",
        ),
        parts.collect(),
    )?;
    let of = |value: fn(&DeviceUsage) -> Option<Mebibytes>| -> Samples {
        let all = usage.iter();
        all.filter_map(|device| Some((vec![("device", number(device))], bytes(value(device)?))))
            .collect()
    };
    memory(sheet, "device", |value| {
        let all = usage.iter();
        all.filter_map(|device| {
            let labels = vec![("device", number(device))];
            Some((labels, bytes(value(device.memory?))))
        })
        .collect()
    })?;
    sheet.gauge(
        (
            "device_memory_unattributed_bytes",
            "Memory of a device that is used and is no container's and no process's that is known",
        ),
        of(DeviceUsage::unattributed),
    )
}

/// Writes total, used and driver-reserved memory.
pub(super) fn memory(
    sheet: &mut FamilyWriter<'_, '_>,
    whose: &str,
    of: impl Fn(fn(MemoryUse) -> Mebibytes) -> Samples,
) -> fmt::Result {
    let name = |what: &str| format!("{whose}_memory_{what}_bytes");
    let help = |what: &str| format!("Memory of a {whose}: {what}");
    for (what, words, value) in [
        (
            "total",
            "all there is",
            (|memory| memory.total) as fn(MemoryUse) -> Mebibytes,
        ),
        ("used", "what processes use", |memory| memory.used),
        ("reserved", "what the driver keeps for itself", |memory| {
            memory.reserved
        }),
    ] {
        sheet.gauge((&name(what), &help(words)), of(value))?;
    }
    Ok(())
}

/// Name, help text, and accessor of a reading's metric, in base units.
type Measure = (
    &'static str,
    &'static str,
    fn(&DeviceMetrics) -> Option<f64>,
);

pub(super) fn vitals(sheet: &mut FamilyWriter<'_, '_>, readings: &[Reading]) -> fmt::Result {
    const MEASURES: [Measure; 7] = [
        (
            "device_utilization_ratio",
            "For which part of the time anything ran on a device",
            |told| told.compute.map(ratio),
        ),
        (
            "device_memory_utilization_ratio",
            "For which part of the time a device's memory was read or written",
            |told| told.memory.map(ratio),
        ),
        (
            "device_encoder_utilization_ratio",
            "How busy a device's video encoders are",
            |told| told.encoder.map(ratio),
        ),
        (
            "device_decoder_utilization_ratio",
            "How busy a device's video decoders are",
            |told| told.decoder.map(ratio),
        ),
        ("device_power_watts", "What a device draws", |told| {
            told.power_mw.map(|power| f64::from(power) / 1e3)
        }),
        (
            "device_temperature_celsius",
            "Temperature of a device's chip",
            |told| told.temperature.map(f64::from),
        ),
        (
            "device_memory_temperature_celsius",
            "Temperature of a device's memory",
            |told| told.memory_temperature.map(f64::from),
        ),
    ];
    for (name, help, value) in MEASURES {
        sheet.gauge((name, help), each(readings, value))?;
    }
    clocks(sheet, readings)?;
    rows(sheet, readings)
}

fn clocks(sheet: &mut FamilyWriter<'_, '_>, readings: &[Reading]) -> fmt::Result {
    let clocks = readings.iter().flat_map(|reading| {
        let DeviceMetrics {
            compute_clock,
            memory_clock,
            ..
        } = reading.metrics;
        let both = [("compute", compute_clock), ("memory", memory_clock)];
        both.into_iter().filter_map(|(clock, mhz)| {
            let labels = vec![("device", reading.label()), ("clock", clock.to_owned())];
            Some((labels, f64::from(mhz?) * 1e6))
        })
    });
    sheet.gauge(
        (
            "device_clock_hertz",
            "How fast a device's multiprocessors and its memory run",
        ),
        clocks.collect(),
    )
}

/// Writes whether rows of memory are pending a remap, or could not be remapped.
fn rows(sheet: &mut FamilyWriter<'_, '_>, readings: &[Reading]) -> fmt::Result {
    let rows = |value: fn(bool, bool) -> bool| {
        readings
            .iter()
            .filter_map(move |reading| {
                let rows = reading.metrics.remapped_rows?;
                let labels = vec![("device", reading.label())];
                Some((labels, flag(value(rows.pending, rows.failed))))
            })
            .collect()
    };
    sheet.gauge(
        (
            "device_row_remap_pending",
            "Whether a device waits for a reset to remap rows of its memory",
        ),
        rows(|pending, _| pending),
    )?;
    sheet.gauge(
        (
            "device_row_remap_failed",
            "Whether rows of a device's memory could not be remapped",
        ),
        rows(|_, failed| failed),
    )
}

/// Two numbers of a reading with their label values.
type LabeledPair = [(&'static str, Option<u64>); 2];

pub(super) fn counted(sheet: &mut FamilyWriter<'_, '_>, readings: &[Reading]) -> fmt::Result {
    sheet.counter(
        (
            "device_energy_joules",
            "What a device has drawn since its driver was loaded",
        ),
        each(readings, |told| {
            told.energy_mj.map(|energy| count(energy) / 1e3)
        }),
    )?;
    sheet.counter(
        (
            "device_pcie_replays",
            "PCIe packets that a device had to send again",
        ),
        each(readings, |told| told.pcie_replays.map(f64::from)),
    )?;
    let by_kind = |label: &'static str, value: fn(&DeviceMetrics) -> LabeledPair| {
        let all = readings.iter().flat_map(move |reading| {
            let both = value(&reading.metrics).into_iter();
            both.filter_map(move |(kind, number)| {
                let device = ("device", reading.label());
                Some((vec![device, (label, kind.to_owned())], count(number?)))
            })
        });
        all.collect()
    };
    sheet.counter(
        (
            "device_memory_errors",
            "Errors in a device's memory since its driver was loaded",
        ),
        by_kind("kind", |told| {
            [
                ("corrected", told.corrected_errors),
                ("uncorrected", told.uncorrected_errors),
            ]
        }),
    )?;
    sheet.counter(
        (
            "device_remapped_rows",
            "Rows of a device's memory that were remapped, by what went wrong in them",
        ),
        by_kind("cause", |told| {
            let rows = told.remapped_rows;
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
