//! The `octavo` command line: wires the hardware of this machine to the commands.

mod hardware;

use octavo::cli::{self, Exit};

fn main() -> Exit {
    cli::main(hardware::open)
}
