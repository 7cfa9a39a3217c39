//! Builds the hardware adapter from the settings. Shared by the programs, which alone may name the adapter.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;

use octavo_engine::program::{kill_with_parent, own_id};
use octavo_files::config_files::catalog;
use octavo_hardware::nvml::{self, Loader};
use octavo_hardware::{self as hw, DriverHandle};
use octavo_model::accelerators::Catalog;
use octavo_settings::child::{ChildInvocation, ChildTask, load_command};
use octavo_settings::hardware::HardwareSettings;
use octavo_toolkit::error::chain;

/// Reads the administrator's catalog, if there is one.
pub(crate) fn catalog(settings: &HardwareSettings) -> io::Result<Option<Catalog>> {
    let read = settings.catalog.as_deref().map(catalog::read).transpose();
    read.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, chain(&error)))
}

/// Starts the thread that owns NVML; `catalog` adds to the recognized devices.
pub(crate) fn open(
    settings: &HardwareSettings,
    catalog: Option<&Catalog>,
) -> io::Result<DriverHandle> {
    let own = catalog.map(|catalog| Arc::new(catalog.overlay_products().clone()));
    let settings = hw::Settings {
        library: settings.nvml_library.clone(),
        driver_roots: settings.driver_roots.clone(),
        sys_root: settings.sys_root.clone(),
        neuron_logical_config: settings.neuron_logical_config.clone(),
        custom_catalog: own.unwrap_or_default(),
        call_deadline: settings.call_deadline,
    };
    let loader = Loader::new(&settings).with_preload(|path| load_command(own_id(), path));
    hw::spawn(Box::new(loader), &settings)
}

/// Performs the task for which another process of this program started this one.
pub(crate) fn child(child: &ChildInvocation) -> ExitCode {
    let done = kill_with_parent(child.parent).and_then(|()| match &child.task {
        ChildTask::Exec { program, arguments } => Err(Command::new(program).args(arguments).exec()),
        ChildTask::Load(library) => nvml::load(library),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The parent reads the last line as the reason.
            let what = match &child.task {
                ChildTask::Exec { program, .. } => Path::new(program),
                ChildTask::Load(library) => library,
            };
            let _unread = writeln!(io::stderr(), "{}: {error}", what.display());
            ExitCode::FAILURE
        }
    }
}
