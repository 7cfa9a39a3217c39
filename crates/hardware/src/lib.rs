//! Hardware access: everything that calls a driver or reads sysfs.
//!
//! ```text
//!  agent, cli --> DriverHandle --+      +--> DriverLoader --> GpuDriver, EventSource   (nvml: the only unsafe code)
//!                                +--> worker -+
//!  (never waits for NVML)        |   (thread) +--> pci, neuron, sysfs
//!                                +--- CallRecord: the current call, read by the handle
//! ```
//!
//! One OS thread owns the driver, because NVML can hang in the kernel and only a thread can be abandoned then. Callers
//! hold a [`DriverHandle`], which responds whatever the driver does. The traits are the interfaces that the thread uses, in
//! terms of the model instead of NVML, so that its handling of slow, lost, replaced and hanging drivers is tested
//! without a driver.

mod amd;
pub mod calls;
pub mod device_files;
pub mod driver_traces;
pub mod error;
pub mod holders;
pub mod library;
mod merge;
mod neuron;
pub mod nvml;
mod pci;
mod pci_function;
mod sysfs;
pub mod worker;

use std::path::{Path, PathBuf};
use std::time::Duration;

pub use calls::CallRecord;
pub use error::{DriverError, LoadError, NvmlCode, Remedy};
use octavo_model::call::{CallFailure, CallResult, DriverCall};
use octavo_model::id::PciAddress;
use octavo_model::inventory::{Device, Driver, Process};
use octavo_model::reading::Reading;
use octavo_model::xid::Xid;
pub use pci::pcie_root;
pub use worker::{
    ChangeNotifications, DriverHandle, DriverReleaseGuard, DriverUnavailable, ReadingsError, spawn,
};

/// Hardware discovery settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The NVML library; if set, no other is tried.
    pub library: Option<PathBuf>,
    /// Roots of driver installations, in search order.
    pub driver_roots: Vec<PathBuf>,
    /// Mount point of sysfs.
    pub sys_root: PathBuf,
    /// The node's configuration file for logical `NeuronCore`s.
    pub neuron_logical_config: PathBuf,
    /// After this time, a driver call that has not returned counts as stalled.
    pub call_deadline: Duration,
}

/// Result of one driver observation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// The driver.
    pub driver: Driver,
    /// The devices that the driver lists. Values that come from the machine (NUMA node, class) or the catalog
    /// (identity) are `None`.
    pub devices: Vec<Device>,
    /// Devices that the driver counts without a PCI address.
    pub unidentified: Vec<UnidentifiedDevice>,
}

/// A device that the driver counts without reporting its PCI address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnidentifiedDevice {
    /// The driver's index of the device.
    pub index: u32,
    /// The failed call and its error.
    pub reason: String,
}

/// Finds and loads a driver library.
pub trait DriverLoader: Send {
    /// Finds libraries without loading any. Returns at least one, in order of precedence.
    fn find(&mut self) -> Result<Vec<PathBuf>, LoadError>;

    /// Loads and initializes the library `path`. Leaves nothing loaded on failure.
    fn open(&mut self, path: &Path, calls: &CallRecord) -> Result<Box<dyn GpuDriver>, LoadError>;
}

/// A loaded and initialized driver library. Dropping it shuts the driver down and unloads the library, unless an
/// [`EventSource`] of it still exists; dropping that one then does.
pub trait GpuDriver: Send {
    /// Reads every device. A failure of one device is that device's problem; an error means that the whole library
    /// fails. Constant values are read once in a driver's life.
    fn observe(&mut self, calls: &CallRecord) -> Result<Observation, DriverError>;

    /// Returns current readings of the devices of the last observation, which does not include them. Omits devices that
    /// do not respond.
    fn readings(
        &mut self,
        last: &[Device],
        calls: &CallRecord,
    ) -> Result<Vec<Reading>, DriverError>;

    /// Returns an event source for the devices of the last observation; `None` if none of them supports events.
    fn events(&mut self, calls: &CallRecord) -> Result<Option<Box<dyn EventSource>>, DriverError>;

    /// Returns controls of those of `devices` that were observed before, in the driver's order.
    fn controls<'a>(&'a mut self, devices: &[PciAddress]) -> Vec<Box<dyn GpuControl + 'a>>;
}

/// Waits for hardware events.
pub trait EventSource: Send {
    /// Blocks until an event occurs or a few seconds have passed. Returns all pending events together, up to a limit.
    fn wait(&mut self) -> Result<EventWait, DriverError>;
}

/// Result of a wait for events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventWait {
    /// A partition changed, or another event requires a new observation.
    Changed,
    /// Xid errors in order of occurrence. Other events may have occurred, too.
    Xids(Vec<Xid>),
    /// The wait timed out.
    TimedOut,
}

// The interface through which devices are changed.
//
// Changes run as a unit of work on the thread that owns the driver, so that nothing is read during a change. Within
// it, each device has its own control, which may be used on its own thread: NVML is thread-safe, and devices share
// nothing except, on some boards, a reset.

/// A device that can be changed.
pub trait GpuControl: Send {
    /// Returns the device's PCI address.
    fn pci(&self) -> PciAddress;

    /// Returns all processes that have a context on the device. An unknown list is an error, never an empty list.
    fn processes(&mut self, calls: &CallRecord) -> Result<Vec<Process>, CallFailure>;

    /// Runs a call that changes the device.
    fn call(&mut self, call: DriverCall, calls: &CallRecord) -> Result<CallResult, CallFailure>;

    /// Reads the device like [`crate::GpuDriver::observe`].
    fn read(&mut self, calls: &CallRecord) -> Result<Device, CallFailure>;
}
