//! Devices of this machine as containers receive them: the driver's device files, and Octavo's CDI specification in
//! the directory that container runtimes read.
//!
//! The specification is compared with the desired one whenever it is needed, and written only if it differs: another
//! process may have removed it, and `/run` is empty after a boot. It is replaced atomically, so that a runtime never
//! reads half of one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::{fs, io};

use octavo_engine::durable::{self, DurableError};
use octavo_files::cdi::{self, CdiError, DriverEdits};
use octavo_hardware::device_files;
use octavo_kubelet::device_plugin::allocation_response::{Machine, MachineError};
use octavo_model::device_file::DeviceFiles;
use octavo_model::id::PciAddress;
use octavo_model::inventory::Device;
use octavo_node::sharing::Unit;
use octavo_node::sharing::injection::unit_files;
use octavo_toolkit::files::{self, ReadError};
use thiserror::Error;
use tracing::{info, warn};

/// Vendor and class, as CDI recommends.
const SPEC_FILE_NAME: &str = "octavo.dev-gpu.json";
/// No runtime reads a file with this extension.
const DRAFT_FILE_NAME: &str = ".octavo.dev-gpu.draft";
/// Container runtimes may run as any user.
const MODE: u32 = 0o644;
/// Maximum size; NVIDIA's specification of eight GPUs has some thirty kilobytes.
const MAX_SPEC_BYTES: u64 = 1 << 20;

/// This machine.
#[derive(Debug)]
pub struct HostDevices {
    paths: HostPaths,
    state: Mutex<HostState>,
}

/// Paths on the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPaths {
    /// The process file system, in which the kernel and the driver list numbers.
    pub proc: PathBuf,
    /// Device files.
    pub dev: PathBuf,
    /// CDI specifications.
    pub cdi: PathBuf,
}

/// State between two scans.
#[derive(Debug, Default)]
struct HostState {
    minors: BTreeMap<PciAddress, u32>,
    units: Vec<Unit>,
    /// Whether NVIDIA's specification was there; `None` before the first check.
    libraries: Option<bool>,
}

