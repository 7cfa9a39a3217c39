//! Finds, checks and initializes `libnvidia-ml.so.1`.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use nvml_wrapper::Nvml;
use nvml_wrapper_sys::bindings::NvmlLib;
use octavo_model::id::PciAddress;
use octavo_model::inventory::{Condition, Device, Driver};
use octavo_model::quantity::CudaVersion;
use octavo_model::reading::Reading;

use super::control::NvmlControl;
use super::device::{KnownDevice, observe_one};
use super::events::NvmlEvents;
use super::session::DeviceHandle;
use super::{links, readings};
use crate::calls::CallRecord;
use crate::error::{DriverError, LoadError, Remedy};
use crate::nvml::session::{Session, code_of};
use crate::{
    DriverLoader, EventSource, GpuControl, GpuDriver, Observation, Settings, UnidentifiedDevice,
    library,
};

/// Loads NVML according to the settings.
#[derive(Debug, Clone)]
pub struct Loader {
    library: Option<PathBuf>,
    roots: Vec<PathBuf>,
    preload_command: Option<PreloadCommand>,
}

/// Builds the command that loads a library in a separate process.
pub type PreloadCommand = fn(&Path) -> Command;

impl Loader {
    /// Creates a loader for the libraries in `settings`.
    pub fn new(settings: &Settings) -> Self {
        Self {
            library: settings.library.clone(),
            roots: settings.driver_roots.clone(),
            preload_command: None,
        }
    }

    /// Loads each library in another process first. While loading a library, the dynamic loader holds a lock that other
    /// threads need for thread-local data and at exit: a library that never finishes loading would freeze the whole
    /// process.
    #[must_use]
    pub fn with_preload(self, rehearsal: PreloadCommand) -> Self {
        Self { preload_command: Some(rehearsal), ..self }
    }

    /// Waits until another process has loaded the library, successfully or not: errors show when this process loads it.
    /// A library that kills the process is not loaded here.
    fn preload(&self, path: &Path) -> Result<(), LoadError> {
        let Some(rehearsal) = self.preload_command else {
            return Ok(());
        };
        // Without another process, there is no rehearsal.
        let status = rehearsal(path).status().ok();
        match status.and_then(|status| status.signal()) {
            Some(signal) => Err(LoadError::Unloadable {
                path: path.to_owned(),
                reason: format!("a child process that loaded it was killed by signal {signal}"),
            }),
            None => Ok(()),
        }
    }
}

/// Loads the library and unloads it again.
pub fn load(path: &Path) -> io::Result<()> {
    check(path).map(drop).map_err(io::Error::other)
}

impl DriverLoader for Loader {
    fn find(&mut self) -> Result<Vec<PathBuf>, LoadError> {
        library::find(self.library.as_deref(), &self.roots)
    }

    fn open(&mut self, path: &Path, calls: &CallRecord) -> Result<Box<dyn GpuDriver>, LoadError> {
        // Stays loaded until NVML is initialized, so that the wrapper opens the same file.
        let _library = calls
            .record("dlopen", None, || self.preload(path).and_then(|()| check(path)))
            .map_err(|error| self.with_search_path(path, error))?;
        let nvml = calls
            .record("nvmlInit_v2", None, || Nvml::builder().lib_path(path.as_os_str()).init())
            .map_err(|error| LoadError::Refused {
                path: path.to_owned(),
                source: DriverError { call: "nvmlInit_v2", code: code_of(error) },
            })?;
        let nvml = Arc::new(nvml);
        let driver = driver(path, Session::new(&nvml, calls))?;
        Ok(Box::new(NvmlDriver::new(nvml, driver)))
    }
}

impl Loader {
    /// Replaces the error of the last attempt. The dynamic loader's own search comes last, so its failure means that no
    /// directory has the library.
    fn with_search_path(&self, path: &Path, error: LoadError) -> LoadError {
        if path == Path::new(library::LIBRARY_NAME) && matches!(error, LoadError::Unloadable { .. })
        {
            return LoadError::NotFound {
                name: library::LIBRARY_NAME.to_owned(),
                searched: library::describe_search_path(&self.roots),
            };
        }
        error
    }
}

