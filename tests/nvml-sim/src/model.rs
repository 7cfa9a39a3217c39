//! The hardware and the driver, as plain data with operations; no file, no clock, no C.
//!
//! ```text
//!  World ── Driver            what is loaded, and since which epoch
//!    ├───── Gpu ── MigState   mode, GPU instances, compute instances
//!    ├───── Process           who holds what
//!    ├───── Others            accelerators that NVML does not speak for
//!    └───── Event             what happened, numbered
//! ```
//!
//! The C layer reads and changes a [`World`] through the store; `nvml-simctl` plays the machine's owner (resets, driver
//! reloads, Xids). Each operation answers the [`Code`] the driver would, so that the rules live here and only here.

mod capacity;
mod code;
mod event;
mod gpu;
mod ids;
mod instance;
mod lifecycle;
mod mig;
mod others;
mod pci;
mod process;
mod profile;
mod world;

#[cfg(test)]
mod tests;

pub use code::Code;
pub use event::{Event, EventKind};
pub use gpu::{
    Architecture, Brand, EccCounters, EccMode, Fabric, Gpu, MigState, NvLink, PciIds, RemappedRows,
    RemoteKind,
};
pub(crate) use ids::seed;
pub use instance::{ComputeInstance, Departed, GpuInstance, MigDevice};
pub use lifecycle::is_driver_version;
pub(crate) use lifecycle::nvml_version;
pub use mig::{Attributes, MigMode};
pub use others::{
    AmdChip, AmdDevice, ComputeMode, Function, MemoryMode, Neuron, NeuronChip, Others,
};
pub use pci::{PciAddress, PciAddressError};
pub use process::{Process, ProcessKind, ProcessRefusal};
pub use profile::{
    CI_PROFILE_COUNT, CiProfile, Engines, GI_PROFILE_COUNT, GiProfile, Placement, Provenance,
};
pub use world::{Driver, DriverStamp, Slot, World};
