//! Usage of a node's devices for reporting: rounded and bounded, so that insignificant changes do not cause updates.

use std::collections::{BTreeMap, BTreeSet};

use octavo_model::id::PciAddress;
use octavo_model::quantity::Mebibytes;
use octavo_model::reading::{MemoryUse, Percent};
use octavo_model::resource::ShareId;
use octavo_model::text::truncated_word;
use octavo_node::sharing::usage::{DeviceUsage, MORE_TENANTS, PastUsage, Tenant, UnitUsage, Usage};

/// Maximum number of reported devices per node, units per device, and tenants per unit.
pub const MAX_ITEMS: usize = 256;
/// Maximum number of ids and of processes per tenant.
pub const MAX_TENANT_ITEMS: usize = 256;
/// Maximum number of messages about missing data.
pub const MAX_MISSING: usize = 64;
/// Maximum size of a node's usage report in bytes.
pub const MAX_USAGE_BYTES: usize = 64 * 1024;
/// Maximum number of past usages of a node.
pub const MAX_PAST_USAGES: usize = 1024;
/// Maximum number of [`past_items`], which limits the work for a small message with many changes of many tenants.
pub const MAX_PAST_ITEMS: usize = 100_000;

/// Memory is rounded up to multiples of this, so that small allocations of an idle process do not cause updates.
const STEP_MIB: u64 = 64;
/// Utilization is rounded up to multiples of this percentage.
const STEP_PERCENT: u8 = 5;
/// Time to exhaustion is rounded up to multiples of this number of seconds.
const STEP_SECONDS: u64 = 60;
/// Maximum number of reported processes per tenant.
const MAX_PROCESSES: usize = 16;

/// Condition that is reported immediately: UUID of a unit, and its tenant that exceeds the fair share; `None` if the
/// unit itself is nearly exhausted.
pub type Alarm = (String, Option<(String, String)>);

/// `usage` for reporting: rounded, and limited to the `most` most relevant tenants per device. Omissions are stated
/// in `missing`.
pub fn usage_for_report(usage: &Usage, most: usize) -> Usage {
    let mut missing: Vec<String> = usage.missing.iter().map(|text| truncated_word(text)).collect();
    let devices = usage.devices.iter().take(MAX_ITEMS);
    let devices = devices.map(|device| {
        let (device, left_out) = device_for_report(device, most);
        if left_out > 0 {
            let name = &device.name;
            missing.push(truncated_word(&format!("{name}: {left_out} {MORE_TENANTS}")));
        }
        device
    });
    let devices = devices.collect();
    missing.truncate(MAX_MISSING);
    Usage { devices, missing, are_allocations_unknown: usage.are_allocations_unknown }
}

/// The devices of a usage with their allocations, without measurements.
pub fn allocations_only(usage: &Usage) -> Vec<DeviceUsage> {
    let total = |memory: MemoryUse| MemoryUse { total: memory.total, ..MemoryUse::default() };
    let tenant = |tenant: &Tenant| Tenant {
        memory: tenant.memory.filter(|_| tenant.is_without_process()),
        utilization: None,
        processes: tenant.processes.iter().take(1).map(|_pid| 1).collect(),
        is_over_share: false,
        ..tenant.clone()
    };
    let unit = |unit: &UnitUsage| UnitUsage {
        fair_share: None,
        memory: unit.memory.map(total),
        utilization: None,
        tenants: unit.allocated_tenants().map(tenant).collect(),
        unattributed: None,
        exhausted_in: None,
        is_nearly_exhausted: false,
        ..unit.clone()
    };
    let devices = usage.devices.iter().map(|device| DeviceUsage {
        memory: device.memory.map(total),
        utilization: None,
        power_watts: None,
        temperature_celsius: None,
        units: device.units.iter().map(unit).collect(),
        ..device.clone()
    });
    devices.collect()
}

/// Number of devices, units and tenants in past usages, as if each contained all devices.
pub fn past_items<'a>(past: impl IntoIterator<Item = &'a PastUsage>) -> usize {
    let mut devices: BTreeMap<PciAddress, usize> = BTreeMap::new();
    let mut latest: usize = 0;
    let items = past.into_iter().map(|past| {
        for device in &past.usage.devices {
            let tenants: usize = device.units.iter().map(|unit| unit.tenants.len()).sum();
            let items = tenants.saturating_add(device.units.len()).saturating_add(1);
            let before = devices.insert(device.pci, items).unwrap_or_default();
            latest = latest.saturating_sub(before).saturating_add(items);
        }
        latest
    });
    items.fold(0, usize::saturating_add)
}

