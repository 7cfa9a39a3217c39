//! An accelerator on the PCI bus, with the values of its kernel driver.

use octavo_model::id::PciAddress;
use octavo_model::inventory::{Amd, PciIds, ReadProblem, VgpuHost};
use octavo_model::quantity::Mebibytes;

/// A PCI function that is an accelerator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PciFunction {
    pub(crate) address: PciAddress,
    pub(crate) ids: PciIds,
    pub(crate) numa_node: Option<u32>,
    pub(crate) kernel_driver: Option<String>,
    pub(crate) vgpu: Option<VgpuHost>,
    /// Values from AMD's drivers, if they are bound to it.
    pub(crate) amd: Option<AmdReading>,
}

/// Values that the kernel drivers report for a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AmdReading {
    pub(crate) amd: Amd,
    pub(crate) product_name: Option<String>,
    /// Total memory. A driver that does not report it counts as failing.
    pub(crate) memory: Option<Mebibytes>,
    pub(crate) problems: Vec<ReadProblem>,
}
