//! Encoding and decoding of the part `usage`. Decoding limits every text, list and percentage.

use super::error::{FieldError, StatusProblem};
use super::field::{Read, bounded, each, parsed, parsed_if_there, text, text_if_there, within};
use crate::domain::fleet::{LONGEST_WORD, MOST_MISSING, MOST_OF_TENANT, MOST_USED};
use crate::domain::quantity::Mebibytes;
use crate::domain::sharing::ShareId;
use crate::domain::sharing::usage::{DeviceUsage, MemoryUse, Percent, Tenant, UnitUsage, Usage};
use crate::proto::v1;

pub(super) fn write(usage: &Usage) -> v1::Usage {
    v1::Usage {
        devices: usage.devices.iter().map(write_device).collect(),
        missing: usage.missing.clone(),
    }
}

fn write_device(device: &DeviceUsage) -> v1::DeviceUsage {
    v1::DeviceUsage {
        pci: device.pci.to_string(),
        name: device.name.clone(),
        memory: device.memory.map(write_memory),
        utilization: device.utilization.map(|percent| percent.0.into()),
        units: device.units.iter().map(write_unit).collect(),
    }
}

fn write_memory(memory: MemoryUse) -> v1::MemoryUse {
    v1::MemoryUse {
        total_mib: memory.total.get(),
        used_mib: memory.used.get(),
        reserved_mib: memory.reserved.get(),
    }
}

fn write_unit(unit: &UnitUsage) -> v1::UnitUsage {
    v1::UnitUsage {
        uuid: unit.uuid.clone(),
        gpu_instance: unit.partition.map(|(gpu_instance, _)| gpu_instance),
        compute_instance: unit.partition.map(|(_, compute_instance)| compute_instance),
        profile: unit.profile.clone(),
        resource: unit.resource.as_ref().map(ToString::to_string),
        replicas: unit.replicas,
        fair_share_mib: unit.fair_share.map(Mebibytes::get),
        memory: unit.memory.map(write_memory),
        tenants: unit.tenants.iter().map(write_tenant).collect(),
        unattributed_mib: unit.unattributed.map(Mebibytes::get),
        exhausted_in_seconds: unit.exhausted_in,
        is_nearly_exhausted: unit.is_nearly_exhausted,
    }
}

fn write_tenant(tenant: &Tenant) -> v1::Tenant {
    v1::Tenant {
        namespace: tenant.namespace.clone(),
        pod: tenant.pod.clone(),
        uid: tenant.uid.clone(),
        container: tenant.container.clone(),
        ids: tenant.ids.iter().map(ToString::to_string).collect(),
        memory_mib: tenant.memory.map(Mebibytes::get),
        utilization: tenant.utilization.map(|percent| percent.0.into()),
        processes: tenant.processes.clone(),
        is_over: tenant.is_over,
    }
}

pub(super) fn read(usage: v1::Usage) -> Read<Usage> {
    let mut devices = each("devices", MOST_USED, usage.devices, read_device)?;
    devices.sort_by_key(|device| device.pci);
    let missing = bounded("missing", MOST_MISSING, usage.missing)?;
    let missing = missing.into_iter();
    Ok(Usage {
        devices,
        missing: missing
            .map(|sentence| text("missing", LONGEST_WORD, sentence))
            .collect::<Read<_>>()?,
    })
}

fn read_device(device: v1::DeviceUsage) -> Read<DeviceUsage> {
    Ok(DeviceUsage {
        pci: parsed("pci", &device.pci)?,
        name: text("name", LONGEST_WORD, device.name)?,
        memory: device.memory.map(read_memory),
        utilization: read_percent(device.utilization)?,
        units: each("units", MOST_USED, device.units, read_unit)?,
    })
}

fn read_memory(memory: v1::MemoryUse) -> MemoryUse {
    MemoryUse {
        total: Mebibytes::new(memory.total_mib),
        used: Mebibytes::new(memory.used_mib),
        reserved: Mebibytes::new(memory.reserved_mib),
    }
}

fn read_percent(number: Option<u32>) -> Read<Option<Percent>> {
    let number = number.map(|number| within("utilization", number, 100));
    // Values up to 100 fit in a `u8`.
    let percent = |number| Percent(u8::try_from(number).unwrap_or(u8::MAX));
    Ok(number.transpose()?.map(percent))
}

fn read_unit(unit: v1::UnitUsage) -> Read<UnitUsage> {
    let partition = match (unit.gpu_instance, unit.compute_instance) {
        (Some(gpu_instance), Some(compute_instance)) => Some((gpu_instance, compute_instance)),
        (None, None) => None,
        (None, Some(_)) => return Err(FieldError::new("gpu_instance", StatusProblem::Missing)),
        (Some(_), None) => return Err(FieldError::new("compute_instance", StatusProblem::Missing)),
    };
    Ok(UnitUsage {
        uuid: text("uuid", LONGEST_WORD, unit.uuid)?,
        partition,
        profile: text_if_there("profile", LONGEST_WORD, unit.profile)?,
        resource: parsed_if_there("resource", unit.resource.as_deref())?,
        replicas: unit.replicas,
        fair_share: unit.fair_share_mib.map(Mebibytes::new),
        memory: unit.memory.map(read_memory),
        tenants: each("tenants", MOST_USED, unit.tenants, read_tenant)?,
        unattributed: unit.unattributed_mib.map(Mebibytes::new),
        exhausted_in: unit.exhausted_in_seconds,
        is_nearly_exhausted: unit.is_nearly_exhausted,
    })
}

fn read_tenant(tenant: v1::Tenant) -> Read<Tenant> {
    let ids = bounded("ids", MOST_OF_TENANT, tenant.ids)?;
    let ids = ids.iter().map(|id| parsed::<ShareId>("ids", id));
    Ok(Tenant {
        namespace: text_if_there("namespace", LONGEST_WORD, tenant.namespace)?,
        pod: text_if_there("pod", LONGEST_WORD, tenant.pod)?,
        uid: text_if_there("uid", LONGEST_WORD, tenant.uid)?,
        container: text_if_there("container", LONGEST_WORD, tenant.container)?,
        ids: ids.collect::<Read<_>>()?,
        memory: tenant.memory_mib.map(Mebibytes::new),
        utilization: read_percent(tenant.utilization)?,
        processes: bounded("processes", MOST_OF_TENANT, tenant.processes)?,
        is_over: tenant.is_over,
    })
}
