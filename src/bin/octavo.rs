//! The `octavo` command line: connects the hardware of this machine to the commands.

mod hardware;

use std::process::{ExitCode, Termination};

use octavo_cli as cli;
use octavo_settings::child::child;

fn main() -> ExitCode {
    match child() {
        Some(child) => hardware::child(&child),
        None => cli::main(hardware::open).report(),
    }
}
