//! The hardware edge: everything that asks a driver or reads sysfs.
//!
//! ```text
//!  agent, cli --> Handle --+            +--> DriverLoader --> GpuDriver, EventSource   (hw::nvml: the only unsafe code)
//!                          +--> worker -+
//!  (never waits for NVML)  |   (thread) +--> pci, neuron, sysfs
//!                          +--- CallWatch: the call in flight, read by the handle
//! ```
//!
//! One OS thread owns the driver, because NVML may hang in the kernel and a thread is what can be given up then; callers
//! hold a [`Handle`], which answers whatever the driver does. The traits are the ports that the thread uses, in the
//! domain's words and not in NVML's, so that its own logic (late, lost, replaced, hanging drivers) is tested without any.

mod amd;
pub mod calls;
pub mod control;
pub mod device_files;
mod elf;
pub mod error;
pub mod holders;
pub mod library;
mod merge;
mod neuron;
pub mod nvml;
mod pci;
mod sysfs;
pub mod traces;
pub mod worker;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use calls::CallWatch;
pub use control::GpuControl;
pub use error::{Code, DriverError, LoadError, Remedy};
pub use worker::{Handle, Hints, NoDriver, Released, Unread, spawn};

use crate::domain::accelerators::Own;
use crate::domain::id::PciAddress;
use crate::domain::inventory::{Device, Driver};
use crate::domain::reading::Reading;
use crate::domain::sharing::health::Xid;

/// Where the hardware is looked for, and how patiently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The NVML library; when given, no other is tried.
    pub library: Option<PathBuf>,
    /// Roots of driver installations, in the order they are looked through.
    pub driver_roots: Vec<PathBuf>,
    /// Where sysfs is mounted.
    pub sys_root: PathBuf,
    /// The node's setting of logical `NeuronCore`s.
    pub neuron_logical_config: PathBuf,
    /// Products that an administrator's catalogue adds.
    pub own: Arc<Own>,
    /// After this time, a driver call that has not returned counts as stalled.
    pub call_deadline: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            library: None,
            driver_roots: library::DRIVER_ROOTS.map(PathBuf::from).to_vec(),
            sys_root: PathBuf::from(sysfs::ROOT),
            neuron_logical_config: PathBuf::from(neuron::LOGICAL_CONFIG),
            own: Arc::default(),
            // Above what a healthy driver needs for its slowest call: the first one, while no daemon keeps the GPUs awake.
            call_deadline: Duration::from_secs(10),
        }
    }
}

/// What a driver says in one reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// The driver itself.
    pub driver: Driver,
    /// The devices it speaks for. What only the machine knows of them (NUMA node, class) and what only the catalogue
    /// knows (identity) is left absent.
    pub devices: Vec<Device>,
    /// Further devices that it counts, without a PCI address.
    pub unnamed: Vec<Unnamed>,
}

/// A device that a driver counts and whose PCI address it does not report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unnamed {
    /// The driver's index for it.
    pub index: u32,
    /// The call that failed, and how.
    pub reason: String,
}

/// Finds and starts a driver library.
pub trait DriverLoader: Send {
    /// Looks for libraries without loading any; at least one, the most promising first.
    fn find(&mut self) -> Result<Vec<PathBuf>, LoadError>;

    /// Loads and starts the library `path`. Nothing of it stays behind on failure.
    fn open(&mut self, path: &Path, calls: &CallWatch) -> Result<Box<dyn GpuDriver>, LoadError>;
}

/// One started driver library. Dropping it shuts the driver down and unloads the library, unless an [`EventSource`] of
/// it is left: then dropping that one does.
pub trait GpuDriver: Send {
    /// Reads every device. What a single device does not answer is that device's problem; an error means that the
    /// library as a whole does not answer. What never changes is asked once in a driver's life.
    fn observe(&mut self, calls: &CallWatch) -> Result<Observation, DriverError>;

    /// What the devices read last say of themselves now; one that does not answer is left out. None of it is part of an
    /// [`Observation`].
    fn readings(&mut self, last: &[Device], calls: &CallWatch)
    -> Result<Vec<Reading>, DriverError>;

    /// A source of events of the devices read last; `None` when none of them has any.
    fn events(&mut self, calls: &CallWatch) -> Result<Option<Box<dyn EventSource>>, DriverError>;

    /// Controls of those of `devices` that were read before, in the driver's order.
    fn controls<'a>(&'a mut self, devices: &[PciAddress]) -> Vec<Box<dyn GpuControl + 'a>>;
}

/// Waits for what the hardware says by itself.
pub trait EventSource: Send {
    /// Blocks until something happened, or for some seconds. What has happened already is told all at once, up to a bound.
    fn wait(&mut self) -> Result<Heard, DriverError>;
}

/// The end of a wait for events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// A changed partition, or whatever else makes the devices worth another look.
    Something,
    /// Errors of devices, in the order in which they happened; something else may have happened too.
    Xids(Vec<Xid>),
    /// The time is up.
    Nothing,
}
