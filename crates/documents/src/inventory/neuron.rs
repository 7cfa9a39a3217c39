//! The state of AWS Neuron devices in an inventory.
//!
//! All core counts are physical cores. The number of logical cores visible to programs follows from `logicalCore`.

use std::collections::{BTreeMap, BTreeSet};

use octavo_model::inventory::{
    DriverLayout, LogicalCores, LogicalSource, Neuron, NeuronDevice, NeuronErrors, NeuronIdentity,
};
use octavo_model::quantity::Mebibytes;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ProblemJson;
use super::error::{FieldError, FieldProblem};

/// Maximum number of physical cores per logical core: all cores of a device.
const MAX_PHYSICAL_CORES: u32 = 8;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NeuronJson {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    driver_version: Option<String>,
    driver_layout: DriverLayoutJson,
    /// Left out where nobody tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    logical_core: Option<LogicalCoreJson>,
    /// What the driver says of the `UltraServer` that the node is a part of, by the names of its files.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    ultraserver: BTreeMap<String, String>,
    #[serde(default)]
    devices: Vec<NeuronDeviceJson>,
    /// What is wrong with none of them alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    problems: Vec<ProblemJson>,
}

/// Whether the driver's files are where they are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
enum DriverLayoutJson {
    Known,
    Unknown,
}

/// What a logical core is made of, and who says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct LogicalCoreJson {
    physical_cores: u32,
    source: LogicalSourceJson,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
enum LogicalSourceJson {
    /// The node's own setting.
    File,
    /// The chip's default, by the catalogue.
    Default,
}

/// By what a device can be known again, and how long that holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NeuronIdentityJson {
    /// `serial` by the serial number; `number` by the number, together with the boot id of the node, where it has none of its own.
    by: String,
    /// `hardware` as long as the hardware; `boot` until the node boots again, when the driver may number the devices otherwise.
    stability: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NeuronDeviceJson {
    number: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    serial: Option<String>,
    /// By what it can be known again. It follows from the serial numbers of all, so that it is not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    identity: Option<NeuronIdentityJson>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    device_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    core_architecture: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    physical_cores: Option<u32>,
    /// Numbers of the devices that it has links to; left out where that may not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    connected: Option<Vec<u32>>,
    #[serde(
        default,
        rename = "memoryUsedMiB",
        skip_serializing_if = "Option::is_none"
    )]
    memory_used_mib: Option<u64>,
    /// What it draws, in percent of the most that it may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    power_percent: Option<u8>,
    #[serde(default, skip_serializing_if = "NeuronErrorsJson::is_empty")]
    errors: NeuronErrorsJson,
    /// Parts that the driver says are unhealthy; left out where it does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unhealthy: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    problems: Vec<ProblemJson>,
}

/// Since the driver was loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NeuronErrorsJson {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memory_uncorrected: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memory_repairable: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sram_uncorrected: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memory_corrected: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sram_corrected: Option<u64>,
}

