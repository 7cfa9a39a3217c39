//! A simulated machine: a directory with a library, its scenario and its state.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use nvml_sim::location::{Location, SCENARIO_FILE, STATE_DIRECTORY};
use nvml_sim::model::{Code, World};
use nvml_sim::store::Store;
use octavo_hardware::{ChangeNotifications, DriverHandle, Settings, nvml, spawn};
use octavo_model::inventory::{Inventory, NvmlState};

use crate::time_limits::{TIME_LIMIT, watch};

const LIBRARY: &str = "libnvidia-ml.so.1";

/// A machine with its own copy of the library, because the loader treats two links to one file as one library.
pub(crate) struct Machine {
    dir: tempfile::TempDir,
}

impl Machine {
    /// A machine of this scenario with its driver.
    pub(crate) fn new(scenario: &str) -> Self {
        let machine = Self::without_driver(scenario);
        machine.install_driver();
        machine
    }

    /// A machine without a driver.
    pub(crate) fn without_driver(scenario: &str) -> Self {
        Self::described(tempfile::tempdir().unwrap(), scenario)
    }

    pub(crate) fn described(dir: tempfile::TempDir, scenario: &str) -> Self {
        watch();
        let machine = Self { dir };
        fs::write(machine.path().join(SCENARIO_FILE), scenario).unwrap();
        let location = Location {
            scenario: Some(machine.path().join(SCENARIO_FILE)),
            state: machine.path().join(STATE_DIRECTORY),
        };
        let store = Store::open(&location).unwrap();
        nvml_sim::sysfs::write(&store.read().unwrap(), machine.path()).unwrap();
        machine
    }

    /// Installs the library atomically, like a package manager.
    pub(crate) fn install_driver(&self) {
        let draft = self.path().join("incoming");
        fs::copy(built_library(), &draft).unwrap();
        fs::rename(draft, self.library()).unwrap();
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn library(&self) -> PathBuf {
        self.path().join(LIBRARY)
    }

    /// Removes functions from the library, as in older versions.
    pub(crate) fn without(self, functions: &[&str]) -> Self {
        let mut bytes = fs::read(self.library()).unwrap();
        nvml_sim::elf::hide(&mut bytes, functions).unwrap();
        fs::write(self.library(), bytes).unwrap();
        self
    }

    /// The state of the machine.
    pub(crate) fn world(&self) -> Arc<World> {
        self.store().read().unwrap()
    }

    /// Changes the state of the machine.
    pub(crate) fn change<T>(&self, what: impl FnOnce(&mut World) -> Result<T, Code>) -> T {
        self.store().change(what).unwrap().unwrap()
    }

    /// The state of the machine in the format of the simulator.
    pub(crate) fn hardware(&self) -> Vec<u8> {
        fs::read(self.path().join(STATE_DIRECTORY).join("state.json")).unwrap()
    }

    /// Restores a state of the machine.
    pub(crate) fn set_hardware(&self, state: &[u8]) {
        let directory = self.path().join(STATE_DIRECTORY);
        fs::write(directory.join("state.new"), state).unwrap();
        fs::rename(directory.join("state.new"), directory.join("state.json")).unwrap();
    }

    /// Activates faults in the format of a scenario; `[]` clears them.
    pub(crate) fn faults(&self, rules: &str) {
        let state = self.path().join(STATE_DIRECTORY);
        fs::write(state.join("faults.new"), rules).unwrap();
        fs::rename(state.join("faults.new"), state.join("faults.yaml")).unwrap();
    }

    /// Settings for this machine only.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            neuron_logical_config: self.path().join("opt/aws/neuron/logical_nc_config"),
            call_deadline: Duration::from_secs(20),
            ..settings(self.library(), self.path().join("sys"))
        }
    }

    pub(crate) fn spawn(&self) -> DriverHandle {
        start(&self.settings())
    }

    /// One reading by a new process.
    pub(crate) async fn observe(&self) -> Inventory {
        Inventory::clone(&*self.spawn().observe().await)
    }

    /// The store of its state.
    pub(crate) fn store(&self) -> Store {
        Store::at(&self.path().join(STATE_DIRECTORY))
    }
}

/// The thread that waits for events holds the library briefly after the test: the driver is unloaded first, which ends
/// every wait, and the directory is removed when the library is unmapped.
impl Drop for Machine {
    fn drop(&mut self) {
        let unloaded = self.store().change(|world| {
            world.driver.loaded = false;
            Ok(())
        });
        let library = self.library().display().to_string();
        let mapped = || {
            let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
            maps.contains(&library)
        };
        for _ in 0..1000 {
            if unloaded.is_err() || !mapped() {
                break;
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }
}

/// Settings for a library, and a sysfs at `sys_root`.
pub(crate) fn settings(library: PathBuf, sys_root: PathBuf) -> Settings {
    Settings {
        library: Some(library),
        driver_roots: Vec::new(),
        neuron_logical_config: sys_root.join("no-configuration"),
        sys_root,
        call_deadline: Duration::from_secs(10),
    }
}

pub(crate) fn start(settings: &Settings) -> DriverHandle {
    spawn(Box::new(nvml::Loader::new(settings)), settings).unwrap()
}

/// Follows the hints, like the agent, until the link satisfies `wanted`.
pub(crate) async fn follow(
    handle: &DriverHandle,
    hints: &mut ChangeNotifications,
    wanted: impl Fn(&NvmlState) -> bool,
) -> Arc<Inventory> {
    let following = async {
        loop {
            let inventory = handle.observe().await;
            if wanted(&inventory.nvml) {
                return inventory;
            }
            hints.changed().await;
        }
    };
    let found = tokio::time::timeout(TIME_LIMIT, following).await;
    found.unwrap_or_else(|_late| panic!("NVML stays {:?}", handle.latest().nvml))
}

/// Cargo places the library beside the tests, where it stays unchanged once the simulator's program is built.
pub(crate) fn built_library() -> PathBuf {
    simulator();
    let tests = std::env::current_exe().unwrap();
    tests.parent().unwrap().join("libnvml_sim.so")
}

/// `nvml-simctl` belongs to another package, so cargo does not build it for this test. It is built once, before
/// anything uses the simulated driver, because the build may replace its library.
pub(crate) fn simulator() -> &'static Path {
    static BUILT: LazyLock<PathBuf> = LazyLock::new(build_simulator);
    &BUILT
}

fn build_simulator() -> PathBuf {
    let beside = Path::new(env!("CARGO_BIN_EXE_octavo")).with_file_name("nvml-simctl");
    let built = Command::new(env!("CARGO"))
        // `--examples` (there are none) gives dependencies the same features as in tests.
        .args(["build", "--quiet", "--locked", "--workspace", "--examples"])
        .args(["--bin", "nvml-simctl", "--target-dir"])
        .arg(beside.parent().unwrap().parent().unwrap())
        .current_dir(super::root())
        .output()
        .unwrap();
    assert!(built.status.success(), "{built:?}");
    beside
}
