//! The `octavo` command line: connects the hardware of this machine to the commands.

mod hardware;

use std::io;
use std::process::{ExitCode, Termination};

use octavo_cli as cli;
use octavo_hardware::DriverHandle;
use octavo_settings::child::child;
use octavo_settings::hardware::HardwareSettings;

fn main() -> ExitCode {
    match child() {
        Some(child) => hardware::child(&child),
        None => cli::main(open).report(),
    }
}

fn open(settings: &HardwareSettings) -> io::Result<DriverHandle> {
    let catalog = hardware::catalog(settings)?;
    hardware::open(settings, catalog.as_ref())
}
