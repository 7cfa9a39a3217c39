//! AWS Neuron devices, as their kernel driver reports them in sysfs.
//!
//! The driver numbers its devices and reports no PCI address, and no readable data maps one to the other. So these
//! records exist beside those of the PCI functions: the functions prove the presence of devices, the driver reports
//! their type and health. The two counts are compared, and a difference is reported as a problem.
//!
//! | term | meaning |
//! |---|---|
//! | physical core | a `NeuronCore` of the chip, as counted in sysfs |
//! | logical core | the core visible to programs and Kubernetes: one or two physical cores, depending on the node's logical `NeuronCore` configuration |

mod document;
mod state;
mod topology;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::{serde_as, skip_serializing_none};
use strum::IntoStaticStr;
use utoipa::ToSchema;

use self::document::NeuronDeviceDocument;
use super::health::ReadProblem;
use super::json::Within;
use crate::quantity::Mebibytes;
pub use state::NeuronState;
pub use topology::Topology;

/// Data that a node's Neuron driver reports.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Neuron {
    /// Version of the kernel module, such as `2.26.5.0`. Source: `/sys/module/neuron/version`.
    pub driver_version: Option<String>,
    /// Location of the driver's files.
    pub driver_layout: DriverLayout,
    /// Number of physical cores per logical core; absent if neither the node nor the catalog states it.
    #[serde(rename = "logicalCore")]
    pub logical: Option<LogicalCores>,
    /// The driver's files about the `UltraServer` of this node: contents by file name (`ultraserver_mode`,
    /// `node_id_4`); empty if there are none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ultraserver: BTreeMap<String, String>,
    /// Devices, ordered by number.
    #[serde(default, with = "document")]
    #[schema(value_type = Vec<NeuronDeviceDocument>)]
    pub devices: Vec<NeuronDevice>,
    /// Problems that do not concern a single device: a count that differs from the number of PCI functions, or an
    /// unreadable setting.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<ReadProblem>,
}

/// Location of the Neuron driver's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum DriverLayout {
    /// As in releases up to 2.30.
    Known,
    /// Different: files were searched by name, and the rest is absent.
    Unknown,
}

/// The logical `NeuronCore` configuration (LNC).
#[serde_as]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = LogicalCore)]
pub struct LogicalCores {
    /// Physical cores per logical core: 1 or 2; at most all 8 cores of a device.
    #[serde_as(deserialize_as = "Within<1, 8>")]
    #[serde(rename = "physicalCores")]
    pub size: u32,
    /// Source of the size.
    pub source: LogicalSource,
}

/// Source of the logical core size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, Serialize, Deserialize, ToSchema)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "camelCase")]
pub enum LogicalSource {
    /// The node's own setting. Source: `/opt/aws/neuron/logical_nc_config`.
    File,
    /// Default of the chip, from the catalog.
    Default,
}

/// Property that identifies a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NeuronIdentity {
    /// Serial number that is unique on the node. It stays with the hardware.
    Serial,
    /// Number together with the node's boot id: the driver may assign other numbers after a reboot.
    Number,
}

impl NeuronIdentity {
    /// Name of the property.
    pub fn by(self) -> &'static str {
        match self {
            Self::Serial => "serial",
            Self::Number => "number",
        }
    }

    /// Lifetime of the identity: `hardware`, or `boot` for the current boot of the node.
    pub fn stability(self) -> &'static str {
        match self {
            Self::Serial => "hardware",
            Self::Number => "boot",
        }
    }
}

impl Neuron {
    /// Property that identifies a device of this node.
    pub fn identity(&self, device: &NeuronDevice) -> NeuronIdentity {
        identity(device, &self.devices)
    }
}

fn identity(device: &NeuronDevice, all: &[NeuronDevice]) -> NeuronIdentity {
    let Some(serial) = &device.serial else {
        return NeuronIdentity::Number;
    };
    let is_shared = all
        .iter()
        .any(|other| other.number != device.number && other.serial.as_ref() == Some(serial));
    if is_shared { NeuronIdentity::Number } else { NeuronIdentity::Serial }
}

impl LogicalSource {
    /// Name in documents.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Neuron device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NeuronDevice {
    /// N in `neuronN`: the driver's enumeration order, which does not identify the device.
    pub number: u32,
    /// Serial number of the chip, 16 hexadecimal digits; absent on Inferentia.
    pub serial: Option<String>,
    /// Chip name that the driver reports, such as `Trainium2`.
    pub device_name: Option<String>,
    /// Generation of its cores, such as `NCv3`.
    pub core_architecture: Option<String>,
    /// Physical cores.
    pub cores: Option<u32>,
    /// Numbers of linked devices; `None` if unreadable.
    pub connected: Option<Vec<u32>>,
    /// Used device memory of all cores. Source: `device_mem/total`, which is the current use.
    pub memory_used: Option<Mebibytes>,
    /// Average power in the driver's last interval, as a percentage of the maximum; the driver does not report watts.
    pub power_percent: Option<u8>,
    /// Error counters since the driver was loaded.
    pub errors: NeuronErrors,
    /// Parts that the driver reports as unhealthy, such as `hbm`; `None` if not reported.
    pub unhealthy: Option<Vec<String>>,
    /// Data that could not be read, with the errors.
    pub problems: Vec<ReadProblem>,
}

/// Memory errors since the driver was loaded. Absent: the chip or the driver does not count them.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NeuronErrors {
    /// Uncorrected errors of device memory.
    pub memory_uncorrected: Option<u64>,
    /// Number of those that a repair may fix.
    pub memory_repairable: Option<u64>,
    /// Uncorrected errors of on-chip memory.
    pub sram_uncorrected: Option<u64>,
    /// Corrected errors of device memory, without data loss. Since driver 2.30.
    pub memory_corrected: Option<u64>,
    /// Corrected errors of on-chip memory. Since driver 2.30.
    pub sram_corrected: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_is_identified_by_unique_serial_number_or_else_by_number() {
        let device = |number, serial: Option<&str>| NeuronDevice {
            number,
            serial: serial.map(str::to_owned),
            ..NeuronDevice::default()
        };
        let neuron = Neuron {
            driver_version: None,
            driver_layout: DriverLayout::Known,
            logical: None,
            ultraserver: BTreeMap::new(),
            devices: vec![
                device(0, Some("9ff5434815c8bd80")),
                device(1, None),
                device(2, Some("00000000000000aa")),
                device(3, Some("00000000000000aa")),
            ],
            problems: Vec::new(),
        };
        let known = neuron.devices.iter().map(|device| {
            let identity = neuron.identity(device);
            (identity.by(), identity.stability())
        });
        let number = ("number", "boot");
        assert_eq!(known.collect::<Vec<_>>(), [("serial", "hardware"), number, number, number]);
    }
}
