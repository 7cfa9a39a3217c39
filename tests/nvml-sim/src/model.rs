//! The hardware and the driver as plain data with operations; no files, no clock, no C.
//!
//! ```text
//!  World ── Driver            what is loaded, and since which epoch
//!    ├───── Gpu ── MigState   mode, GPU instances, compute instances
//!    ├───── Process           holders of GPUs and instances
//!    ├───── OtherDevices      accelerators outside of NVML
//!    └───── Event             numbered events
//! ```
//!
//! The C layer reads and changes a [`World`] through the store; `nvml-simctl` administers the machine (resets, driver
//! reloads, Xids). Each operation returns the [`Code`] of the driver, so that all rules are in this module.

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
pub use instance::{ComputeInstance, DestroyedMigDevice, GpuInstance, MigDevice};
pub use lifecycle::is_driver_version;
pub(crate) use lifecycle::nvml_version;
pub use mig::{Attributes, MigMode};
pub use others::{
    AmdChip, AmdDevice, ComputeMode, Function, MemoryMode, Neuron, NeuronChip, OtherDevices,
};
pub use pci::{PciAddress, PciAddressError};
pub use process::{Process, ProcessKind, ProcessLoad, ProcessRefusal};
pub use profile::{
    CI_PROFILE_COUNT, CiProfile, Engines, GI_PROFILE_COUNT, GiProfile, Placement, Provenance,
};
pub use world::{Driver, DriverStamp, Slot, World};
