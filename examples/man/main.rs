//! Writes the manual pages of the programs to a directory: `cargo run --example man -- DIR`.

use std::path::Path;
use std::{env, io};

mod pages;

fn main() -> io::Result<()> {
    let directory = env::args_os().nth(1).ok_or_else(|| io::Error::other("usage: man DIR"))?;
    pages::write(Path::new(&directory))
}
