//! Turns `data/accelerators.json` into a constant table: what ships has nothing to read, and nothing to fail on.

#[path = "build/catalogue.rs"]
mod catalogue;

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

const CATALOGUE: &str = "data/accelerators.json";

#[expect(
    clippy::disallowed_methods,
    reason = "cargo tells a build script where to write through the environment"
)]
fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={CATALOGUE}");
    let table = catalogue::table(&fs::read_to_string(CATALOGUE)?)?;
    let target = PathBuf::from(env::var("OUT_DIR")?).join("accelerators.rs");
    Ok(fs::write(target, table)?)
}