/// Reason why the CDI specification cannot be updated.
#[derive(Debug, Error)]
enum CdiSpecError {
    #[error(transparent)]
    Cdi(#[from] CdiError),
    #[error(transparent)]
    Write(#[from] DurableError),
    #[error("cannot list {}", path.display())]
    Directory {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl HostDevices {
    /// Creates the machine with these paths.
    pub fn new(paths: HostPaths) -> Self {
        Self { paths, state: Mutex::default() }
    }

    /// Logs, once per change, whether containers receive the driver's libraries through CDI.
    fn log_libraries(&self, found: bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.libraries.replace(found) == Some(found) {
            return;
        }
        let dir = self.paths.cdi.display();
        if found {
            info!(directory = %dir, "containers get devices and driver libraries from NVIDIA's CDI specification");
        } else {
            warn!(
                directory = %dir,
                "containers get device files but no driver libraries: no CDI specification of nvidia.com/gpu found; \
                 create one with `nvidia-ctk cdi generate`"
            );
        }
    }

    fn write(&self, units: &[Unit], files: &DeviceFiles) -> Result<(), CdiSpecError> {
        let dir = &self.paths.cdi;
        let driver = driver_edits(dir)
            .map_err(|source| CdiSpecError::Directory { path: dir.clone(), source })?;
        self.log_libraries(driver.is_some());
        let text = cdi::write_spec(units, files, driver.as_ref())?;
        let path = dir.join(SPEC_FILE_NAME);
        if read(&path).ok().flatten().as_deref() == Some(text.as_str()) {
            return Ok(());
        }
        let draft = dir.join(DRAFT_FILE_NAME);
        let written = durable::replace(&path, &draft, text.as_bytes(), MODE);
        if written.is_err() {
            // A partial draft is useless. Removal fails if the directory is read-only, and then there is no draft.
            let _none_is_as_good = fs::remove_file(draft);
        }
        Ok(written?)
    }
}

impl Machine for HostDevices {
    fn update(&self, devices: &[Device], units: &[Unit]) {
        let minors = devices.iter();
        let minors = minors.filter_map(|device| Some((device.pci, device.minor?)));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.minors = minors.collect();
        state.units = units.to_vec();
    }

    fn files(&self) -> Result<DeviceFiles, MachineError> {
        let minors = {
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.minors.clone()
        };
        Ok(device_files::read(&self.paths.proc, &self.paths.dev, &minors)?)
    }

    fn ensure_cdi_spec(&self, units: &[Unit], files: &DeviceFiles) -> Result<(), MachineError> {
        let mut all = {
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.units.clone()
        };
        all.retain(|unit| unit_files(files, unit).is_ok());
        all.extend_from_slice(units);
        Ok(self.write(&all, files)?)
    }
}

/// Removes Octavo's CDI specification, if there is one: its devices are no longer allocated.
pub fn remove_spec(cdi: &Path) -> Result<bool, DurableError> {
    let path = cdi.join(SPEC_FILE_NAME);
    let found = path.exists();
    if found {
        durable::remove(&path)?;
    }
    Ok(found)
}

/// Returns the container edits of NVIDIA's specification in a directory; of several files, the first by name. A file
/// that cannot be read, or is something else, is skipped.
pub(crate) fn driver_edits(dir: &Path) -> io::Result<Option<DriverEdits>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if matches!(extension, Some("json" | "yaml")) && !path.ends_with(SPEC_FILE_NAME) {
            paths.push(path);
        }
    }
    paths.sort();
    let mut texts = paths.iter().filter_map(|path| read(path).ok().flatten());
    Ok(texts.find_map(|text| DriverEdits::parse(&text)))
}

/// Returns the text of a file; `None` if it is longer than any specification, and for a FIFO, a device or a directory.
fn read(path: &Path) -> io::Result<Option<String>> {
    match files::text(path, MAX_SPEC_BYTES) {
        Ok(text) => Ok(Some(text)),
        Err(ReadError::NotARegularFile | ReadError::TooLong(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use octavo_model::inventory::PciIds;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use serde_json::Value;
    use tempfile::TempDir;

    use super::*;

    fn pci(bus: u8) -> PciAddress {
        PciAddress::new(0, bus, 0, 0).unwrap()
    }

    fn unit(uuid: &str, bus: u8) -> Unit {
        Unit {
            uuid: uuid.to_owned(),
            pci: pci(bus),
            partition: None,
            replicas: Some(2),
            memory: None,
            memory_per_replica: None,
            numa_node: None,
        }
    }

    /// A machine with two GPUs, whose files are all in one directory.
    struct TestHost {
        directory: TempDir,
        host: HostDevices,
    }

    impl TestHost {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let place = |name: &str| {
                let path = directory.path().join(name);
                fs::create_dir(&path).unwrap();
                path
            };
            let paths = HostPaths { proc: place("proc"), dev: place("dev"), cdi: place("cdi") };
            let devices = "Character devices:\n195 nvidia\n\nBlock devices:\n  8 sd\n";
            fs::write(paths.proc.join("devices"), devices).unwrap();
            let machine = Self { directory, host: HostDevices::new(paths) };
            machine.see(&[unit("GPU-a", 7), unit("GPU-b", 8)]);
            machine
        }

        fn see(&self, units: &[Unit]) {
            let devices = [(7, 0), (8, 1)].map(|(bus, minor)| {
                let ids = PciIds {
                    vendor: 0x10de,
                    device: 0x2330,
                    subsystem_vendor: 0x10de,
                    subsystem_device: 0,
                    class: None,
                };
                let mut device = Device::new(pci(bus), ids);
                device.minor = Some(minor);
                device
            });
            self.host.update(&devices, units);
        }

        fn describe(&self, units: &[Unit]) -> Result<(), MachineError> {
            self.host.ensure_cdi_spec(units, &self.host.files()?)
        }

        fn path(&self) -> PathBuf {
            self.directory.path().join("cdi").join(SPEC_FILE_NAME)
        }

        fn names(&self) -> Vec<String> {
            let text = fs::read_to_string(self.path()).unwrap();
            let spec: Value = serde_json::from_str(&text).unwrap();
            let devices = spec["devices"].as_array().unwrap();
            let names = devices.iter().map(|one| one["name"].as_str().unwrap());
            names.map(str::to_owned).collect()
        }
    }

    #[test]
    fn spec_contains_all_offered_units_and_is_written_once() {
        let machine = TestHost::new();
        machine.describe(&[]).unwrap();
        assert_eq!(machine.names(), ["GPU-a", "GPU-b"]);
        let first = fs::metadata(machine.path()).unwrap();
        assert_eq!(first.permissions().mode() & 0o777, 0o644);
        machine.describe(&[unit("GPU-a", 7)]).unwrap();
        // A replaced file has another inode.
        assert_eq!(fs::metadata(machine.path()).unwrap().ino(), first.ino());
        machine.see(&[unit("GPU-b", 8)]);
        machine.describe(&[]).unwrap();
        assert_eq!(machine.names(), ["GPU-b"]);
    }

    #[test]
    fn removed_spec_is_restored_before_use() {
        let machine = TestHost::new();
        machine.describe(&[]).unwrap();
        fs::remove_file(machine.path()).unwrap();
        machine.describe(&[unit("GPU-a", 7)]).unwrap();
        assert_eq!(machine.names(), ["GPU-a", "GPU-b"]);
        assert!(remove_spec(&machine.directory.path().join("cdi")).unwrap());
        assert!(!machine.path().exists());
        assert!(!remove_spec(&machine.directory.path().join("cdi")).unwrap());
    }

    #[test]
    fn unit_without_device_file_fails_alone() {
        let machine = TestHost::new();
        let lost = unit("GPU-lost", 9);
        machine.see(&[unit("GPU-a", 7), lost.clone()]);
        machine.describe(&[]).unwrap();
        assert_eq!(machine.names(), ["GPU-a"]);
        let error = machine.describe(&[lost]).unwrap_err().to_string();
        assert!(error.contains("GPU-lost"), "{error}");
        assert_eq!(machine.names(), ["GPU-a"]);
    }

    #[test]
    fn unwritable_directory_is_an_error_and_the_old_spec_stays() {
        let machine = TestHost::new();
        machine.see(&[unit("GPU-a", 7)]);
        machine.describe(&[]).unwrap();
        // A draft that is a directory cannot be written even by root, unlike one that is read-only.
        let draft = machine.directory.path().join("cdi").join(DRAFT_FILE_NAME);
        fs::create_dir(&draft).unwrap();
        let error = machine.describe(&[unit("GPU-b", 8)]).unwrap_err();
        assert!(error.to_string().contains("cannot write"), "{error}");
        assert_eq!(machine.names(), ["GPU-a"]);
        fs::remove_dir(draft).unwrap();
        machine.describe(&[unit("GPU-b", 8)]).unwrap();
        assert_eq!(machine.names(), ["GPU-a", "GPU-b"]);
        fs::remove_dir_all(machine.directory.path().join("cdi")).unwrap();
        let error = machine.describe(&[]).unwrap_err();
        assert!(error.to_string().contains("cannot list"), "{error}");
    }

    #[test]
    fn nvidia_spec_is_used_once_it_appears() {
        let machine = TestHost::new();
        machine.describe(&[]).unwrap();
        let nvidia = "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices: []\ncontainerEdits:\n  env: [DRIVER=here]\n";
        let directory = machine.directory.path().join("cdi");
        fs::write(directory.join("nvidia.yaml"), nvidia).unwrap();
        // Neither is read.
        fs::write(directory.join("broken.yaml"), "{").unwrap();
        fs::write(directory.join("long.json"), "a".repeat(2 << 20)).unwrap();
        // It has no writer, so opening it for reading would block forever.
        let pipe = directory.join("a-pipe.json");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
        machine.describe(&[]).unwrap();
        let text = fs::read_to_string(machine.path()).unwrap();
        assert!(text.contains("DRIVER=here"), "{text}");
    }
}
