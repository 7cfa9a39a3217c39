//! The `octavo` command line: wires the hardware of this machine to the commands.

mod hardware;

use std::io;

use octavo::cli::{self, Exit};
use octavo::config::hardware::HardwareSettings;
use octavo::hw::Handle;

fn main() -> Exit {
    cli::main(open)
}

fn open(settings: &HardwareSettings) -> io::Result<Handle> {
    let catalogue = hardware::catalogue(settings)?;
    hardware::open(settings, catalogue.as_ref())
}
