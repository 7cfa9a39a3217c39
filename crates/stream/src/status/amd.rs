//! Encoding and decoding of AMD-specific device fields.

use octavo_model::inventory::{Amd, AmdPartition, PartitioningMode};
use octavo_model::quantity::Mebibytes;

use super::MAX_LIST_ITEMS;
use super::field::{FieldResult, each, nested, truncate_word};
use crate::proto::v1;

pub(super) fn write(amd: &Amd) -> v1::Amd {
    let partitions = amd.partitions.iter().map(|partition| v1::AmdPartition {
        render_minor: partition.render_minor,
        compute_units: partition.compute_units,
        memory_mib: partition.memory.map(Mebibytes::get),
    });
    v1::Amd {
        driver_version: amd.driver_version.clone(),
        unique_id: amd.unique_id.clone(),
        serial: amd.serial.clone(),
        gfx_target: amd.gfx_target.clone(),
        compute_units: amd.compute_units,
        hive: amd.hive,
        memory_used_mib: amd.memory_used.map(Mebibytes::get),
        compute: amd.compute.as_ref().map(write_mode),
        memory: amd.memory.as_ref().map(write_mode),
        partitions: partitions.collect(),
        virtual_function: amd.is_virtual,
    }
}

fn write_mode(mode: &PartitioningMode) -> v1::AmdMode {
    v1::AmdMode { current: mode.current.clone(), available: mode.available.clone() }
}

pub(super) fn read(amd: v1::Amd) -> FieldResult<Amd> {
    Ok(Amd {
        driver_version: amd.driver_version.map(truncate_word),
        unique_id: amd.unique_id.map(truncate_word),
        serial: amd.serial.map(truncate_word),
        gfx_target: amd.gfx_target.map(truncate_word),
        compute_units: amd.compute_units,
        hive: amd.hive,
        memory_used: amd.memory_used_mib.map(Mebibytes::new),
        compute: nested("compute", amd.compute, mode)?,
        memory: nested("memory", amd.memory, mode)?,
        partitions: each("partitions", MAX_LIST_ITEMS, amd.partitions, |partition| {
            Ok(AmdPartition {
                render_minor: partition.render_minor,
                compute_units: partition.compute_units,
                memory: partition.memory_mib.map(Mebibytes::new),
            })
        })?,
        is_virtual: amd.virtual_function,
    })
}

fn mode(mode: v1::AmdMode) -> FieldResult<PartitioningMode> {
    Ok(PartitioningMode {
        current: truncate_word(mode.current),
        available: each("available", MAX_LIST_ITEMS, mode.available, |name| {
            Ok(truncate_word(name))
        })?,
    })
}
