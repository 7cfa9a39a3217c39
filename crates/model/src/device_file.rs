//! Device files of NVIDIA's driver.

use std::collections::BTreeMap;

use crate::id::PciAddress;

/// A device file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceFile {
    /// Its path, on the host and in the container.
    pub path: String,
    /// Its device number, with which a runtime can create it without reading the host's file.
    pub number: DeviceNumber,
}

/// Major and minor number of a character device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceNumber {
    /// Major number, of the driver.
    pub major: u32,
    /// Minor number, of the device.
    pub minor: u32,
}

/// The driver's device files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeviceFiles {
    /// Files required with any device, in a fixed order.
    pub common: Vec<DeviceFile>,
    /// The file of each device.
    pub devices: BTreeMap<PciAddress, DeviceFile>,
    /// Capability files of the GPU instances and, by their number, of their compute instances.
    pub instances: BTreeMap<(PciAddress, u32, Option<u32>), DeviceFile>,
}
