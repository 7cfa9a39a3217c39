//! Encoding and decoding of the parts `usage` and `past-usage`. Decoding limits every text, list and percentage.

use octavo_fleet::summary::{
    MAX_ITEMS, MAX_MISSING, MAX_PAST_ITEMS, MAX_PAST_USAGES, MAX_TENANT_ITEMS, past_items,
};
use octavo_model::quantity::Mebibytes;
use octavo_model::reading::{MemoryUse, Percent};
use octavo_model::resource::ShareId;
use octavo_model::text::MAX_WORD_BYTES;
use octavo_node::sharing::usage::{DeviceUsage, PastUsage, Tenant, UnitUsage, Usage};

use super::field::{
    FieldError, FieldResult, StatusProblem, bounded, bounded_text, each, optional_text,
    parse_field, parse_optional_field, percent,
};
use crate::proto::v1;

pub(super) fn write(usage: &Usage) -> v1::Usage {
    v1::Usage {
        devices: usage.devices.iter().map(write_device).collect(),
        missing: usage.missing.clone(),
        are_allocations_unknown: usage.are_allocations_unknown,
    }
}

pub(super) fn write_past<'a>(past: impl IntoIterator<Item = &'a PastUsage>) -> v1::PastUsages {
    let write = |one: &PastUsage| v1::PastUsage { at: one.at, usage: Some(write(&one.usage)) };
    v1::PastUsages { usages: past.into_iter().map(write).collect() }
}

fn write_device(device: &DeviceUsage) -> v1::DeviceUsage {
    v1::DeviceUsage {
        pci: device.pci.to_string(),
        name: device.name.clone(),
        memory: device.memory.map(write_memory),
        utilization: device.utilization.map(|percent| percent.0.into()),
        units: device.units.iter().map(write_unit).collect(),
        power_watts: device.power_watts,
        temperature_celsius: device.temperature_celsius,
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
        gpu_instance: unit.gpu_instance,
        compute_instance: unit.compute_instance,
        profile: unit.profile.clone(),
        resource: unit.resource.as_ref().map(ToString::to_string),
        replicas: unit.replicas,
        fair_share_mib: unit.fair_share.map(Mebibytes::get),
        memory: unit.memory.map(write_memory),
        utilization: unit.utilization.map(|percent| percent.0.into()),
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
        is_over: tenant.is_over_share,
        claim: tenant.claim.clone(),
    }
}

pub(super) fn read(usage: v1::Usage) -> FieldResult<Usage> {
    let mut devices = each("devices", MAX_ITEMS, usage.devices, read_device)?;
    devices.sort_by_key(|device| device.pci);
    let missing = bounded("missing", MAX_MISSING, usage.missing)?;
    let missing = missing.into_iter();
    Ok(Usage {
        devices,
        missing: missing
            .map(|sentence| bounded_text("missing", MAX_WORD_BYTES, sentence))
            .collect::<FieldResult<_>>()?,
        are_allocations_unknown: usage.are_allocations_unknown,
    })
}

pub(super) fn read_past(past: v1::PastUsages) -> FieldResult<Vec<PastUsage>> {
    let past = each("usages", MAX_PAST_USAGES, past.usages, |one| {
        let usage = one.usage.ok_or_else(|| FieldError::new("usage", StatusProblem::Missing))?;
        let usage = read(usage).map_err(|error| error.within("usage"))?;
        Ok(PastUsage { at: one.at, usage })
    })?;
    let count = past_items(&past);
    if count > MAX_PAST_ITEMS {
        let limit = MAX_PAST_ITEMS;
        return Err(FieldError::new("usages", StatusProblem::TooMany { count, limit }));
    }
    Ok(past)
}

fn read_device(device: v1::DeviceUsage) -> FieldResult<DeviceUsage> {
    Ok(DeviceUsage {
        pci: parse_field("pci", &device.pci)?,
        name: bounded_text("name", MAX_WORD_BYTES, device.name)?,
        memory: device.memory.map(read_memory),
        utilization: percent("utilization", device.utilization)?.map(Percent),
        power_watts: device.power_watts,
        temperature_celsius: device.temperature_celsius,
        units: each("units", MAX_ITEMS, device.units, read_unit)?,
    })
}

fn read_memory(memory: v1::MemoryUse) -> MemoryUse {
    MemoryUse {
        total: Mebibytes::new(memory.total_mib),
        used: Mebibytes::new(memory.used_mib),
        reserved: Mebibytes::new(memory.reserved_mib),
    }
}

fn read_unit(unit: v1::UnitUsage) -> FieldResult<UnitUsage> {
    match (unit.gpu_instance, unit.compute_instance) {
        (Some(_), Some(_)) | (None, None) => {}
        (None, Some(_)) => return Err(FieldError::new("gpu_instance", StatusProblem::Missing)),
        (Some(_), None) => return Err(FieldError::new("compute_instance", StatusProblem::Missing)),
    }
    Ok(UnitUsage {
        uuid: bounded_text("uuid", MAX_WORD_BYTES, unit.uuid)?,
        gpu_instance: unit.gpu_instance,
        compute_instance: unit.compute_instance,
        profile: optional_text("profile", MAX_WORD_BYTES, unit.profile)?,
        resource: parse_optional_field("resource", unit.resource.as_deref())?,
        replicas: unit.replicas,
        fair_share: unit.fair_share_mib.map(Mebibytes::new),
        memory: unit.memory.map(read_memory),
        utilization: percent("utilization", unit.utilization)?.map(Percent),
        tenants: each("tenants", MAX_ITEMS, unit.tenants, read_tenant)?,
        unattributed: unit.unattributed_mib.map(Mebibytes::new),
        exhausted_in: unit.exhausted_in_seconds,
        is_nearly_exhausted: unit.is_nearly_exhausted,
    })
}

fn read_tenant(tenant: v1::Tenant) -> FieldResult<Tenant> {
    let ids = bounded("ids", MAX_TENANT_ITEMS, tenant.ids)?;
    let ids = ids.iter().map(|id| parse_field::<ShareId>("ids", id));
    let uid = optional_text("uid", MAX_WORD_BYTES, tenant.uid)?;
    let tenant = Tenant {
        namespace: optional_text("namespace", MAX_WORD_BYTES, tenant.namespace)?,
        pod: optional_text("pod", MAX_WORD_BYTES, tenant.pod)?,
        container: optional_text("container", MAX_WORD_BYTES, tenant.container)?,
        claim: optional_text("claim", MAX_WORD_BYTES, tenant.claim)?,
        ids: ids.collect::<FieldResult<_>>()?,
        memory: tenant.memory_mib.map(Mebibytes::new),
        utilization: percent("utilization", tenant.utilization)?.map(Percent),
        processes: bounded("processes", MAX_TENANT_ITEMS, tenant.processes)?,
        is_over_share: tenant.is_over,
        ..Tenant::default()
    };
    Ok(tenant.with_uid(uid))
}
