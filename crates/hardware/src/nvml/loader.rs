//! Finds, checks and initializes `libnvidia-ml.so.1`.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use nvml_wrapper::Nvml;
use nvml_wrapper_sys::bindings::NvmlLib;
use octavo_model::inventory::Driver;
use octavo_model::quantity::CudaVersion;

use crate::calls::CallWatch;
use crate::error::{DriverError, LoadError};
use crate::nvml::driver::NvmlDriver;
use crate::nvml::session::{Session, code_of};
use crate::{DriverLoader, GpuDriver, Settings, elf, library};

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

    fn open(&mut self, path: &Path, calls: &CallWatch) -> Result<Box<dyn GpuDriver>, LoadError> {
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
            elf::incomplete_reason(path).map_err(|error| unloadable(error.to_string()))?;
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
