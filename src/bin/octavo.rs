//! The `octavo` command line: wires the hardware of this machine to the commands.

mod hardware;

use std::io;
use std::sync::Arc;

use octavo::cli::{self, Exit};
use octavo::config::hardware::HardwareSettings;
use octavo::domain::inventory::Inventory;

fn main() -> Exit {
    cli::main(observe)
}

async fn observe(settings: &HardwareSettings) -> Result<Arc<Inventory>, io::Error> {
    Ok(hardware::open(settings)?.observe().await)
}
