//! The driver's device files and their device numbers.
//!
//! The numbers of GPUs and of instance capabilities come from the kernel's and the driver's tables, so these files need
//! not exist in this container's `/dev`. The other files count only if they exist there, because not every machine has
//! each of them.

use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::{fs, io};

use octavo_model::device_file::{DeviceFile, DeviceFiles, DeviceNumber};
use octavo_model::id::PciAddress;
use thiserror::Error;

use super::holders::HoldersError;
use super::holders::nodes::{Capability, Nodes, is_gone};

/// Directory of device files on a host. Source: NVIDIA driver, README, "Device files"; open-gpu-kernel-modules,
/// `nv-caps.c`.
const HOST_DEV_DIR: &str = "/dev";
/// Files that every container with a GPU needs. Source: NVIDIA Container Toolkit.
const COMMON_FILES: [&str; 4] = ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"];

/// An error that makes the driver's device files unknown.
#[derive(Debug, Error)]
pub enum DeviceFilesError {
    /// The kernel lists no NVIDIA devices.
    #[error("the NVIDIA driver is not loaded: the kernel lists no NVIDIA devices")]
    NoDriver,
    /// The driver's tables cannot be read.
    #[error("cannot determine the device files of the driver")]
    Tables(#[source] HoldersError),
    /// A device file cannot be inspected.
    #[error("cannot read the metadata of {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
}

/// Returns the device files of the devices with these minor numbers. `proc` is the machine's process file system and
/// `dev` its device directory as mounted here; the returned paths are those on the host.
pub fn read(
    proc: &Path,
    dev: &Path,
    minors: &BTreeMap<PciAddress, u32>,
) -> Result<DeviceFiles, DeviceFilesError> {
    let nodes = Nodes::read(proc).map_err(DeviceFilesError::Tables)?;
    let nodes = nodes.ok_or(DeviceFilesError::NoDriver)?;
    let major = nodes.gpus.ok_or(DeviceFilesError::NoDriver)?;
    let mut files = DeviceFiles::default();
    for name in COMMON_FILES {
        files.common.extend(common(dev, name)?);
    }
    for (pci, minor) in minors {
        let number = DeviceNumber { major, minor: *minor };
        files.devices.insert(*pci, file(&format!("nvidia{minor}"), number));
    }
    let Some(major) = nodes.capabilities else {
        return Ok(files);
    };
    for (minor, capability) in &nodes.table {
        let Capability::Instance { gpu, gpu_instance, compute_instance } = *capability else {
            continue;
        };
        let Some((pci, _)) = minors.iter().find(|(_, minor)| **minor == gpu) else {
            continue;
        };
        let number = DeviceNumber { major, minor: *minor };
        let file = file(&format!("nvidia-caps/nvidia-cap{minor}"), number);
        files.instances.insert((*pci, gpu_instance, compute_instance), file);
    }
    Ok(files)
}

fn file(name: &str, number: DeviceNumber) -> DeviceFile {
    DeviceFile { path: format!("{HOST_DEV_DIR}/{name}"), number }
}

fn common(dev: &Path, name: &str) -> Result<Option<DeviceFile>, DeviceFilesError> {
    let path = dev.join(name);
    match fs::metadata(&path) {
        Ok(found) if found.file_type().is_char_device() => {
            let number = DeviceNumber {
                major: rustix::fs::major(found.rdev()),
                minor: rustix::fs::minor(found.rdev()),
            };
            Ok(Some(file(name, number)))
        }
        Ok(_) => Ok(None),
        Err(error) if is_gone(&error) => Ok(None),
        Err(source) => Err(DeviceFilesError::Unreadable { path, source }),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    const DEVICES: &str = "Character devices:\n  1 mem\n195 nvidia\n195 nvidiactl\n235 nvidia-caps\n\nBlock devices:\n  8 sd\n";
    const TABLE: &str =
        "config 1\nmonitor 2\ngpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\ngpu5/gi2/access 700\n";

    /// Creates a `/proc` with these devices and capabilities, and a `/dev` whose files have the device numbers of
    /// `null` and `zero`, because creating others requires root.
    fn machine(devices: &str) -> (TempDir, TempDir) {
        let (proc, dev) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(proc.path().join("devices"), devices).unwrap();
        let tables = proc.path().join("driver/nvidia-caps");
        fs::create_dir_all(&tables).unwrap();
        fs::write(tables.join("mig-minors"), TABLE).unwrap();
        symlink("/dev/null", dev.path().join("nvidiactl")).unwrap();
        symlink("/dev/zero", dev.path().join("nvidia-uvm")).unwrap();
        // A regular file of that name.
        fs::write(dev.path().join("nvidia-modeset"), "").unwrap();
        (proc, dev)
    }

    fn minors() -> BTreeMap<PciAddress, u32> {
        let pci = |bus| PciAddress::new(0, bus, 0, 0).unwrap();
        [(pci(7), 0), (pci(8), 3)].into()
    }

    #[test]
    fn files_have_host_paths_and_kernel_numbers() {
        let (proc, dev) = machine(DEVICES);
        let files = read(proc.path(), dev.path(), &minors()).unwrap();
        let described = |file: &DeviceFile| {
            let DeviceNumber { major, minor } = file.number;
            format!("{} {major}:{minor}", file.path)
        };
        let common: Vec<String> = files.common.iter().map(described).collect();
        assert_eq!(common, ["/dev/nvidiactl 1:3", "/dev/nvidia-uvm 1:5"]);
        let devices: Vec<String> = files.devices.values().map(described).collect();
        assert_eq!(devices, ["/dev/nvidia0 195:0", "/dev/nvidia3 195:3"]);
        // Nothing of the GPU with minor number 5, which is not in the list.
        let instances: Vec<String> = files.instances.values().map(described).collect();
        assert_eq!(
            instances,
            ["/dev/nvidia-caps/nvidia-cap12 235:12", "/dev/nvidia-caps/nvidia-cap13 235:13"]
        );
    }

    #[test]
    fn missing_driver_or_tables_is_an_error() {
        let (proc, dev) = machine("Character devices:\n  1 mem\n\nBlock devices:\n  8 sd\n");
        let error = read(proc.path(), dev.path(), &minors()).unwrap_err();
        assert!(matches!(error, DeviceFilesError::NoDriver), "{error}");
        let (proc, dev) = machine(DEVICES);
        fs::remove_file(proc.path().join("driver/nvidia-caps/mig-minors")).unwrap();
        let error = read(proc.path(), dev.path(), &minors()).unwrap_err();
        assert!(matches!(error, DeviceFilesError::Tables(_)), "{error}");
        let error = read(Path::new("/nowhere"), dev.path(), &minors()).unwrap_err();
        assert!(matches!(error, DeviceFilesError::Tables(_)), "{error}");
    }
}
