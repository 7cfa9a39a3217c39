//! JSON shape of the Neuron devices of a node.

use serde::de::Deserializer;
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use serde_with::{serde_as, skip_serializing_none};
use utoipa::ToSchema;

use super::{NeuronDevice, NeuronErrors, NeuronIdentity, identity};
use crate::inventory::ReadProblem;
use crate::inventory::json::{Within, is_default, unique};
use crate::quantity::Mebibytes;

/// Property that identifies a device, and its lifetime.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NeuronIdentity)]
struct IdentityDocument {
    /// `serial`: the serial number; `number`: the number together with the boot id of the node.
    by: String,
    /// `hardware`: it stays with the hardware; `boot`: the driver may assign other numbers after a reboot.
    stability: String,
}

/// [`NeuronDevice`] and the property that identifies it, which depends on the other devices of the node.
#[serde_as]
#[skip_serializing_none]
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = NeuronDevice)]
pub(super) struct NeuronDeviceDocument {
    number: u32,
    serial: Option<String>,
    /// Ignored on input.
    identity: Option<IdentityDocument>,
    device_name: Option<String>,
    core_architecture: Option<String>,
    physical_cores: Option<u32>,
    /// Numbers of linked devices; absent if unreadable.
    connected: Option<Vec<u32>>,
    #[serde(rename = "memoryUsedMiB")]
    #[schema(value_type = Option<u64>)]
    memory_used: Option<Mebibytes>,
    /// Average power as a percentage of the maximum.
    #[serde_as(deserialize_as = "Option<Within<0, 100>>")]
    power_percent: Option<u8>,
    #[serde(default, skip_serializing_if = "is_default")]
    errors: NeuronErrors,
    /// Parts that the driver reports as unhealthy; absent if not reported.
    unhealthy: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    problems: Vec<ReadProblem>,
}

impl NeuronDeviceDocument {
    fn new(device: NeuronDevice, identity: NeuronIdentity) -> Self {
        Self {
            number: device.number,
            serial: device.serial,
            identity: Some(IdentityDocument {
                by: identity.by().to_owned(),
                stability: identity.stability().to_owned(),
            }),
            device_name: device.device_name,
            core_architecture: device.core_architecture,
            physical_cores: device.cores,
            connected: device.connected,
            memory_used: device.memory_used,
            power_percent: device.power_percent,
            errors: device.errors,
            unhealthy: device.unhealthy,
            problems: device.problems,
        }
    }
}

impl From<NeuronDeviceDocument> for NeuronDevice {
    fn from(document: NeuronDeviceDocument) -> Self {
        Self {
            number: document.number,
            serial: document.serial,
            device_name: document.device_name,
            core_architecture: document.core_architecture,
            cores: document.physical_cores,
            connected: document.connected,
            memory_used: document.memory_used,
            power_percent: document.power_percent,
            errors: document.errors,
            unhealthy: document.unhealthy,
            problems: document.problems,
        }
    }
}

pub(super) fn serialize<S: Serializer>(
    devices: &[NeuronDevice],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(
        devices
            .iter()
            .map(|device| NeuronDeviceDocument::new(device.clone(), identity(device, devices))),
    )
}

/// Accepts devices in any order. Two devices with the same number are an error.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<NeuronDevice>, D::Error> {
    let devices = Vec::<NeuronDeviceDocument>::deserialize(deserializer)?;
    let devices = devices.into_iter().map(NeuronDevice::from).collect();
    unique(devices, "number", |device| device.number)
}
