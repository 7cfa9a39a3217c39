//! What must be known after a crash and cannot be read from the hardware: what devices had before anything was done to them.

use crate::domain::id::{GpuUuid, PciAddress};
use crate::domain::layout::MigTarget;

/// An apply that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The plan's id.
    pub plan: String,
    /// The layout's name.
    pub layout: String,
    /// The devices that are not settled yet, in the order of their addresses, each once.
    pub devices: Vec<Entry>,
}

/// One device of an apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The device.
    pub pci: PciAddress,
    /// Tells it from another that took its slot.
    pub uuid: Option<GpuUuid>,
    /// What it had, each instance in its place; `None` where nobody could tell.
    pub previous: Option<MigTarget>,
    /// What it shall have.
    pub target: MigTarget,
}
