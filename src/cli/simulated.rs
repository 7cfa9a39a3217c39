//! A machine that is simulated for as long as it takes to look at it: a scenario of `tests/nvml-sim`, its library, and the
//! files of /sys, in a folder that goes away.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;
use thiserror::Error;

use crate::domain::inventory::Inventory;
use crate::wire::inventory::{ReadError, parse};

/// Builds a machine, and everything it needs.
const SIMULATOR: &str = "nvml-simctl";
/// Answers as NVML.
const LIBRARY: &str = "libnvml_sim.so";

/// Variables of the simulator that name another machine: a scenario that was named goes before them.
pub(in crate::cli) const SIMULATOR_VARIABLES: [&str; 2] = ["NVML_SIM_SCENARIO", "NVML_SIM_STATE"];

/// What a driver's library is called where it is installed.
const NVML: &str = "libnvidia-ml.so.1";

/// A machine that is there until this is dropped.
#[derive(Debug)]
pub(super) struct Simulated {
    folder: TempDir,
    has_driver: bool,
}

/// Why a scenario is no machine.
#[derive(Debug, Error)]
pub enum SimulationError {
    /// What simulates it is not there.
    #[error("it is a scenario, and {name}, which simulates it, is not in {}", .folder.display())]
    ProgramMissing {
        /// Which program or library.
        name: &'static str,
        /// Where it was looked for.
        folder: PathBuf,
    },
    /// The folder of the machine could not be made.
    #[error("cannot make a folder for the simulated machine")]
    Folder(#[source] io::Error),
    /// A program did not start.
    #[error("cannot start what simulates the machine")]
    Start(#[source] io::Error),
    /// The simulator does not like the scenario.
    #[error("{0}")]
    Scenario(String),
    /// What was seen of the machine cannot be read.
    #[error("cannot use what was seen of the simulated machine")]
    Inventory(#[source] ReadError),
}

/// Whether `text` is a scenario and no recording: recordings say what they are, and scenarios list boards.
pub(super) fn is_scenario(text: &str) -> bool {
    let has = |key: &str| {
        text.lines().any(|line| {
            line.strip_prefix(key)
                .is_some_and(|rest| rest.trim_start().starts_with(':'))
        })
    };
    !text.trim_start().starts_with('{') && !has("apiVersion") && has("machine") && has("gpus")
}

impl Simulated {
    /// The machine that `text`, read from `place`, describes. `programs` is the folder of what simulates it.
    pub(super) fn new(text: &str, place: &str, programs: &Path) -> Result<Self, SimulationError> {
        let find = |name: &'static str| {
            let path = programs.join(name);
            let missing = || SimulationError::ProgramMissing {
                name,
                folder: programs.to_owned(),
            };
            path.is_file().then_some(path).ok_or_else(missing)
        };
        let (simulator, library) = (find(SIMULATOR)?, find(LIBRARY)?);
        let folder = tempfile::Builder::new()
            .prefix("octavo-machine.")
            .tempdir()
            .map_err(SimulationError::Folder)?;
        let scenario = folder.path().join("nvml-sim.yaml");
        fs::write(&scenario, text).map_err(SimulationError::Folder)?;
        for (what, path) in [("init", scenario.as_path()), ("sysfs", folder.path())] {
            let output = simulate(&simulator, folder.path())
                .arg(what)
                .arg(path)
                .output()
                .map_err(SimulationError::Start)?;
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr);
                let said = said.replace(&scenario.display().to_string(), place);
                return Err(SimulationError::Scenario(said.trim().to_owned()));
            }
        }
        let has_driver = !text
            .lines()
            .any(|line| line.trim() == "driver_loaded: false");
        if has_driver {
            // A copy, because the loader takes two links to one file for one library.
            let to = folder.path().join(NVML);
            fs::copy(library, to).map_err(SimulationError::Folder)?;
        }
        Ok(Self { folder, has_driver })
    }

    /// What it has, as this very program sees it: `own`, started as a process of its own, because a driver's library has
    /// threads that would outlive the machine.
    pub(super) fn observe(&self, own: &Path) -> Result<Inventory, SimulationError> {
        let folder = self.folder.path();
        let mut command = Command::new(own);
        command.args(["inspect", "--output=json", "--sys-root"]);
        command.arg(folder.join("sys"));
        if self.has_driver {
            command.arg("--nvml-library").arg(folder.join(NVML));
        } else {
            // Searched in vain, in a folder of its own and never in this machine's.
            command.env_remove("OCTAVO_NVML_LIBRARY");
            command.arg("--driver-root").arg(folder);
        }
        for variable in SIMULATOR_VARIABLES {
            command.env_remove(variable);
        }
        let output = command
            .stdin(Stdio::null())
            .output()
            .map_err(SimulationError::Start)?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(SimulationError::Scenario(said.trim().to_owned()));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        parse(&text).map_err(SimulationError::Inventory)
    }
}

fn simulate(simulator: &Path, folder: &Path) -> Command {
    let mut command = Command::new(simulator);
    command
        .arg("--state")
        .arg(folder.join("nvml-sim.state"))
        .stdin(Stdio::null());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_is_told_from_a_recording_by_its_keys() {
        assert!(is_scenario("# One T4\nmachine: t4\ngpus:\n- {board: T4}\n"));
        assert!(!is_scenario(
            "apiVersion: octavo.dev/v1\nkind: Inventory\nmachine: {}\ngpus: []\n"
        ));
        assert!(!is_scenario("{\"machine\": \"t4\", \"gpus\": []}"));
        assert!(!is_scenario("machine: t4\n"));
        assert!(!is_scenario(""));
    }

    #[test]
    fn what_simulates_is_missed_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let error = Simulated::new("machine: t4\ngpus: []\n", "x.yaml", folder.path()).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("nvml-simctl") && text.contains("is not in /"),
            "{text}"
        );
    }
}
