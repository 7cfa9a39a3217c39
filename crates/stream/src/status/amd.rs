//! Conversion of AMD-specific device fields to and from Protobuf.

use octavo_fleet::fleet::MAX_WORD_BYTES;
use octavo_model::inventory::{Amd, AmdPartition, PartitioningMode};
use octavo_model::quantity::Mebibytes;

use super::MAX_LIST_ITEMS;
use super::field::{FieldResult, bounded, truncate_optional, truncate_to};
use crate::proto::v1;

pub(super) fn write(amd: &Amd) -> v1::Amd {
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
        partitions: amd.partitions.iter().map(write_partition).collect(),
        virtual_function: amd.is_virtual,
    }
}

fn write_mode(mode: &PartitioningMode) -> v1::AmdMode {
    v1::AmdMode {
        current: mode.current.clone(),
        available: mode.available.clone(),
    }
}

fn write_partition(partition: &AmdPartition) -> v1::AmdPartition {
    v1::AmdPartition {
        render_minor: partition.render_minor,
        compute_units: partition.compute_units,
        memory_mib: partition.memory.map(Mebibytes::get),
    }
}

pub(super) fn read(amd: v1::Amd) -> FieldResult<Amd> {
    let compute = amd.compute.map(mode).transpose();
    let memory = amd.memory.map(mode).transpose();
    let word = |text| truncate_optional(MAX_WORD_BYTES, text);
    Ok(Amd {
        driver_version: word(amd.driver_version),
        unique_id: word(amd.unique_id),
        serial: word(amd.serial),
        gfx_target: word(amd.gfx_target),
        compute_units: amd.compute_units,
        hive: amd.hive,
        memory_used: amd.memory_used_mib.map(Mebibytes::new),
        compute: compute.map_err(|error| error.within("compute"))?,
        memory: memory.map_err(|error| error.within("memory"))?,
        partitions: bounded("partitions", MAX_LIST_ITEMS, amd.partitions)?
            .into_iter()
            .map(partition)
            .collect(),
        is_virtual: amd.virtual_function,
    })
}

fn mode(mode: v1::AmdMode) -> FieldResult<PartitioningMode> {
    Ok(PartitioningMode {
        current: truncate_to(MAX_WORD_BYTES, mode.current),
        available: bounded("available", MAX_LIST_ITEMS, mode.available)?
            .into_iter()
            .map(|one| truncate_to(MAX_WORD_BYTES, one))
            .collect(),
    })
}

fn partition(partition: v1::AmdPartition) -> AmdPartition {
    AmdPartition {
        render_minor: partition.render_minor,
        compute_units: partition.compute_units,
        memory: partition.memory_mib.map(Mebibytes::new),
    }
}
