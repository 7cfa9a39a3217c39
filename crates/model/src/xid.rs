//! Errors that NVIDIA's driver reports.

use crate::id::PciAddress;

/// An error reported by a device. Source: NVIDIA, "Xid Errors".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Xid {
    /// The device.
    pub pci: PciAddress,
    /// The GPU instance to which it is confined, if reported.
    pub gpu_instance: Option<u32>,
    /// The compute instance to which it is confined, if reported.
    pub compute_instance: Option<u32>,
    /// Its number.
    pub number: u64,
}
