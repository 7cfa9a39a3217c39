//! Metrics of containers: their allocation and usage.

use std::collections::BTreeMap;
use std::fmt;

use octavo_model::quantity::Mebibytes;
use octavo_model::reading::Percent;
use octavo_node::sharing::usage::{DeviceUsage, Tenant, UnitUsage};

use super::{MAX_CONTAINER_SERIES, OTHERS, place};
use crate::metrics::family_writer::{FamilyWriter, Samples, bytes, flag, ratio};

/// Numbers of one container on a unit.
#[derive(Debug, Clone, Default)]
struct ContainerUsage {
    allocated: Option<f64>,
    memory: Option<u64>,
    utilization: Option<u32>,
    over: Option<bool>,
}

pub(super) fn containers(
    writer: &mut FamilyWriter<'_, '_>,
    devices: &[DeviceUsage],
) -> fmt::Result {
    let mut all: Vec<(&DeviceUsage, &UnitUsage, &Tenant)> = devices
        .iter()
        .flat_map(|device| device.units.iter().map(move |unit| (device, unit)))
        .flat_map(|(device, unit)| unit.tenants.iter().map(move |one| (device, unit, one)))
        .collect();
    if all.len() > MAX_CONTAINER_SERIES {
        all.sort_by_key(|(.., tenant)| std::cmp::Reverse(tenant.memory));
    }
    let mut found: BTreeMap<Vec<(&'static str, String)>, ContainerUsage> = BTreeMap::new();
    for (at, (device, unit, tenant)) in all.into_iter().enumerate() {
        let mut labels = place(device, unit);
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let names = if at < MAX_CONTAINER_SERIES {
            // A pod of which only the UID is known is identified by it.
            let pod = tenant.pod.as_ref().or(tenant.uid.as_ref()).cloned();
            (text(&tenant.namespace), pod.unwrap_or_default(), text(&tenant.container))
        } else {
            (String::new(), OTHERS.to_owned(), String::new())
        };
        labels.extend([("namespace", names.0), ("pod", names.1), ("container", names.2)]);
        let claim = tenant.claim.as_ref().filter(|_| at < MAX_CONTAINER_SERIES);
        labels.extend(claim.map(|claim| ("claim", claim.clone())));
        found.entry(labels).or_default().add(unit, tenant);
    }
    let samples = |value: fn(&ContainerUsage) -> Option<f64>| -> Samples {
        let all = found.iter();
        all.filter_map(|(labels, one)| Some((labels.clone(), value(one)?))).collect()
    };
    writer.gauge(
        (
            "container_allocated",
            "Number of replicas of a device or partition allocated to a container; 1 if it is not shared",
        ),
        samples(|one| one.allocated),
    )?;
    writer.gauge(
        (
            "container_memory_used_bytes",
            "Device memory used by the processes of a container, in bytes",
        ),
        samples(|one| one.memory.map(|memory| bytes(Mebibytes::new(memory)))),
    )?;
    writer.gauge(
        (
            "container_utilization_ratio",
            "Share of time in which processes of a container ran on a device, from 0 to 1",
        ),
        samples(|one| one.utilization.map(|sum| ratio(Percent::saturating_from(sum)))),
    )?;
    writer.gauge(
        ("container_memory_over_share", "Whether a container uses more than its share of the memory of a shared device or partition (1) or not (0)"),
        samples(|one| one.over.map(flag)),
    )
}

impl ContainerUsage {
    fn add(&mut self, unit: &UnitUsage, tenant: &Tenant) {
        if !tenant.ids.is_empty() {
            let ids = u32::try_from(tenant.ids.len()).unwrap_or(u32::MAX);
            *self.allocated.get_or_insert_default() += f64::from(ids);
            if unit.fair_share.is_some() {
                *self.over.get_or_insert_default() |= tenant.is_over_share;
            }
        }
        if let Some(memory) = tenant.memory {
            let sum = self.memory.get_or_insert_default();
            *sum = sum.saturating_add(memory.get());
        }
        if let Some(percent) = tenant.utilization {
            let sum = self.utilization.get_or_insert_default();
            *sum = sum.saturating_add(percent.0.into());
        }
    }
}