/// All conditions that are reported immediately.
pub fn alarms(usage: &Usage) -> BTreeSet<Alarm> {
    let units = usage.devices.iter().flat_map(|device| &device.units);
    let mut alarms = BTreeSet::new();
    for unit in units {
        if unit.is_nearly_exhausted {
            alarms.insert((unit.uuid.clone(), None));
        }
        for tenant in unit.tenants.iter().filter(|tenant| tenant.is_over_share) {
            let name = |text: &Option<String>| text.clone().unwrap_or_default();
            let pod = format!("{}/{}", name(&tenant.namespace), name(&tenant.pod));
            alarms.insert((unit.uuid.clone(), Some((pod, name(&tenant.container)))));
        }
    }
    alarms
}

fn device_for_report(device: &DeviceUsage, most: usize) -> (DeviceUsage, usize) {
    let units = device.units.iter().take(MAX_ITEMS);
    let mut ranked: Vec<(&Tenant, (usize, usize))> = Vec::new();
    for (at, unit) in units.clone().enumerate() {
        let tenants = unit.tenants.iter().enumerate();
        ranked.extend(tenants.map(|(number, tenant)| (tenant, (at, number))));
    }
    let all = ranked.len();
    // Tenants over their share come first.
    ranked.sort_by_key(|(tenant, place)| {
        let memory = tenant.memory.map(Mebibytes::get).unwrap_or_default();
        (!tenant.is_over_share, u64::MAX.saturating_sub(memory), *place)
    });
    ranked.truncate(most);
    let retained: BTreeSet<(usize, usize)> = ranked.iter().map(|(_, place)| *place).collect();
    let reported = DeviceUsage {
        pci: device.pci,
        name: truncated_word(&device.name),
        memory: device.memory.map(memory),
        utilization: device.utilization.map(percent),
        power_watts: device.power_watts,
        temperature_celsius: device.temperature_celsius,
        units: units
            .enumerate()
            .map(|(at, unit)| unit_for_report(unit, |number| retained.contains(&(at, number))))
            .collect(),
    };
    (reported, all.saturating_sub(retained.len()))
}

fn unit_for_report(unit: &UnitUsage, is_retained: impl Fn(usize) -> bool) -> UnitUsage {
    let tenants = unit.tenants.iter().enumerate();
    let tenants = tenants.filter(|(number, _)| is_retained(*number));
    UnitUsage {
        uuid: truncated_word(&unit.uuid),
        gpu_instance: unit.gpu_instance,
        compute_instance: unit.compute_instance,
        profile: unit.profile.as_deref().map(truncated_word),
        resource: unit.resource.clone(),
        replicas: unit.replicas,
        fair_share: unit.fair_share,
        memory: unit.memory.map(memory),
        utilization: unit.utilization.map(percent),
        tenants: tenants.map(|(_, one)| tenant(one)).take(MAX_ITEMS).collect(),
        unattributed: unit.unattributed.map(rounded_memory),
        exhausted_in: unit.exhausted_in.map(|seconds| round_up(seconds, STEP_SECONDS)),
        is_nearly_exhausted: unit.is_nearly_exhausted,
    }
}

/// Only the start of a pod's UID is reported: it distinguishes the pod from earlier ones of the same name, and
/// replaces the name if that is unknown.
fn tenant(tenant: &Tenant) -> Tenant {
    // A reader would reject the whole report because of one invalid id.
    let is_id = |id: &&ShareId| id.to_string().parse::<ShareId>().is_ok_and(|read| read == **id);
    Tenant {
        namespace: tenant.namespace.as_deref().map(truncated_word),
        pod: tenant.pod.as_deref().map(truncated_word),
        container: tenant.container.as_deref().map(truncated_word),
        claim: tenant.claim.as_deref().map(truncated_word),
        ids: tenant.ids.iter().filter(is_id).take(MAX_TENANT_ITEMS).cloned().collect(),
        memory: tenant.memory.map(rounded_memory),
        utilization: tenant.utilization.map(percent),
        processes: tenant.processes.iter().take(MAX_PROCESSES).copied().collect(),
        is_over_share: tenant.is_over_share,
        ..Tenant::default()
    }
    .with_uid(tenant.short_uid())
}

/// Rounds used memory up, limited to the total.
fn memory(memory: MemoryUse) -> MemoryUse {
    MemoryUse {
        total: memory.total,
        used: rounded_memory(memory.used).min(memory.total),
        reserved: memory.reserved,
    }
}

/// Rounds memory up to a step.
pub(super) fn rounded_memory(memory: Mebibytes) -> Mebibytes {
    Mebibytes::new(round_up(memory.get(), STEP_MIB))
}

fn round_up(number: u64, step: u64) -> u64 {
    number.div_ceil(step).saturating_mul(step)
}

fn percent(percent: Percent) -> Percent {
    Percent(rounded_percent(percent.0))
}

/// Rounds a percentage up to a step.
pub(super) fn rounded_percent(percent: u8) -> u8 {
    let steps = percent.min(100).div_ceil(STEP_PERCENT);
    steps.saturating_mul(STEP_PERCENT)
}
