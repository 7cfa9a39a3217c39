//! Generates the constant accelerator tables from `data/accelerators.json`. The compiled program therefore reads no data
//! file at run time.

#[path = "build/catalog.rs"]
mod catalog;
#[path = "build/product_facts.rs"]
mod product_facts;

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

const CATALOG: &str = "data/accelerators.json";

#[expect(
    clippy::disallowed_methods,
    reason = "cargo passes the output directory of a build script in the environment"
)]
fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={CATALOG}");
    let json = fs::read_to_string(CATALOG)?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("accelerators.rs"), catalog::generate_table(&json)?)?;
    fs::write(out.join("product_tables.rs"), product_facts::tables(&json)?)?;
    Ok(())
}