impl NeuronErrorsJson {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl From<&Neuron> for NeuronJson {
    fn from(neuron: &Neuron) -> Self {
        Self {
            driver_version: neuron.driver_version.clone(),
            driver_layout: match neuron.driver_layout {
                DriverLayout::Known => DriverLayoutJson::Known,
                DriverLayout::Unknown => DriverLayoutJson::Unknown,
            },
            logical_core: neuron.logical.map(|logical| LogicalCoreJson {
                physical_cores: logical.size,
                source: match logical.source {
                    LogicalSource::File => LogicalSourceJson::File,
                    LogicalSource::Default => LogicalSourceJson::Default,
                },
            }),
            ultraserver: neuron.ultraserver.clone(),
            devices: neuron
                .devices
                .iter()
                .map(|device| NeuronDeviceJson::of(device, neuron.identity(device)))
                .collect(),
            problems: neuron.problems.iter().map(ProblemJson::from).collect(),
        }
    }
}

impl NeuronDeviceJson {
    fn of(device: &NeuronDevice, identity: NeuronIdentity) -> Self {
        Self {
            number: device.number,
            serial: device.serial.clone(),
            identity: Some(NeuronIdentityJson {
                by: identity.by().to_owned(),
                stability: identity.stability().to_owned(),
            }),
            device_name: device.device_name.clone(),
            core_architecture: device.core_architecture.clone(),
            physical_cores: device.cores,
            connected: device.connected.clone(),
            memory_used_mib: device.memory_used.map(Mebibytes::get),
            errors: NeuronErrorsJson {
                memory_uncorrected: device.errors.memory_uncorrected,
                memory_repairable: device.errors.memory_repairable,
                sram_uncorrected: device.errors.sram_uncorrected,
                memory_corrected: device.errors.memory_corrected,
                sram_corrected: device.errors.sram_corrected,
            },
            power_percent: device.power_percent,
            unhealthy: device.unhealthy.clone(),
            problems: device.problems.iter().map(ProblemJson::from).collect(),
        }
    }
}

/// Accepts devices in any order. Two devices with the same number are an error.
pub(super) fn neuron(json: NeuronJson) -> Result<Neuron, FieldError> {
    let devices =
        json.devices.into_iter().enumerate().map(|(at, json)| {
            device(json).map_err(|error| error.within(&format!("devices[{at}]")))
        });
    let mut devices = devices.collect::<Result<Vec<NeuronDevice>, FieldError>>()?;
    let mut seen = BTreeSet::new();
    for (at, device) in devices.iter().enumerate() {
        if !seen.insert(device.number) {
            let place = format!("devices[{at}].number");
            return Err(FieldError::new(&place, FieldProblem::DuplicateNumber));
        }
    }
    devices.sort_by_key(|device| device.number);
    Ok(Neuron {
        driver_version: json.driver_version,
        driver_layout: match json.driver_layout {
            DriverLayoutJson::Known => DriverLayout::Known,
            DriverLayoutJson::Unknown => DriverLayout::Unknown,
        },
        logical: json
            .logical_core
            .map(logical)
            .transpose()
            .map_err(|error| error.within("logicalCore"))?,
        ultraserver: json.ultraserver,
        devices,
        problems: json.problems.into_iter().map(Into::into).collect(),
    })
}

fn logical(json: LogicalCoreJson) -> Result<LogicalCores, FieldError> {
    let size = json.physical_cores;
    if !(1..=MAX_PHYSICAL_CORES).contains(&size) {
        let problem = FieldProblem::OutOfRange {
            number: size.into(),
            expected: "from 1 to 8",
        };
        return Err(FieldError::new("physicalCores", problem));
    }
    Ok(LogicalCores {
        size,
        source: match json.source {
            LogicalSourceJson::File => LogicalSource::File,
            LogicalSourceJson::Default => LogicalSource::Default,
        },
    })
}

fn device(json: NeuronDeviceJson) -> Result<NeuronDevice, FieldError> {
    if let Some(percent) = json.power_percent.filter(|percent| *percent > 100) {
        let problem = FieldProblem::OutOfRange {
            number: percent.into(),
            expected: "from 0 to 100",
        };
        return Err(FieldError::new("powerPercent", problem));
    }
    Ok(NeuronDevice {
        number: json.number,
        serial: json.serial,
        device_name: json.device_name,
        core_architecture: json.core_architecture,
        cores: json.physical_cores,
        connected: json.connected,
        memory_used: json.memory_used_mib.map(Mebibytes::new),
        errors: NeuronErrors {
            memory_uncorrected: json.errors.memory_uncorrected,
            memory_repairable: json.errors.memory_repairable,
            sram_uncorrected: json.errors.sram_uncorrected,
            memory_corrected: json.errors.memory_corrected,
            sram_corrected: json.errors.sram_corrected,
        },
        power_percent: json.power_percent,
        unhealthy: json.unhealthy,
        problems: json.problems.into_iter().map(Into::into).collect(),
    })
}
