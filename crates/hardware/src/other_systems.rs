//! Replacement of the modules that need Linux, on other systems. The command line runs there for the fleet only: the use
//! of devices is unknown.

pub mod device_files {
    //! The driver's device files.

    use std::collections::BTreeMap;
    use std::path::Path;

    use octavo_model::device_file::DeviceFiles;
    use octavo_model::id::PciAddress;
    use thiserror::Error;

    use super::holders::HoldersError;

    /// An error that makes the driver's device files unknown.
    #[derive(Debug, Error)]
    pub enum DeviceFilesError {
        /// The kernel lists no NVIDIA devices.
        #[error("the NVIDIA driver is not loaded: the kernel lists no NVIDIA devices")]
        NoDriver,
        /// The driver's tables cannot be read.
        #[error("cannot determine the device files of the driver")]
        Tables(#[source] HoldersError),
    }

    /// Fails, because only Linux lists the device files of a driver.
    pub fn read(
        _proc: &Path,
        _dev: &Path,
        _minors: &BTreeMap<PciAddress, u32>,
    ) -> Result<DeviceFiles, DeviceFilesError> {
        Err(DeviceFilesError::Tables(HoldersError::Unsupported))
    }
}

pub mod holders {
    //! GPU usage.

    use std::collections::BTreeSet;
    use std::path::Path;

    use octavo_model::holder::Holder;
    use octavo_model::inventory::Device;
    use thiserror::Error;

    /// An error that makes the holders of a GPU or partition unknown. The devices in question then count as in use.
    #[derive(Debug, Error)]
    pub enum HoldersError {
        /// The operating system has no procfs.
        #[error("only Linux shows which processes use a device")]
        Unsupported,
    }

    /// Adds nothing.
    pub fn describe(_root: &Path, _holders: &mut [Holder]) {}

    /// Fails, because the processes that have a device open are unknown.
    pub fn open(_root: &Path, _devices: &[&Device]) -> Result<Vec<Holder>, HoldersError> {
        Err(HoldersError::Unsupported)
    }

    /// Fails, because the pods of processes are unknown.
    pub fn pods(_root: &Path) -> Result<BTreeSet<String>, HoldersError> {
        Err(HoldersError::Unsupported)
    }

    /// Returns no programs.
    pub fn running_programs(_root: &Path, _names: &[&str]) -> BTreeSet<String> {
        BTreeSet::new()
    }
}
