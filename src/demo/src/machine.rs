//! One simulated machine: a directory with a simulated NVML library, its state, and the files of /sys that are read.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::{fs, io};

use tokio::process::Command;

use super::programs::Programs;
use super::scenario::Scenario;
use super::sharing_pods::{self, SharingPods};
use super::simulated::SIMULATOR_VARIABLES;
use crate::error::DemoError;

/// The available layouts.
const LAYOUTS: &str = include_str!("../../../demo/layouts.yaml");

/// A simulated machine.
#[derive(Debug)]
pub struct DemoMachine<'a> {
    scenario: &'a Scenario,
    programs: &'a Programs,
    directory: PathBuf,
    tenants: Option<SharingPods>,
}

impl<'a> DemoMachine<'a> {
    /// Creates the machine below `directory`.
    pub async fn make(
        scenario: &'a Scenario,
        programs: &'a Programs,
        directory: &Path,
    ) -> Result<Self, DemoError> {
        let directory = directory.join(&scenario.name);
        let mut machine = Self {
            scenario,
            programs,
            tenants: SharingPods::for_scenario(&scenario.text, &directory),
            directory,
        };
        let text = machine.driver_directory().join("nvml-sim.yaml");
        write(&machine.driver_directory(), |path| fs::create_dir_all(path))?;
        write(&text, |path| fs::write(path, &scenario.text))?;
        let failed = |message| DemoError::Prepare { machine: scenario.name.clone(), message };
        let init: [&OsStr; 2] = ["init".as_ref(), text.as_ref()];
        machine.simulate(init).await.map_err(failed)?;
        machine.show().await.map_err(failed)?;
        write(&machine.layouts(), |path| fs::write(path, LAYOUTS))?;
        if let Some(tenants) = &mut machine.tenants {
            write(&tenants.kubelet(), |_| tenants.create())?;
        }
        if scenario.starts_with_driver() {
            machine.install_driver()?;
        }
        Ok(machine)
    }

    /// Returns the name of the machine and of its node.
    pub fn name(&self) -> &str {
        &self.scenario.name
    }

    /// Returns whether its driver is still to be installed.
    pub fn waits_for_driver(&self) -> bool {
        self.scenario.has_driver() && !self.library().exists()
    }

    /// Installs the driver by a rename, as a package manager does: a scanning agent never finds half a file.
    pub fn install_driver(&self) -> Result<(), DemoError> {
        let draft = self.driver_directory().join(".incoming");
        write(&draft, |path| fs::copy(&self.programs.library, path))?;
        write(&self.library(), |path| fs::rename(&draft, path))
    }

    /// Updates the files of /sys to the current devices.
    pub async fn show(&self) -> Result<(), String> {
        let sysfs: [&OsStr; 2] = ["sysfs".as_ref(), self.directory.as_ref()];
        self.simulate(sysfs).await
    }

    /// Changes the simulated hardware. The error is the simulator's message.
    pub async fn simulate<A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<(), String> {
        let output = Command::new(&self.programs.simulator)
            .arg("--state")
            .arg(self.driver_directory().join("nvml-sim.state"))
            .args(arguments)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(());
        }
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }

    /// Returns the command of the machine's agent, with a short scan interval so that changes are visible soon. The
    /// library is named explicitly, so that a real driver of this machine is never used. A machine without a driver
    /// gets a search path without one instead: naming a file that never appears would be a configuration error.
    pub fn agent(&self, aggregator: &str) -> Command {
        let mut command = Command::new(&self.programs.agent);
        for variable in SIMULATOR_VARIABLES {
            command.env_remove(variable);
        }
        if self.scenario.has_driver() {
            command.arg("--nvml-library").arg(self.library());
        } else {
            command.arg("--driver-root").arg(&self.directory);
        }
        command
            .arg("--sys-root")
            .arg(self.directory.join("sys"))
            .arg("--neuron-logical-config")
            .arg(self.directory.join("opt/aws/neuron/logical_nc_config"))
            .args(["--node-name", self.name()])
            .args(["--aggregator", aggregator, "--aggregator-plaintext"])
            .args(["--interval=1s", "--heartbeat=2s", "--call-deadline=2s"])
            .args(["--mig-strategy=mixed", "--label-sink=file"])
            .args(["--feature-file-expiry=0", "--feature-file"])
            .arg(self.directory.join("octavo"))
            .arg("--layouts")
            .arg(self.layouts())
            .arg("--state-dir")
            .arg(self.state());
        if let Some(tenants) = &self.tenants {
            command
                .args(["--layout", sharing_pods::LAYOUT, "--usage-interval=2s"])
                .args(["--sharing=embedded"])
                .arg("--proc-root")
                .arg(tenants.proc())
                .arg("--pod-resources")
                .arg(tenants.socket())
                .arg("--device-plugins")
                .arg(tenants.kubelet());
        }
        command
    }

    /// Selects a layout manually, as a user on the machine would: `own` is this program, which requests it from the
    /// agent and never touches the machine that the demo runs on. The error is the program's message; a blocked layout
    /// is no failure.
    pub async fn choose(&self, own: &Path, layout: &str) -> Result<(), String> {
        let output = Command::new(own)
            .args(["apply", layout, "--agent", "--timeout=10s", "--state-dir"])
            .arg(self.state())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .map_err(|error| error.to_string())?;
        match output.status.code() {
            Some(0 | 4) => Ok(()),
            Some(_) | None => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    }

    fn layouts(&self) -> PathBuf {
        self.directory.join("layouts.yaml")
    }

    fn state(&self) -> PathBuf {
        self.directory.join("state")
    }

    fn driver_directory(&self) -> PathBuf {
        self.directory.join("lib")
    }

    fn library(&self) -> PathBuf {
        self.driver_directory().join("libnvidia-ml.so.1")
    }
}

fn write<T>(path: &Path, how: impl FnOnce(&Path) -> io::Result<T>) -> Result<(), DemoError> {
    how(path).map(|_| ()).map_err(|source| DemoError::File { path: path.to_owned(), source })
}
