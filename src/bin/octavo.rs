//! The `octavo` command line: wires the hardware of this machine to the commands.

use std::io;
use std::sync::Arc;

use octavo::cli::{self, Exit};
use octavo::config::hardware::HardwareSettings;
use octavo::domain::inventory::Inventory;

fn main() -> Exit {
    cli::main(observe)
}

async fn observe(_hardware: &HardwareSettings) -> Result<Arc<Inventory>, io::Error> {
    Err(io::Error::other(
        "this build reads recordings only; give one with --from",
    ))
}
