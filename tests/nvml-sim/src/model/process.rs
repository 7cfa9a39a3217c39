//! Who holds a GPU.
//!
//! Processes here are entries of a table, not processes of the machine: a test says that pid 4711 computes on an instance,
//! and the driver's rules (`IN_USE`) follow.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::code::Code;

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

/// Why a process cannot be on a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProcessRefusal {
    /// There is no such GPU.
    #[error("the machine does not have this GPU")]
    NoGpu,
    /// The GPU fell off the bus.
    #[error("the GPU is lost")]
    GpuLost,
    /// The GPU instance is not there.
    #[error("GPU instance {gi} does not exist; {}", what_there_is("GPU instance", there))]
    NoGpuInstance {
        /// The one that was named.
        gi: u32,
        /// Those there are.
        there: Vec<u32>,
    },
    /// The compute instance is not there.
    #[error(
        "compute instance {ci} does not exist in GPU instance {gi}; {}",
        what_there_is("compute instance", there)
    )]
    NoComputeInstance {
        /// The GPU instance, which is there.
        gi: u32,
        /// The one that was named.
        ci: u32,
        /// Those there are in the GPU instance.
        there: Vec<u32>,
    },
    /// A compute instance was named without its GPU instance.
    #[error("compute instance {0} has no GPU instance; set `gi`")]
    ComputeInstanceAlone(u32),
    /// The same process is in the same list of the same GPU already.
    #[error("the process is already on this GPU")]
    AlreadyThere,
}

impl ProcessRefusal {
    /// What the model answers.
    pub fn code(&self) -> Code {
        match self {
            Self::GpuLost => Code::GpuIsLost,
            Self::AlreadyThere => Code::InUse,
            Self::NoGpu
            | Self::NoGpuInstance { .. }
            | Self::NoComputeInstance { .. }
            | Self::ComputeInstanceAlone(_) => Code::NotFound,
        }
    }
}

fn what_there_is(kind: &str, ids: &[u32]) -> String {
    let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
    match ids.len() {
        0 => format!("no {kind} exists"),
        _ => format!("existing: {}", ids.join(", ")),
    }
}