/// Loads the file and checks that nvml-wrapper can use it: without these two functions, it cannot initialize NVML or
/// panics when it shuts NVML down.
fn check(path: &Path) -> Result<NvmlLib, LoadError> {
    let unloadable = |reason: String| LoadError::Unloadable { path: path.to_owned(), reason };
    // The dynamic loader searches for a bare file name, so the actual file is unknown here.
    if path != Path::new(library::LIBRARY_NAME) {
        let objection =
            library::incomplete_reason(path).map_err(|error| unloadable(error.to_string()))?;
        if let Some(reason) = objection {
            return Err(unloadable(reason));
        }
    }
    // SAFETY: loading a library runs its constructors. NVML's constructors do not depend on the caller, and the path
    // comes from the administrator or is a directory where the system installs its driver.
    let library = unsafe { NvmlLib::new(path) }.map_err(|error| unloadable(error.to_string()))?;
    let needed = [
        ("nvmlInit_v2", library.nvmlInit_v2.is_ok()),
        ("nvmlShutdown", library.nvmlShutdown.is_ok()),
    ];
    let missing: Vec<&str> =
        needed.iter().filter(|(_, there)| !there).map(|(name, _)| *name).collect();
    if missing.is_empty() {
        Ok(library)
    } else {
        Err(LoadError::NotNvml { path: path.to_owned(), missing: missing.join(" and ") })
    }
}

fn driver(path: &Path, session: Session<'_>) -> Result<Driver, LoadError> {
    let nvml = session.nvml();
    let version = session
        .wrapped("nvmlSystemGetDriverVersion", || nvml.sys_driver_version())
        .map_err(|source| LoadError::Refused { path: path.to_owned(), source })?;
    let cuda =
        session.wrapped("nvmlSystemGetCudaDriverVersion_v2", || nvml.sys_cuda_driver_version());
    Ok(Driver {
        version: version
            .parse()
            .map_err(|source| LoadError::Version { path: path.to_owned(), source })?,
        cuda: cuda
            .ok()
            .and_then(|number| u32::try_from(number).ok())
            .filter(|number| *number > 0)
            .map(CudaVersion::from_nvml),
    })
}

/// An initialized NVML library.
#[derive(Debug)]
pub(super) struct NvmlDriver {
    nvml: Arc<Nvml>,
    driver: Driver,
    /// Devices by NVML index, after their first successful lookup.
    devices: Vec<Option<KnownDevice>>,
}

impl NvmlDriver {
    pub(super) fn new(nvml: Arc<Nvml>, driver: Driver) -> Self {
        Self { nvml, driver, devices: Vec::new() }
    }

    /// Returns the devices with a known handle.
    fn handles(&self) -> Vec<(PciAddress, DeviceHandle)> {
        let known = self.devices.iter().flatten();
        known.map(|known| (known.pci, known.handle)).collect()
    }
}

impl GpuDriver for NvmlDriver {
    fn observe(&mut self, calls: &CallRecord) -> Result<Observation, DriverError> {
        let nvml = Arc::clone(&self.nvml);
        let session = Session::new(&nvml, calls);
        let count = session.wrapped("nvmlDeviceGetCount_v2", || nvml.device_count())?;
        if u32::try_from(self.devices.len()) != Ok(count) {
            // A device was added or removed, which shifts the indices of others.
            self.devices.clear();
            self.devices.resize_with(count as usize, || None);
        }
        let mut devices = Vec::new();
        let mut unnamed = Vec::new();
        for (index, position) in (0_u32..).zip(0..self.devices.len()) {
            let (before, after) = self.devices.split_at_mut(position);
            let [slot, ..] = after else { break };
            match observe_one(session, index, before, slot) {
                Ok(device) => devices.push(device),
                Err(error) if error.remedy() == Remedy::Reinitialize => return Err(error),
                Err(error) => unnamed.push(UnidentifiedDevice { index, reason: error.to_string() }),
            }
        }
        links::group_by_p2p(session, &self.handles(), &mut devices)?;
        Ok(Observation { driver: self.driver.clone(), devices, unidentified: unnamed })
    }

    fn readings(
        &mut self,
        last: &[Device],
        calls: &CallRecord,
    ) -> Result<Vec<Reading>, DriverError> {
        let session = Session::new(&self.nvml, calls);
        let known = self.devices.iter_mut().flatten();
        let working = known.filter_map(|known| {
            let device = last.iter().find(|device| device.pci == known.pci)?;
            (device.condition == Condition::Working).then_some((known, device))
        });
        working.map(|(known, device)| readings::read(session, known, device)).collect()
    }

    fn events(&mut self, calls: &CallRecord) -> Result<Option<Box<dyn EventSource>>, DriverError> {
        let session = Session::new(&self.nvml, calls);
        let events = NvmlEvents::register(&self.nvml, session, &self.handles())?;
        Ok(events.map(|events| Box::new(events) as Box<dyn EventSource>))
    }

    fn controls<'a>(&'a mut self, devices: &[PciAddress]) -> Vec<Box<dyn GpuControl + 'a>> {
        let nvml = &self.nvml;
        let controls = (0_u32..)
            .zip(&mut self.devices)
            .filter_map(|(index, slot)| NvmlControl::new(nvml, index, slot));
        controls
            .filter(|control| devices.contains(&control.pci()))
            .map(|control| Box::new(control) as Box<dyn GpuControl + 'a>)
            .collect()
    }
}
