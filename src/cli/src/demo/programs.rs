//! The programs and the simulated driver, all in the directory where cargo builds them.

use std::path::{Path, PathBuf};

use crate::DemoError;

/// Paths of the programs that the demo starts.
#[derive(Debug)]
pub(super) struct Programs {
    pub(super) agent: PathBuf,
    pub(super) aggregator: PathBuf,
    pub(super) simulator: PathBuf,
    pub(super) library: PathBuf,
}

impl Programs {
    /// Finds the programs in `folder`; all of them must exist.
    pub(super) fn find(folder: &Path) -> Result<Self, DemoError> {
        let find = |name: &'static str| {
            let path = folder.join(name);
            if path.is_file() {
                Ok(path)
            } else {
                Err(DemoError::ProgramMissing {
                    name,
                    folder: folder.to_owned(),
                })
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
