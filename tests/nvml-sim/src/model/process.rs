//! Holders of a GPU.
//!
//! Processes are entries of a table, not processes of the machine: a test adds pid 4711 to an instance, and the
//! driver's rules (`IN_USE`) apply.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::code::Code;

/// A holder of a GPU or of one of its instances.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Process id as NVML reports it.
    pub pid: u32,
    /// Name for `nvmlSystemGetProcessName`.
    pub name: String,
    /// UUID of the GPU.
    pub gpu_uuid: String,
    /// GPU instance of the process.
    pub gi: Option<u32>,
    /// Compute instance of the process.
    pub ci: Option<u32>,
    /// Memory it uses, MiB.
    pub memory_mib: u64,
    /// The list that contains it.
    pub kind: ProcessKind,
}

/// Utilization and memory of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessLoad {
    /// Its pid.
    pub pid: u32,
    /// Utilization of its GPU, or of its GPU instance, percent.
    pub percent: u32,
    /// Memory it uses, MiB.
    pub memory_mib: u64,
}

/// NVML's process lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProcessKind {
    /// A CUDA context.
    Compute,
    /// An OpenGL or Vulkan context.
    Graphics,
    /// A client of the MPS server.
    Mps,
    /// Holds the device without being listed, like a monitoring daemon with a leaked handle.
    Holder,
}

/// Why a process cannot be on a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProcessRefusal {
    /// The GPU does not exist.
    #[error("the machine does not have this GPU")]
    NoGpu,
    /// The GPU is lost.
    #[error("the GPU is lost")]
    GpuLost,
    /// The GPU instance does not exist.
    #[error("GPU instance {gi} does not exist; {}", existing_instances("GPU instance", there))]
    NoGpuInstance {
        /// The requested one.
        gi: u32,
        /// Existing ones.
        there: Vec<u32>,
    },
    /// The compute instance does not exist.
    #[error(
        "compute instance {ci} does not exist in GPU instance {gi}; {}",
        existing_instances("compute instance", there)
    )]
    NoComputeInstance {
        /// The existing GPU instance.
        gi: u32,
        /// The requested one.
        ci: u32,
        /// Existing ones in the GPU instance.
        there: Vec<u32>,
    },
    /// A compute instance without its GPU instance.
    #[error("compute instance {0} has no GPU instance; set `gi`")]
    ComputeInstanceAlone(u32),
    /// The process is already in the same list of the same GPU.
    #[error("the process is already on this GPU")]
    AlreadyThere,
}

impl ProcessRefusal {
    /// The return code of the model.
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

fn existing_instances(kind: &str, ids: &[u32]) -> String {
    let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
    match ids.len() {
        0 => format!("no {kind} exists"),
        _ => format!("existing: {}", ids.join(", ")),
    }
}
