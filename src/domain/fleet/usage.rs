//! Who has what of a node, as the node tells it to others: rounded and bounded, so that what does not matter is no news.

use std::collections::BTreeSet;

use super::layout::word;
use crate::domain::quantity::Mebibytes;
use crate::domain::sharing::ShareId;
use crate::domain::sharing::usage::{DeviceUsage, MemoryUse, Percent, Tenant, UnitUsage, Usage};

/// Most devices of a node whose usage is told, most units of a device, most tenants of a unit.
pub const MOST_USED: usize = 256;
/// Most ids and most processes of one tenant.
pub const MOST_OF_TENANT: usize = 256;
/// Most sentences about what could not be looked at.
pub const MOST_MISSING: usize = 64;
/// Most bytes that the usage of a node may be when it is told.
pub const LARGEST_USAGE: usize = 64 * 1024;

/// Memory is told in steps of this, rounded up: what a process that idles allocates and frees is no news.
const STEP_MIB: u64 = 64;
/// Utilisation is told in steps of this many of a hundred.
const STEP_PERCENT: u8 = 5;
/// Time to exhaustion is told in steps of this, in seconds.
const STEP_SECONDS: u64 = 60;
/// Processes of a tenant that are told.
const FEW_PROCESSES: usize = 16;

/// What somebody should know of at once: a unit's UUID, and who is over their share; nobody where the unit itself is nearly
/// exhausted.
pub type Alarm = (String, Option<(String, String)>);

/// `usage` as it is told to others: with steps of memory, and of each device the `most` tenants that matter most. What is left
/// out is said so.
pub fn told(usage: &Usage, most: usize) -> Usage {
    let mut missing: Vec<String> = usage.missing.iter().map(|text| word(text)).collect();
    let devices = usage.devices.iter().take(MOST_USED);
    let devices = devices.map(|device| {
        let (device, left_out) = device_told(device, most);
        if left_out > 0 {
            let name = &device.name;
            missing.push(word(&format!(
                "{name}: {left_out} more who have it are not told"
            )));
        }
        device
    });
    let devices = devices.collect();
    missing.truncate(MOST_MISSING);
    Usage { devices, missing }
}

/// All that somebody should know of at once.
pub fn alarms(usage: &Usage) -> BTreeSet<Alarm> {
    let units = usage.devices.iter().flat_map(|device| &device.units);
    let mut alarms = BTreeSet::new();
    for unit in units {
        if unit.is_nearly_exhausted {
            alarms.insert((unit.uuid.clone(), None));
        }
        for tenant in unit.tenants.iter().filter(|tenant| tenant.is_over) {
            let name = |text: &Option<String>| text.clone().unwrap_or_default();
            let pod = format!("{}/{}", name(&tenant.namespace), name(&tenant.pod));
            alarms.insert((unit.uuid.clone(), Some((pod, name(&tenant.container)))));
        }
    }
    alarms
}

fn device_told(device: &DeviceUsage, most: usize) -> (DeviceUsage, usize) {
    let units = device.units.iter().take(MOST_USED);
    let mut ranked: Vec<(&Tenant, (usize, usize))> = Vec::new();
    for (at, unit) in units.clone().enumerate() {
        let tenants = unit.tenants.iter().enumerate();
        ranked.extend(tenants.map(|(number, tenant)| (tenant, (at, number))));
    }
    let all = ranked.len();
    // Who is over their share is told before all others.
    ranked.sort_by_key(|(tenant, place)| {
        let memory = tenant.memory.map(Mebibytes::get).unwrap_or_default();
        (!tenant.is_over, u64::MAX.saturating_sub(memory), *place)
    });
    ranked.truncate(most);
    let kept: BTreeSet<(usize, usize)> = ranked.iter().map(|(_, place)| *place).collect();
    let told = DeviceUsage {
        pci: device.pci,
        name: word(&device.name),
        memory: device.memory.map(memory),
        utilization: device.utilization.map(percent),
        units: units
            .enumerate()
            .map(|(at, unit)| unit_told(unit, |number| kept.contains(&(at, number))))
            .collect(),
    };
    (told, all.saturating_sub(kept.len()))
}

fn unit_told(unit: &UnitUsage, is_kept: impl Fn(usize) -> bool) -> UnitUsage {
    let tenants = unit.tenants.iter().enumerate();
    let tenants = tenants.filter(|(number, _)| is_kept(*number));
    UnitUsage {
        uuid: word(&unit.uuid),
        partition: unit.partition,
        profile: unit.profile.as_deref().map(word),
        resource: unit.resource.clone(),
        replicas: unit.replicas,
        fair_share: unit.fair_share,
        memory: unit.memory.map(memory),
        tenants: tenants
            .map(|(_, one)| tenant(one))
            .take(MOST_USED)
            .collect(),
        unattributed: unit.unattributed.map(step),
        exhausted_in: unit.exhausted_in.map(|seconds| up(seconds, STEP_SECONDS)),
        is_nearly_exhausted: unit.is_nearly_exhausted,
    }
}

/// Of a pod's UID the beginning is told: it tells the pod from an earlier one of that name, and stands for the name where that is not
/// known.
fn tenant(tenant: &Tenant) -> Tenant {
    // What would not be read back would make a reader refuse all of it.
    let is_id = |id: &&ShareId| {
        id.to_string()
            .parse::<ShareId>()
            .is_ok_and(|read| read == **id)
    };
    Tenant {
        namespace: tenant.namespace.as_deref().map(word),
        pod: tenant.pod.as_deref().map(word),
        uid: tenant.short_uid().map(|uid| word(&uid)),
        container: tenant.container.as_deref().map(word),
        ids: tenant
            .ids
            .iter()
            .filter(is_id)
            .take(MOST_OF_TENANT)
            .cloned()
            .collect(),
        memory: tenant.memory.map(step),
        utilization: tenant.utilization.map(percent),
        processes: tenant
            .processes
            .iter()
            .take(FEW_PROCESSES)
            .copied()
            .collect(),
        is_over: tenant.is_over,
    }
}

/// Not more than there is.
fn memory(memory: MemoryUse) -> MemoryUse {
    MemoryUse {
        total: memory.total,
        used: step(memory.used).min(memory.total),
        reserved: memory.reserved,
    }
}

/// So much memory, rounded up to a step.
pub(super) fn step(memory: Mebibytes) -> Mebibytes {
    Mebibytes::new(up(memory.get(), STEP_MIB))
}

fn up(number: u64, step: u64) -> u64 {
    number.div_ceil(step).saturating_mul(step)
}

fn percent(percent: Percent) -> Percent {
    Percent(percent_up(percent.0))
}

/// So many of a hundred, rounded up to a step.
pub(super) fn percent_up(percent: u8) -> u8 {
    let steps = percent.min(100).div_ceil(STEP_PERCENT);
    steps.saturating_mul(STEP_PERCENT)
}
