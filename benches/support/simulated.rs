//! The folder of a simulated machine: its library, its scenario, its state and its /sys.

use std::fs;
use std::path::PathBuf;

use nvml_sim::location::Location;
use nvml_sim::store::Store;
use tempfile::TempDir;

/// The library's name in the folder.
pub(crate) const LIBRARY: &str = "libnvidia-ml.so.1";

/// A machine as the scenario says.
pub(crate) fn folder(name: &str, scenario: &str) -> TempDir {
    let folder = tempfile::Builder::new().prefix(name).tempdir().unwrap();
    fs::copy(simulator(), folder.path().join(LIBRARY)).unwrap();
    fs::write(folder.path().join("nvml-sim.yaml"), scenario).unwrap();
    let location = Location {
        scenario: Some(folder.path().join("nvml-sim.yaml")),
        state: folder.path().join("nvml-sim.state"),
    };
    let world = Store::open(&location).unwrap().read().unwrap();
    nvml_sim::sysfs::write(&world, folder.path()).unwrap();
    folder
}

/// Cargo leaves the library beside the benchmarks.
fn simulator() -> PathBuf {
    std::env::current_exe()
        .unwrap()
        .with_file_name("libnvml_sim.so")
}
