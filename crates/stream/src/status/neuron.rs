//! Encoding and decoding of the parts `neuron` and `neuron/<number>`.

use octavo_model::inventory::{
    DriverLayout, LogicalCores, LogicalSource, Neuron, NeuronDevice, NeuronErrors, NeuronIdentity,
};
use octavo_model::quantity::Mebibytes;

use super::MAX_LIST_ITEMS;
use super::device::{read_problems, write_problems};
use super::field::{
    FieldError, FieldResult, StatusProblem, at_most, bounded, nested, percent, truncate_word,
    unknown_enum_value,
};
use crate::proto::v1;
use crate::proto::v1::logical_core::Source;
use crate::proto::v1::neuron::Layout;
use crate::proto::v1::neuron_device::Identity;

/// Maximum number of physical cores per logical core: all cores of a device.
const MAX_PHYSICAL_CORES: u32 = 8;

/// Encodes the driver state without its devices, which have their own parts.
pub(super) fn write(neuron: &Neuron) -> v1::Neuron {
    let layout = match neuron.driver_layout {
        DriverLayout::Known => Layout::Known,
        DriverLayout::Unknown => Layout::Unknown,
    };
    v1::Neuron {
        driver_version: neuron.driver_version.clone(),
        driver_layout: layout.into(),
        logical_core: neuron.logical.map(write_logical),
        problems: write_problems(&neuron.problems),
        ultraserver: neuron.ultraserver.clone(),
    }
}

fn write_logical(logical: LogicalCores) -> v1::LogicalCore {
    let source = match logical.source {
        LogicalSource::File => Source::File,
        LogicalSource::Default => Source::Default,
    };
    v1::LogicalCore { physical_cores: logical.size, source: source.into() }
}

/// Encodes one device of `neuron`.
pub(super) fn write_device(neuron: &Neuron, device: &NeuronDevice) -> v1::NeuronDevice {
    let identity = match neuron.identity(device) {
        NeuronIdentity::Serial => Identity::Serial,
        NeuronIdentity::Number => Identity::Number,
    };
    let links = device.connected.clone();
    let unhealthy = device.unhealthy.clone();
    v1::NeuronDevice {
        identity: identity.into(),
        serial: device.serial.clone(),
        device_name: device.device_name.clone(),
        core_architecture: device.core_architecture.clone(),
        physical_cores: device.cores,
        links: links.map(|devices| v1::NeuronLinks { devices }),
        memory_used_mib: device.memory_used.map(Mebibytes::get),
        memory_uncorrected: device.errors.memory_uncorrected,
        memory_repairable: device.errors.memory_repairable,
        sram_uncorrected: device.errors.sram_uncorrected,
        unhealthy: unhealthy.map(|parts| v1::NeuronUnhealthy { parts }),
        problems: write_problems(&device.problems),
        memory_corrected: device.errors.memory_corrected,
        sram_corrected: device.errors.sram_corrected,
        power_percent: device.power_percent.map(u32::from),
    }
}

/// Decodes the driver state. A driver layout that this version does not know becomes `Unknown`.
pub(super) fn read(neuron: v1::Neuron) -> FieldResult<Neuron> {
    let driver_layout = match neuron.driver_layout() {
        Layout::Known => DriverLayout::Known,
        Layout::Unspecified | Layout::Unknown => DriverLayout::Unknown,
    };
    let logical = nested("logical_core", neuron.logical_core, read_logical)?;
    let ultraserver: Vec<(String, String)> = neuron.ultraserver.into_iter().collect();
    let ultraserver = bounded("ultraserver", MAX_LIST_ITEMS, ultraserver)?.into_iter();
    Ok(Neuron {
        driver_version: neuron.driver_version.map(truncate_word),
        driver_layout,
        logical,
        ultraserver: ultraserver
            .map(|(name, value)| (truncate_word(name), truncate_word(value)))
            .collect(),
        devices: Vec::new(),
        problems: read_problems(neuron.problems)?,
    })
}

fn read_logical(logical: v1::LogicalCore) -> FieldResult<LogicalCores> {
    if logical.physical_cores == 0 {
        return Err(FieldError::new("physical_cores", StatusProblem::Zero));
    }
    Ok(LogicalCores {
        size: at_most("physical_cores", logical.physical_cores, MAX_PHYSICAL_CORES)?,
        source: match logical.source() {
            Source::File => LogicalSource::File,
            Source::Default => LogicalSource::Default,
            Source::Unspecified => return unknown_enum_value("source", logical.source),
        },
    })
}

pub(super) fn read_device(number: u32, device: v1::NeuronDevice) -> FieldResult<NeuronDevice> {
    let connected = device.links.map(|links| links.devices);
    let connected = connected.map(|all| bounded("links.devices", MAX_LIST_ITEMS, all));
    let unhealthy = device.unhealthy.map(|unhealthy| unhealthy.parts);
    let unhealthy = unhealthy.map(|all| bounded("unhealthy.parts", MAX_LIST_ITEMS, all));
    Ok(NeuronDevice {
        number,
        serial: device.serial.map(truncate_word),
        device_name: device.device_name.map(truncate_word),
        core_architecture: device.core_architecture.map(truncate_word),
        cores: device.physical_cores,
        connected: connected.transpose()?,
        memory_used: device.memory_used_mib.map(Mebibytes::new),
        errors: NeuronErrors {
            memory_uncorrected: device.memory_uncorrected,
            memory_repairable: device.memory_repairable,
            sram_uncorrected: device.sram_uncorrected,
            memory_corrected: device.memory_corrected,
            sram_corrected: device.sram_corrected,
        },
        power_percent: percent("power_percent", device.power_percent)?,
        unhealthy: unhealthy.transpose()?,
        problems: read_problems(device.problems)?,
    })
}
