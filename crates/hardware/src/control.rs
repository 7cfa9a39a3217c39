//! The interface through which devices are changed.
//!
//! Changes run as a unit of work on the thread that owns the driver, so that nothing is read during a change. Within
//! it, each device has its own control, which may be used on its own thread: NVML is thread-safe, and devices share
//! nothing except, on some boards, a reset.

use octavo_model::call::{CallFailure, CallResult, DriverCall};
use octavo_model::id::PciAddress;
use octavo_model::inventory::{Device, Process};

use crate::calls::CallWatch;

/// A device that can be changed.
pub trait GpuControl: Send {
    /// Returns the device's PCI address.
    fn pci(&self) -> PciAddress;

    /// Returns all processes that have a context on the device. An unknown list is an error, never an empty list.
    fn processes(&mut self, calls: &CallWatch) -> Result<Vec<Process>, CallFailure>;

    /// Runs a call that changes the device.
    fn call(&mut self, call: DriverCall, calls: &CallWatch) -> Result<CallResult, CallFailure>;

    /// Reads the device like [`crate::GpuDriver::observe`].
    fn read(&mut self, calls: &CallWatch) -> Result<Device, CallFailure>;
}
