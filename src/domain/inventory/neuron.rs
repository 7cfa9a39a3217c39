//! AWS Neuron devices, as their kernel driver tells of them in sysfs.
//!
//! The driver's devices have a number and no PCI address, and nothing that may be read leads from one to the other. So they stand beside
//! the functions on the bus: those say that there are any, and these say what they are and how they do. How many there are of each is held
//! against the other, and a difference is told and not guessed away.
//!
//! | word | meaning |
//! |---|---|
//! | physical core | a `NeuronCore` of the chip; what sysfs counts |
//! | logical core | what programs and Kubernetes see: one or two physical ones, by the node's logical `NeuronCore` configuration |

mod state;
mod topology;

pub use state::NeuronState;
pub use topology::Topology;

use std::collections::BTreeMap;

use super::health::Problem;
use crate::domain::quantity::Mebibytes;

/// What the Neuron driver of a node says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neuron {
    /// Version of the kernel module, such as `2.26.5.0`. Source: `/sys/module/neuron/version`.
    pub driver_version: Option<String>,
    /// Whether its files are where they are looked for.
    pub driver_layout: DriverLayout,
    /// How many physical cores are one logical core; absent where neither the node nor the catalogue tells.
    pub logical: Option<LogicalCores>,
    /// What the driver says of the `UltraServer` that this node is a part of, by the names of its files (`ultraserver_mode`, `node_id_4`), in
    /// its own words; empty where it says nothing.
    pub ultraserver: BTreeMap<String, String>,
    /// The devices, ordered by their number.
    pub devices: Vec<NeuronDevice>,
    /// What is wrong with none of them alone: a count that differs from that of the PCI functions, a setting that could not be read.
    pub problems: Vec<Problem>,
}

/// Where a driver has its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriverLayout {
    /// Where releases up to 2.30 have them.
    Known,
    /// Elsewhere: names that are known were searched for, and what was not found is absent.
    Unknown,
}

/// The logical `NeuronCore` configuration (LNC).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogicalCores {
    /// Physical cores in a logical one: 1 or 2.
    pub size: u32,
    /// Who says so.
    pub source: LogicalSource,
}

/// Who says how large a logical core is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogicalSource {
    /// The node's own setting. Source: `/opt/aws/neuron/logical_nc_config`.
    File,
    /// The chip's default, by the catalogue.
    Default,
}

/// By what a device can be told from the others, and known again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NeuronIdentity {
    /// By its serial number, which no other device of the node has. It stays with the hardware.
    Serial,
    /// By its number and the node's boot id: the driver may number the devices otherwise the next time.
    Number,
}

impl NeuronIdentity {
    /// By what, in a word.
    pub fn by(self) -> &'static str {
        match self {
            Self::Serial => "serial",
            Self::Number => "number",
        }
    }

    /// How long that holds, in a word: as long as the hardware, or until the next boot of the node.
    pub fn stability(self) -> &'static str {
        match self {
            Self::Serial => "hardware",
            Self::Number => "boot",
        }
    }
}

impl Neuron {
    /// By what a device of this node can be known again.
    pub fn identity(&self, device: &NeuronDevice) -> NeuronIdentity {
        let Some(serial) = &device.serial else {
            return NeuronIdentity::Number;
        };
        let mut others = self.devices.iter();
        let is_shared = others
            .any(|other| other.number != device.number && other.serial.as_ref() == Some(serial));
        if is_shared {
            NeuronIdentity::Number
        } else {
            NeuronIdentity::Serial
        }
    }
}

impl LogicalSource {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Default => "default",
        }
    }
}

/// One device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NeuronDevice {
    /// N in `neuronN`: the order in which the driver found them, which is no identity.
    pub number: u32,
    /// The chip's serial number: 16 hexadecimal digits. Not on Inferentia.
    pub serial: Option<String>,
    /// The driver's name for the chip, such as `Trainium2`.
    pub device_name: Option<String>,
    /// Generation of its cores, such as `NCv3`.
    pub core_architecture: Option<String>,
    /// Physical cores.
    pub cores: Option<u32>,
    /// Numbers of the devices that it has links to; `None` where that may not be read.
    pub connected: Option<Vec<u32>>,
    /// Device memory in use, of all its cores together. Source: `device_mem/total`, which is what is used now.
    pub memory_used: Option<Mebibytes>,
    /// What it drew on average when the driver looked last, in percent of the most that it may; the driver tells no watts.
    pub power_percent: Option<u8>,
    /// Error counters since the driver was loaded.
    pub errors: NeuronErrors,
    /// Parts that the driver says are unhealthy, such as `hbm`; `None` where it does not tell.
    pub unhealthy: Option<Vec<String>>,
    /// What could not be read, and why.
    pub problems: Vec<Problem>,
}

/// Errors of a device's memory since the driver was loaded. Absent: the chip or the driver does not count them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NeuronErrors {
    /// Uncorrected errors of device memory.
    pub memory_uncorrected: Option<u64>,
    /// Of those, such as a repair may mend.
    pub memory_repairable: Option<u64>,
    /// Uncorrected errors of on-chip memory.
    pub sram_uncorrected: Option<u64>,
    /// Corrected errors of device memory: nothing was lost. Since driver 2.30.
    pub memory_corrected: Option<u64>,
    /// Corrected errors of on-chip memory. Since driver 2.30.
    pub sram_corrected: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_known_by_its_serial_number_unless_it_has_none_or_another_has_the_same() {
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
        assert_eq!(
            known.collect::<Vec<_>>(),
            [("serial", "hardware"), number, number, number]
        );
    }
}
