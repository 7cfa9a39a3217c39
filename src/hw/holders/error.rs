//! Why it cannot be told who has a GPU open.

use std::error::Error;
use std::path::{Path, PathBuf};

use thiserror::Error as ThisError;

/// Why it cannot be told who has a GPU or a partition open: whatever is asked about then counts as in use.
#[derive(Debug, ThisError)]
pub enum HoldersError {
    /// Something that was to be looked at would not be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// A table of the driver is longer than any driver's.
    #[error("{} is longer than {limit} bytes", path.display())]
    TableTooLong {
        /// The table.
        path: PathBuf,
        /// The most that is read of it.
        limit: u64,
    },
    /// Not all processes of the machine are in sight.
    #[error(
        "{} does not show all processes of the machine: it belongs to a container's process namespace, or hides those of \
         others",
        root.display()
    )]
    NotAllInSight {
        /// The root of the process file system.
        root: PathBuf,
    },
    /// More processes than are looked through.
    #[error("there are more than {limit} processes")]
    TooManyProcesses {
        /// The most that are looked through.
        limit: usize,
    },
    /// More open files than are looked through.
    #[error("there are more than {limit} open files; process {pid} has the one too many")]
    TooManyFiles {
        /// The process that was being looked at.
        pid: u32,
        /// The most that are looked through, those of all processes together.
        limit: usize,
    },
    /// A capability that is open is in no table of the driver, or stands for two things in one.
    #[error(
        "process {pid} has nvidia-cap{minor} open, and the driver's tables do not tell what that is"
    )]
    UnknownCapability {
        /// The process.
        pid: u32,
        /// The capability's minor number.
        minor: u32,
    },
    /// A node of a GPU is open that none of the devices is known to have, while one of them does not tell its own.
    #[error("process {pid} has a node of GPU {minor} open, and which device that is is not known")]
    UnknownDevice {
        /// The process.
        pid: u32,
        /// The GPU's minor number.
        minor: u32,
    },
}

impl HoldersError {
    pub(super) fn unreadable(path: &Path, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Unreadable {
            path: path.to_owned(),
            source: error.into(),
        }
    }
}
