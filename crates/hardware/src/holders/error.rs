//! The error type of usage scans.

use std::error::Error;
use std::path::{Path, PathBuf};

use thiserror::Error as ThisError;

/// An error that makes the holders of a GPU or partition unknown. The devices in question then count as in use.
#[derive(Debug, ThisError)]
pub enum HoldersError {
    /// A file or directory cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// A driver table exceeds the size limit.
    #[error("{} is longer than {limit} bytes", path.display())]
    TableTooLong {
        /// The table.
        path: PathBuf,
        /// The size limit in bytes.
        limit: u64,
    },
    /// Some processes of the machine are not visible.
    #[error(
        "{} does not show all processes of the machine: it belongs to the PID namespace of a container, or hides \
         processes of other users",
        root.display()
    )]
    HiddenProcesses {
        /// The root of the process file system.
        root: PathBuf,
    },
    /// The number of processes exceeds the limit.
    #[error("there are more than {limit} processes")]
    TooManyProcesses {
        /// The limit.
        limit: usize,
    },
    /// The number of open files exceeds the limit.
    #[error("there are more than {limit} open files; the limit was reached at process {pid}")]
    TooManyFiles {
        /// The process at which the limit was reached.
        pid: u32,
        /// The limit, for all processes together.
        limit: usize,
    },
    /// An open capability is missing from the driver's tables or ambiguous in them.
    #[error("process {pid} has nvidia-cap{minor} open, which the driver's tables do not identify")]
    UnknownCapability {
        /// The process.
        pid: u32,
        /// The capability's minor number.
        minor: u32,
    },
    /// An open GPU node belongs to none of the known devices, and at least one of these does not report its minor
    /// number.
    #[error("process {pid} has a device file of GPU {minor} open, which matches no known device")]
    UnknownDevice {
        /// The process.
        pid: u32,
        /// The GPU's minor number.
        minor: u32,
    },
}

impl HoldersError {
    pub(super) fn unreadable(path: &Path, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Unreadable { path: path.to_owned(), source: error.into() }
    }
}
