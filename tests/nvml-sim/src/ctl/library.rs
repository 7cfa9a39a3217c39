//! `nvml-simctl library`: the library of an older driver.

use std::fs;
use std::path::PathBuf;

use nvml_sim::elf;

use super::CtlError;
use super::arguments::LibraryOptions;

const BUILT: &str = "libnvml_sim.so";

pub(super) fn run(options: &LibraryOptions) -> Result<(), CtlError> {
    let from = match &options.from {
        Some(from) => from.clone(),
        None => beside_this_program()?,
    };
    let failed = |doing: &'static str, path: &PathBuf| {
        let path = path.clone();
        move |source| CtlError::File { doing, path, source }
    };
    let mut bytes = fs::read(&from).map_err(failed("read", &from))?;
    let names: Vec<&str> = options.without.iter().map(String::as_str).collect();
    elf::hide(&mut bytes, &names).map_err(|source| CtlError::Library { path: from, source })?;
    // A mapped library must not be written to; a new file under the same name does not affect the mapping.
    if let Some(directory) = options.out.parent() {
        fs::create_dir_all(directory).map_err(failed("create the directory of", &options.out))?;
    }
    let next = options.out.with_extension("new");
    fs::write(&next, bytes).map_err(failed("write", &next))?;
    fs::rename(&next, &options.out).map_err(failed("write", &options.out))
}

fn beside_this_program() -> Result<PathBuf, CtlError> {
    let program = std::env::current_exe().map_err(|_| CtlError::NoLibrary)?;
    let found = program.parent().map(|directory| directory.join(BUILT));
    found.filter(|path| path.exists()).ok_or(CtlError::NoLibrary)
}
