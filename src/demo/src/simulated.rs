//! A machine that is simulated for a single scan: a scenario of `tests/nvml-sim`, its library, and the files of /sys,
//! in a temporary directory.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, io};

use octavo_files::inventory::{InventoryError, parse};
use octavo_model::inventory::Inventory;
use tempfile::TempDir;
use thiserror::Error;

use crate::scenario::has_driver;

/// Program that builds a machine.
const SIMULATOR: &str = "nvml-simctl";
/// Simulated NVML library.
const LIBRARY: &str = "libnvml_sim.so";

/// Variables of the simulator that select a machine: the requested scenario takes precedence.
pub(crate) const SIMULATOR_VARIABLES: [&str; 2] = ["NVML_SIM_SCENARIO", "NVML_SIM_STATE"];

/// File name of an installed driver's library.
const NVML_LIBRARY_NAME: &str = "libnvidia-ml.so.1";

/// A machine that exists until this is dropped.
#[derive(Debug)]
pub struct SimulatedMachine {
    directory: TempDir,
    has_driver: bool,
}

/// Reason why a scenario cannot be simulated.
#[derive(Debug, Error)]
pub enum SimulationError {
    /// The simulator is missing.
    #[error("a scenario needs {name}, which is not in {}", .directory.display())]
    ProgramMissing {
        /// The missing program or library.
        name: &'static str,
        /// The searched directory.
        directory: PathBuf,
    },
    /// The machine's directory could not be created.
    #[error("cannot create a directory for the simulated machine")]
    Folder(#[source] io::Error),
    /// A program did not start.
    #[error("cannot start the simulation of the machine")]
    Start(#[source] io::Error),
    /// The simulator rejected the scenario.
    #[error("{0}")]
    Scenario(String),
    /// The machine's inventory cannot be read.
    #[error("cannot use the inventory of the simulated machine")]
    Inventory(#[source] InventoryError),
}

/// Returns whether `text` is a scenario and not a recording: recordings declare their API version, and
/// scenarios list devices.
pub fn is_scenario(text: &str) -> bool {
    let has = |key: &str| {
        text.lines().any(|line| {
            line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with(':'))
        })
    };
    let devices = ["gpus", "neuron", "amd", "functions"];
    let is_json = text.trim_start().starts_with('{');
    !is_json && !has("apiVersion") && has("machine") && devices.into_iter().any(has)
}

impl SimulatedMachine {
    /// Creates the machine that `text`, read from `place`, describes. `programs` is the directory of the simulator.
    pub fn new(text: &str, place: &str, programs: &Path) -> Result<Self, SimulationError> {
        let find = |name: &'static str| {
            let path = programs.join(name);
            let missing =
                || SimulationError::ProgramMissing { name, directory: programs.to_owned() };
            path.is_file().then_some(path).ok_or_else(missing)
        };
        let (simulator, library) = (find(SIMULATOR)?, find(LIBRARY)?);
        let directory = tempfile::Builder::new()
            .prefix("octavo-machine.")
            .tempdir()
            .map_err(SimulationError::Folder)?;
        let scenario = directory.path().join("nvml-sim.yaml");
        fs::write(&scenario, text).map_err(SimulationError::Folder)?;
        for (what, path) in [("init", scenario.as_path()), ("sysfs", directory.path())] {
            let output = simulate(&simulator, directory.path())
                .arg(what)
                .arg(path)
                .output()
                .map_err(SimulationError::Start)?;
            if !output.status.success() {
                let message = String::from_utf8_lossy(&output.stderr);
                let message = message.replace(&scenario.display().to_string(), place);
                return Err(SimulationError::Scenario(message.trim().to_owned()));
            }
        }
        let has_driver = has_driver(text);
        if has_driver {
            // A copy, because the loader treats two links to one file as one library.
            let to = directory.path().join(NVML_LIBRARY_NAME);
            fs::copy(library, to).map_err(SimulationError::Folder)?;
        }
        Ok(Self { directory, has_driver })
    }

    /// Returns the machine's inventory, read by this program: `own` is started as a separate process, because a
    /// driver's library has threads that would outlive the machine.
    pub fn observe(&self, own: &Path) -> Result<Inventory, SimulationError> {
        let directory = self.directory.path();
        let mut command = Command::new(own);
        command.args(["inspect", "--output=json", "--sys-root"]);
        command.arg(directory.join("sys"));
        if self.has_driver {
            command.arg("--nvml-library").arg(directory.join(NVML_LIBRARY_NAME));
        } else {
            // Search an empty directory for a driver, and never this machine's.
            command.env_remove("OCTAVO_NVML_LIBRARY");
            command.arg("--driver-root").arg(directory);
        }
        for variable in SIMULATOR_VARIABLES {
            command.env_remove(variable);
        }
        let output = command.stdin(Stdio::null()).output().map_err(SimulationError::Start)?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr);
            return Err(SimulationError::Scenario(message.trim().to_owned()));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        parse(&text).map_err(SimulationError::Inventory)
    }
}

fn simulate(simulator: &Path, directory: &Path) -> Command {
    let mut command = Command::new(simulator);
    command.arg("--state").arg(directory.join("nvml-sim.state")).stdin(Stdio::null());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenario_is_distinguished_by_its_keys() {
        assert!(is_scenario("# One T4\nmachine: t4\ngpus:\n- {board: T4}\n"));
        assert!(!is_scenario(
            "apiVersion: octavo.dev/v1\nkind: Inventory\nmachine: {}\ngpus: []\n"
        ));
        assert!(!is_scenario("{\"machine\": \"t4\", \"gpus\": []}"));
        assert!(is_scenario("machine: trn2\nneuron:\n  driver: 2.30.2.0\n"));
        assert!(!is_scenario("machine: t4\n"));
        assert!(!is_scenario(""));
    }

    #[test]
    fn missing_simulator_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let error = SimulatedMachine::new("machine: t4\ngpus: []\n", "x.yaml", directory.path())
            .unwrap_err();
        let text = error.to_string();
        assert!(text.contains("nvml-simctl") && text.contains("is not in /"), "{text}");
    }
}
