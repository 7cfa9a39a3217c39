//! Builds the hardware's adapter out of settings; shared by the programs, which alone may name it.

use std::io;

use octavo::config::hardware::{HardwareSettings, NvmlLibrary};
use octavo::hw::nvml::Loader;
use octavo::hw::{self, Handle};

/// Starts the thread that owns NVML.
pub(crate) fn open(settings: &HardwareSettings) -> io::Result<Handle> {
    let settings = hw::Settings {
        library: match settings.nvml_library() {
            NvmlLibrary::Search => None,
            NvmlLibrary::At(path) => Some(path.clone()),
        },
        driver_roots: settings.driver_roots().to_vec(),
        sys_root: settings.sys_root().to_owned(),
        neuron_logical_config: settings.neuron_logical_config().to_owned(),
        call_deadline: settings.call_deadline(),
    };
    hw::spawn(Box::new(Loader::new(&settings)), &settings)
}
