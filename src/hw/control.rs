//! The port through which devices are changed.
//!
//! Changing a device is given to the thread that owns the driver as a piece of work, so that nothing is read while it is
//! being changed. Within it each device has a control of its own, which may be used on a thread of its own: NVML may be called
//! from many threads, and devices share nothing but, on some boards, a reset.

use crate::domain::call::{Call, Done, Failure};
use crate::domain::id::PciAddress;
use crate::domain::inventory::{Device, Process};
use crate::hw::calls::CallWatch;

/// One device that can be changed.
pub trait GpuControl: Send {
    /// Which device.
    fn pci(&self) -> PciAddress;

    /// Everybody who has a context on it. That nobody tells is an error here, and never an empty list.
    fn processes(&mut self, calls: &CallWatch) -> Result<Vec<Process>, Failure>;

    /// Makes a call that changes it.
    fn call(&mut self, call: Call, calls: &CallWatch) -> Result<Done, Failure>;

    /// Reads it, as [`crate::hw::GpuDriver::observe`] does.
    fn read(&mut self, calls: &CallWatch) -> Result<Device, Failure>;
}
