//! AMD-specific fields of a device.

use octavo_model::inventory::{Amd, AmdPartition, PartitioningMode};
use octavo_model::quantity::Mebibytes;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::error::{FieldError, FieldProblem};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct AmdJson {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    driver_version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unique_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    serial: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gfx_target: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    compute_units: Option<u32>,
    /// 16 hexadecimal digits: as a number it would be more than many readers of JSON can hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hive: Option<String>,
    #[serde(
        default,
        rename = "memoryUsedMiB",
        skip_serializing_if = "Option::is_none"
    )]
    memory_used_mib: Option<u64>,
    /// Left out where its compute cannot be partitioned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    compute_partition: Option<ModeJson>,
    /// Left out where its memory cannot be partitioned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memory_partition: Option<ModeJson>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    partitions: Vec<AmdPartitionJson>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    virtual_function: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ModeJson {
    current: String,
    #[serde(default)]
    available: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AmdPartitionJson {
    render_minor: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    compute_units: Option<u32>,
    #[serde(default, rename = "memoryMiB", skip_serializing_if = "Option::is_none")]
    memory_mib: Option<u64>,
}

impl From<&Amd> for AmdJson {
    fn from(amd: &Amd) -> Self {
        Self {
            driver_version: amd.driver_version.clone(),
            unique_id: amd.unique_id.clone(),
            serial: amd.serial.clone(),
            gfx_target: amd.gfx_target.clone(),
            compute_units: amd.compute_units,
            hive: amd.hive.map(|hive| format!("{hive:016x}")),
            memory_used_mib: amd.memory_used.map(Mebibytes::get),
            compute_partition: amd.compute.as_ref().map(ModeJson::from),
            memory_partition: amd.memory.as_ref().map(ModeJson::from),
            partitions: amd.partitions.iter().map(AmdPartitionJson::from).collect(),
            virtual_function: amd.is_virtual,
        }
    }
}

impl From<&PartitioningMode> for ModeJson {
    fn from(mode: &PartitioningMode) -> Self {
        Self {
            current: mode.current.clone(),
            available: mode.available.clone(),
        }
    }
}

impl From<&AmdPartition> for AmdPartitionJson {
    fn from(partition: &AmdPartition) -> Self {
        Self {
            render_minor: partition.render_minor,
            compute_units: partition.compute_units,
            memory_mib: partition.memory.map(Mebibytes::get),
        }
    }
}

pub(super) fn amd(json: AmdJson) -> Result<Amd, FieldError> {
    Ok(Amd {
        driver_version: json.driver_version,
        unique_id: json.unique_id,
        serial: json.serial,
        gfx_target: json.gfx_target,
        compute_units: json.compute_units,
        hive: json.hive.map(hive).transpose()?,
        memory_used: json.memory_used_mib.map(Mebibytes::new),
        compute: json.compute_partition.map(mode),
        memory: json.memory_partition.map(mode),
        partitions: json.partitions.into_iter().map(partition).collect(),
        is_virtual: json.virtual_function,
    })
}

fn hive(text: String) -> Result<u64, FieldError> {
    let is_plain = text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let number = u64::from_str_radix(&text, 16).ok();
    number.filter(|_| is_plain).ok_or_else(|| {
        let expected = "sixteen hexadecimal digits";
        FieldError::new("hive", FieldProblem::UnexpectedText { text, expected })
    })
}

fn mode(json: ModeJson) -> PartitioningMode {
    PartitioningMode {
        current: json.current,
        available: json.available,
    }
}

fn partition(json: AmdPartitionJson) -> AmdPartition {
    AmdPartition {
        render_minor: json.render_minor,
        compute_units: json.compute_units,
        memory: json.memory_mib.map(Mebibytes::new),
    }
}
