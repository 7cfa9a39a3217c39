//! Who holds a GPU.
//!
//! Processes here are entries of a table, not processes of the machine: a test says that pid 4711 computes on an instance,
//! and the driver's rules (`IN_USE`) follow.

use serde::{Deserialize, Serialize};

/// One holder of a GPU or of an instance on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Process id as NVML reports it.
    pub pid: u32,
    /// Name for `nvmlSystemGetProcessName`.
    pub name: String,
    /// UUID of the GPU.
    pub gpu_uuid: String,
    /// GPU instance it is confined to.
    pub gi: Option<u32>,
    /// Compute instance it is confined to.
    pub ci: Option<u32>,
    /// Memory it uses, MiB.
    pub memory_mib: u64,
    /// In which list it appears.
    pub kind: ProcessKind,
}

/// In which of NVML's lists a process appears.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProcessKind {
    /// A CUDA context.
    Compute,
    /// An OpenGL or Vulkan context.
    Graphics,
    /// A client of the MPS server.
    Mps,
    /// Holds the device without being listed anywhere, as a monitoring daemon with a leaked handle does.
    Holder,
}
