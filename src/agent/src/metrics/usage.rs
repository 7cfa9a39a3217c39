//! Usage by pod as metrics: in base units, allocation separate from utilization, and unattributed usage as a number of
//! its own.
//!
//! Partitions are identified by device, GPU instance and compute instance, which recur after a change; UUIDs are only
//! on the `*_info` series. A value that a device does not support has no series. There are as many series as devices,
//! partitions and containers on them, up to `MAX_CONTAINER_SERIES` containers.

mod containers;
mod device_metrics;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use octavo_node::sharing::usage::{DeviceUsage, UnitUsage};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use self::containers::containers;
use self::device_metrics::{counted, devices, memory, vitals};
use super::dcgm::DcgmCollector;
use super::family_writer::{FamilyWriter, Labels, Samples, bytes, count, flag, ratio};
use crate::usage::UsageObservation;

/// Maximum number of containers with series of their own; those with the highest usage are retained. All others of a
/// unit are summed as `other`.
const MAX_CONTAINER_SERIES: usize = 1024;
/// Namespace of the series for all other containers. Every pod has a namespace, so this cannot be confused with a pod.
const OTHERS: &str = "other";

/// Observed usage as metrics. Clones share their state.
#[derive(Debug, Clone)]
pub struct UsageMetrics {
    seen: watch::Receiver<Arc<UsageObservation>>,
    dcgm: Option<String>,
}

impl UsageMetrics {
    /// Creates the metrics of an observer's results; with a host name, also in the format that dcgm-exporter uses on
    /// that host.
    pub fn new(seen: watch::Receiver<Arc<UsageObservation>>, dcgm: Option<String>) -> Self {
        Self { seen, dcgm }
    }

    /// Registers all metrics: Octavo's own names, and those of dcgm-exporter, which have no prefix.
    pub fn registries(&self) -> Vec<Registry> {
        let mut own = Registry::with_prefix("octavo");
        own.register_collector(Box::new(UsageCollector(self.seen.clone())));
        let mut all = vec![own];
        if let Some(host) = &self.dcgm {
            let mut dcgm = Registry::default();
            let view = DcgmCollector::new(self.seen.clone(), host.clone());
            dcgm.register_collector(Box::new(view));
            all.push(dcgm);
        }
        all
    }
}

#[derive(Debug)]
struct UsageCollector(watch::Receiver<Arc<UsageObservation>>);

impl Collector for UsageCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let seen = Arc::clone(&self.0.borrow());
        let mut writer = FamilyWriter(&mut encoder);
        write_scans(&mut writer, &seen)?;
        devices(&mut writer, &seen.usage.devices, &seen.readings)?;
        vitals(&mut writer, &seen.readings)?;
        counted(&mut writer, &seen.readings)?;
        units(&mut writer, &seen.usage.devices)?;
        containers(&mut writer, &seen.usage.devices)
    }
}

fn write_scans(writer: &mut FamilyWriter<'_, '_>, seen: &UsageObservation) -> fmt::Result {
    let answered = seen.answered;
    let sources = [
        ("driver", answered.driver),
        ("kubelet", answered.kubelet),
        ("processes", answered.processes),
    ];
    writer.gauge(
        (
            "usage_source_up",
            "Whether the source was read completely in the last usage scan (1) or not (0)",
        ),
        sources.map(|(source, up)| (vec![("source", source.to_owned())], flag(up))),
    )?;
    writer.gauge(
        ("usage_look_seconds", "Duration of the last usage scan, in seconds"),
        vec![(Vec::new(), seen.duration.as_secs_f64())],
    )?;
    writer.counter(("usage_looks", "Number of usage scans"), vec![(Vec::new(), count(seen.scans))])
}

fn units(writer: &mut FamilyWriter<'_, '_>, devices: &[DeviceUsage]) -> fmt::Result {
    let instances = instances(devices);
    memory(writer, "partition", |value| {
        let all = instances.iter();
        all.filter_map(|(labels, unit)| Some((labels.clone(), bytes(value(unit.memory?)))))
            .collect()
    })?;
    let busy = instances.iter();
    writer.gauge(
        ("partition_utilization_ratio", "Share of time in which at least one kernel was running on a GPU instance since the last usage scan, from 0 to 1; NVIDIA Hopper and later"),
        busy.filter_map(|(labels, unit)| Some((labels.clone(), ratio(unit.utilization?)))),
    )?;
    let rest = instances.iter();
    writer.gauge(
        ("partition_memory_unattributed_bytes", "Used memory of a partition that is not attributed to any known container or process, in bytes"),
        rest.filter_map(|(labels, unit)| Some((labels.clone(), bytes(unit.unattributed?)))),
    )?;
    let all = |value: fn(&UnitUsage) -> Option<f64>| -> Samples {
        let units =
            devices.iter().flat_map(|device| device.units.iter().map(move |unit| (device, unit)));
        units.filter_map(|(device, unit)| Some((place(device, unit), value(unit)?))).collect()
    };
    writer.gauge(
        ("unit_replicas", "Number of time-slicing replicas of a device or partition"),
        all(|unit| unit.replicas.map(f64::from)),
    )?;
    writer.gauge(
        ("unit_fair_share_bytes", "Memory that each replica can use without exceeding its equal share, in bytes; not enforced"),
        all(|unit| unit.fair_share.map(bytes)),
    )?;
    writer.gauge(
        ("unit_memory_exhausted_seconds", "Estimated time until the memory of a device or partition is exhausted at the recent growth rate, in seconds; absent without a reliable estimate"),
        all(|unit| unit.exhausted_in.map(count)),
    )
}

/// Returns each GPU instance once: its compute instances share one memory.
fn instances(devices: &[DeviceUsage]) -> Vec<(Labels, &UnitUsage)> {
    let mut found = BTreeMap::new();
    for device in devices {
        for unit in &device.units {
            let Some(gi) = unit.gpu_instance else {
                continue;
            };
            let profile = unit.profile.as_deref().unwrap_or_default();
            let profile = profile.split_once("c.").map_or(profile, |(_, whole)| whole);
            let labels = vec![
                ("device", number(device)),
                ("gi", gi.to_string()),
                ("profile", profile.to_owned()),
            ];
            found.entry((number(device), gi)).or_insert((labels, unit));
        }
    }
    found.into_values().collect()
}

/// Returns the labels of a unit; those of a partition are empty for a whole device.
fn place(device: &DeviceUsage, unit: &UnitUsage) -> Labels {
    let (gi, ci) = (unit.gpu_instance, unit.compute_instance);
    let text = |number: Option<u32>| number.map(|number| number.to_string()).unwrap_or_default();
    vec![
        ("device", number(device)),
        ("gi", text(gi)),
        ("ci", text(ci)),
        ("profile", unit.profile.clone().unwrap_or_default()),
    ]
}

/// Returns the number in `GPU 3`.
fn number(device: &DeviceUsage) -> String {
    let number = device.name.rsplit(' ').next();
    number.unwrap_or_default().to_owned()
}
