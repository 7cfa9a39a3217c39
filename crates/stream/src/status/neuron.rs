//! Encoding and decoding of the parts `neuron` and `neuron/<number>`.

use std::collections::BTreeMap;

use octavo_fleet::fleet::MAX_WORD_BYTES;
use octavo_model::inventory::{
    DriverLayout, LogicalCores, LogicalSource, Neuron, NeuronDevice, NeuronErrors, NeuronIdentity,
};
use octavo_model::quantity::Mebibytes;

use super::error::{FieldError, StatusProblem};
use super::field::{
    FieldResult, at_most, bounded, truncate_optional, truncate_to, unknown_enum_value,
};
use super::read::problems;
use super::{MAX_LIST_ITEMS, write};
use crate::proto::v1;

/// Maximum number of physical cores per logical core: all cores of a device.
const MAX_PHYSICAL_CORES: u32 = 8;

/// Encodes the driver state without its devices, which have their own parts.
pub(super) fn write(neuron: &Neuron) -> v1::Neuron {
    use v1::neuron::Layout;
    let layout = match neuron.driver_layout {
        DriverLayout::Known => Layout::Known,
        DriverLayout::Unknown => Layout::Unknown,
    };
    v1::Neuron {
        driver_version: neuron.driver_version.clone(),
        driver_layout: layout.into(),
        logical_core: neuron.logical.map(write_logical),
        problems: neuron.problems.iter().map(write::problem).collect(),
        ultraserver: neuron.ultraserver.clone(),
    }
}

fn write_logical(logical: LogicalCores) -> v1::LogicalCore {
    use v1::logical_core::Source;
    let source = match logical.source {
        LogicalSource::File => Source::File,
        LogicalSource::Default => Source::Default,
    };
    v1::LogicalCore {
        physical_cores: logical.size,
        source: source.into(),
    }
}

/// Encodes one device of `neuron`.
pub(super) fn write_device(neuron: &Neuron, device: &NeuronDevice) -> v1::NeuronDevice {
    use v1::neuron_device::Identity;
    let identity = match neuron.identity(device) {
        NeuronIdentity::Serial => Identity::Serial,
        NeuronIdentity::Number => Identity::Number,
    };
    v1::NeuronDevice {
        identity: identity.into(),
        serial: device.serial.clone(),
        device_name: device.device_name.clone(),
        core_architecture: device.core_architecture.clone(),
        physical_cores: device.cores,
        links: device.connected.as_ref().map(|devices| v1::NeuronLinks {
            devices: devices.clone(),
        }),
        memory_used_mib: device.memory_used.map(Mebibytes::get),
        memory_uncorrected: device.errors.memory_uncorrected,
        memory_repairable: device.errors.memory_repairable,
        sram_uncorrected: device.errors.sram_uncorrected,
        unhealthy: device.unhealthy.as_ref().map(|parts| v1::NeuronUnhealthy {
            parts: parts.clone(),
        }),
        problems: device.problems.iter().map(write::problem).collect(),
        memory_corrected: device.errors.memory_corrected,
        sram_corrected: device.errors.sram_corrected,
        power_percent: device.power_percent.map(u32::from),
    }
}

/// Decodes the driver state. A driver layout that this version does not know becomes `Unknown`.
pub(super) fn read(neuron: v1::Neuron) -> FieldResult<Neuron> {
    use v1::neuron::Layout;
    let logical = neuron.logical_core.map(read_logical).transpose();
    Ok(Neuron {
        driver_version: truncate_optional(MAX_WORD_BYTES, neuron.driver_version),
        driver_layout: match Layout::try_from(neuron.driver_layout) {
            Ok(Layout::Known) => DriverLayout::Known,
            Ok(Layout::Unspecified | Layout::Unknown) | Err(_) => DriverLayout::Unknown,
        },
        logical: logical.map_err(|error| error.within("logical_core"))?,
        ultraserver: ultraserver(neuron.ultraserver)?,
        devices: Vec::new(),
        problems: problems(neuron.problems)?,
    })
}

fn ultraserver(said: BTreeMap<String, String>) -> FieldResult<BTreeMap<String, String>> {
    let said = bounded("ultraserver", MAX_LIST_ITEMS, said.into_iter().collect())?;
    let said = said.into_iter();
    Ok(said
        .map(|(key, value)| {
            (
                truncate_to(MAX_WORD_BYTES, key),
                truncate_to(MAX_WORD_BYTES, value),
            )
        })
        .collect())
}

fn read_logical(logical: v1::LogicalCore) -> FieldResult<LogicalCores> {
    use v1::logical_core::Source;
    if logical.physical_cores == 0 {
        return Err(FieldError::new("physical_cores", StatusProblem::Zero));
    }
    Ok(LogicalCores {
        size: at_most("physical_cores", logical.physical_cores, MAX_PHYSICAL_CORES)?,
        source: match Source::try_from(logical.source) {
            Ok(Source::File) => LogicalSource::File,
            Ok(Source::Default) => LogicalSource::Default,
            Ok(Source::Unspecified) | Err(_) => {
                return unknown_enum_value("source", logical.source);
            }
        },
    })
}

fn power(percent: u32) -> FieldResult<u8> {
    let percent = at_most("power_percent", percent, 100)?;
    Ok(u8::try_from(percent).unwrap_or(u8::MAX))
}

pub(super) fn read_device(number: u32, device: v1::NeuronDevice) -> FieldResult<NeuronDevice> {
    let links = device.links.map(|links| links.devices);
    let unhealthy = device.unhealthy.map(|unhealthy| unhealthy.parts);
    Ok(NeuronDevice {
        number,
        serial: truncate_optional(MAX_WORD_BYTES, device.serial),
        device_name: truncate_optional(MAX_WORD_BYTES, device.device_name),
        core_architecture: truncate_optional(MAX_WORD_BYTES, device.core_architecture),
        cores: device.physical_cores,
        connected: links
            .map(|devices| bounded("links.devices", MAX_LIST_ITEMS, devices))
            .transpose()?,
        memory_used: device.memory_used_mib.map(Mebibytes::new),
        errors: NeuronErrors {
            memory_uncorrected: device.memory_uncorrected,
            memory_repairable: device.memory_repairable,
            sram_uncorrected: device.sram_uncorrected,
            memory_corrected: device.memory_corrected,
            sram_corrected: device.sram_corrected,
        },
        power_percent: device.power_percent.map(power).transpose()?,
        unhealthy: unhealthy
            .map(|parts| bounded("unhealthy.parts", MAX_LIST_ITEMS, parts))
            .transpose()?,
        problems: problems(device.problems)?,
    })
}
