//! The directory of a simulated machine: the library, the scenario, the state and `/sys`.

use std::fs;
use std::path::PathBuf;

use nvml_sim::location::Location;
use nvml_sim::store::Store;
use tempfile::TempDir;

/// File name of the library in the directory.
pub(crate) const LIBRARY: &str = "libnvidia-ml.so.1";

/// Creates the machine of a scenario. `name` is the prefix of the directory.
pub(crate) fn directory(name: &str, scenario: &str) -> TempDir {
    let directory = tempfile::Builder::new().prefix(name).tempdir().unwrap();
    fs::copy(simulator(), directory.path().join(LIBRARY)).unwrap();
    fs::write(directory.path().join("nvml-sim.yaml"), scenario).unwrap();
    let location = Location {
        scenario: Some(directory.path().join("nvml-sim.yaml")),
        state: directory.path().join("nvml-sim.state"),
    };
    let world = Store::open(&location).unwrap().read().unwrap();
    nvml_sim::sysfs::write(&world, directory.path()).unwrap();
    directory
}

/// Returns the path of the library, which Cargo builds into the directory of the benchmarks.
fn simulator() -> PathBuf {
    std::env::current_exe().unwrap().with_file_name("libnvml_sim.so")
}
