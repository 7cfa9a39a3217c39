//! A simulated machine: a directory with a library, its scenario and its state.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use nvml_sim::location::{Location, SCENARIO_FILE, STATE_DIRECTORY};
use nvml_sim::model::{Code, World};
use nvml_sim::store::Store;
use octavo_hardware::{ChangeNotifications, Handle, Settings, nvml, spawn};
use octavo_model::inventory::{Inventory, NvmlState};

use crate::time_limits::{TIME_LIMIT, watch};

const LIBRARY: &str = "libnvidia-ml.so.1";

/// A machine of its own: the library is a copy, because the loader takes two links to one file for one library.
pub(crate) struct Machine {
    dir: tempfile::TempDir,
}

impl Machine {
    /// A machine as the scenario says, its driver installed.
    pub(crate) fn new(scenario: &str) -> Self {
        let machine = Self::without_driver(scenario);
        machine.install_driver();
        machine
    }

    /// A machine whose driver is still to come.
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

    /// Puts the library in place as a package manager does: whole, by renaming.
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

    /// Takes functions out of the library, as if it were older.
    pub(crate) fn without(self, functions: &[&str]) -> Self {
        let mut bytes = fs::read(self.library()).unwrap();
        nvml_sim::elf::hide(&mut bytes, functions).unwrap();
        fs::write(self.library(), bytes).unwrap();
        self
    }

    /// What the machine really is.
    pub(crate) fn world(&self) -> Arc<World> {
        self.store().read().unwrap()
    }

    /// Something happens to the machine.
    pub(crate) fn change<T>(&self, what: impl FnOnce(&mut World) -> Result<T, Code>) -> T {
        self.store().change(what).unwrap().unwrap()
    }

    /// Activates faults, in the words of a scenario; `[]` ends them all.
    pub(crate) fn faults(&self, rules: &str) {
        let state = self.path().join(STATE_DIRECTORY);
        fs::write(state.join("faults.new"), rules).unwrap();
        fs::rename(state.join("faults.new"), state.join("faults.yaml")).unwrap();
    }

    /// Settings for this machine and no other.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            neuron_logical_config: self.path().join("opt/aws/neuron/logical_nc_config"),
            call_deadline: Duration::from_secs(20),
            ..settings(self.library(), self.path().join("sys"))
        }
    }

    pub(crate) fn spawn(&self) -> Handle {
        start(&self.settings())
    }

    /// One reading by a fresh start.
    pub(crate) async fn observe(&self) -> Inventory {
        Inventory::clone(&*self.spawn().observe().await)
    }

    /// Where it is kept, for those who look at it on their own.
    pub(crate) fn store(&self) -> Store {
        Store::at(&self.path().join(STATE_DIRECTORY))
    }
}

/// The thread that waits for events holds the library for a moment longer than the test does, and would find its machine
/// gone: so the driver goes first, which ends every wait, and the directory when the library is out of memory.
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
        custom_catalog: Arc::default(),
        call_deadline: Duration::from_secs(10),
    }
}

pub(crate) fn start(settings: &Settings) -> Handle {
    spawn(Box::new(nvml::Loader::new(settings)), settings).unwrap()
}

/// Follows the hints, as the agent does, until the link stands as wanted.
pub(crate) async fn follow(
    handle: &Handle,
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

/// Cargo leaves the library beside the tests, where it stays as it is once the simulator's program is built too.
pub(crate) fn built_library() -> PathBuf {
    simulator();
    let tests = std::env::current_exe().unwrap();
    tests.parent().unwrap().join("libnvml_sim.so")
}

/// `nvml-simctl`, which is another package's program, so cargo does not build it for this test by itself. That is done once, and
/// before anything uses the simulated driver, because it may replace the driver's library.
pub(crate) fn simulator() -> &'static Path {
    static BUILT: LazyLock<PathBuf> = LazyLock::new(build_simulator);
    &BUILT
}

fn build_simulator() -> PathBuf {
    let beside = Path::new(env!("CARGO_BIN_EXE_octavo")).with_file_name("nvml-simctl");
    let built = Command::new(env!("CARGO"))
        // With examples, of which there are none, dependencies have the features that they have in tests.
        .args(["build", "--quiet", "--locked", "--workspace", "--examples"])
        .args(["--bin", "nvml-simctl", "--target-dir"])
        .arg(beside.parent().unwrap().parent().unwrap())
        .current_dir(super::root())
        .output()
        .unwrap();
    assert!(built.status.success(), "{built:?}");
    beside
}
