//! Builds the hardware adapter from the settings. Shared by the programs, which alone may name the adapter.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use octavo_engine::program::{kill_with_parent, own_id};
use octavo_hardware::nvml::{self, Loader};
use octavo_hardware::{self as hw, DriverHandle};
use octavo_settings::child::{ChildInvocation, ChildTask, load_command};
use octavo_settings::hardware::HardwareSettings;

/// Starts the thread that owns NVML.
pub(crate) fn open(settings: &HardwareSettings) -> io::Result<DriverHandle> {
    let settings = hw::Settings {
        library: settings.nvml_library.clone(),
        driver_roots: settings.driver_roots.clone(),
        sys_root: settings.sys_root.clone(),
        neuron_logical_config: settings.neuron_logical_config.clone(),
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
