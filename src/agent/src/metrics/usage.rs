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
use super::family_writer::{FamilyWriter, Labels, Samples, bytes, count, flag};
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
        let mut sheet = FamilyWriter(&mut encoder);
        looks(&mut sheet, &seen)?;
        devices(&mut sheet, &seen.usage.devices, &seen.readings)?;
        vitals(&mut sheet, &seen.readings)?;
        counted(&mut sheet, &seen.readings)?;
        units(&mut sheet, &seen.usage.devices)?;
        containers(&mut sheet, &seen.usage.devices)
    }
}

fn looks(sheet: &mut FamilyWriter<'_, '_>, seen: &UsageObservation) -> fmt::Result {
    let answered = seen.answered;
    let sources = [
        ("driver", answered.driver),
        ("kubelet", answered.kubelet),
        ("processes", answered.processes),
    ];
    sheet.gauge(
        (
            "usage_source_up",
            "Whether it told, in the last look who uses what, what it knows",
        ),
        sources
            .map(|(source, up)| (vec![("source", source.to_owned())], flag(up)))
            .into(),
    )?;
    sheet.gauge(
        ("usage_look_seconds", "How long the last look took"),
        vec![(Vec::new(), seen.duration.as_secs_f64())],
    )?;
    sheet.counter(
        ("usage_looks", "Looks who uses what"),
        vec![(Vec::new(), count(seen.scans))],
    )
}

fn units(sheet: &mut FamilyWriter<'_, '_>, devices: &[DeviceUsage]) -> fmt::Result {
    let instances = instances(devices);
    memory(sheet, "partition", |value| {
        let all = instances.iter();
        all.filter_map(|(labels, unit)| Some((labels.clone(), bytes(value(unit.memory?)))))
            .collect()
    })?;
    let rest = instances.iter();
    sheet.gauge(
        ("partition_memory_unattributed_bytes", "Memory of a partition that is used and is no container's and no process's that is known"),
        rest.filter_map(|(labels, unit)| Some((labels.clone(), bytes(unit.unattributed?))))
            .collect(),
    )?;
    let all = |value: fn(&UnitUsage) -> Option<f64>| -> Samples {
        let units = devices
            .iter()
            .flat_map(|device| device.units.iter().map(move |unit| (device, unit)));
        units
            .filter_map(|(device, unit)| Some((place(device, unit), value(unit)?)))
            .collect()
    };
    sheet.gauge(
        (
            "unit_replicas",
            "How many containers may have a device or partition by turns",
        ),
        all(|unit| unit.replicas.map(f64::from)),
    )?;
    sheet.gauge(
        (
            "unit_fair_share_bytes",
            "How much memory each of them may use, so that all can",
        ),
        all(|unit| unit.fair_share.map(bytes)),
    )?;
    sheet.gauge(
        ("unit_memory_exhausted_seconds", "How long the memory of a device or partition lasts if it is used up as fast as of late; absent where that means nothing"),
        all(|unit| unit.exhausted_in.map(count)),
    )
}

/// Returns each GPU instance once: its compute instances share one memory.
fn instances(devices: &[DeviceUsage]) -> Vec<(Labels, &UnitUsage)> {
    let mut found = BTreeMap::new();
    for device in devices {
        for unit in &device.units {
            let Some((gi, _)) = unit.partition else {
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
    let (gi, ci) = unit.partition.unzip();
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
