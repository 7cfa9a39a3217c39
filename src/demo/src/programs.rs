//! The programs and the simulated driver, all in the directory where cargo builds them.

use std::path::{Path, PathBuf};

use crate::error::DemoError;

/// Paths of the programs that the demo starts.
#[derive(Debug)]
pub struct Programs {
    /// `octavo-agent`.
    pub agent: PathBuf,
    /// `octavo-aggregator`.
    pub aggregator: PathBuf,
    /// `nvml-simctl`.
    pub simulator: PathBuf,
    /// The simulated NVML library.
    pub library: PathBuf,
}

impl Programs {
    /// Finds the programs in `directory`; all of them must exist.
    pub fn find(directory: &Path) -> Result<Self, DemoError> {
        let find = |name: &'static str| {
            let path = directory.join(name);
            if path.is_file() {
                Ok(path)
            } else {
                Err(DemoError::ProgramMissing { name, directory: directory.to_owned() })
            }
        };
        Ok(Self {
            agent: find("octavo-agent")?,
            aggregator: find("octavo-aggregator")?,
            simulator: find("nvml-simctl")?,
            library: find("libnvml_sim.so")?,
        })
    }
}
