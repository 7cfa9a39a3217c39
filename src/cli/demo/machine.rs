//! One simulated machine: a folder with a library that answers as NVML, its state, and the files of /sys that are read.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use super::super::simulated::SIMULATOR_VARIABLES;
use super::DemoError;
use super::programs::Programs;
use super::scenario::Scenario;
use super::tenants::{self, Tenants};

/// The layouts that can be chosen.
const LAYOUTS: &str = include_str!("../../../demo/layouts.yaml");

/// A machine that was made.
#[derive(Debug)]
pub(super) struct Machine<'a> {
    scenario: &'a Scenario,
    programs: &'a Programs,
    folder: PathBuf,
    tenants: Option<Tenants>,
}

impl<'a> Machine<'a> {
    /// Makes it below `folder`.
    pub(super) async fn make(
        scenario: &'a Scenario,
        programs: &'a Programs,
        folder: &Path,
    ) -> Result<Self, DemoError> {
        let folder = folder.join(&scenario.name);
        let machine = Self {
            scenario,
            programs,
            tenants: Tenants::of(&scenario.text, &folder),
            folder,
        };
        let text = machine.driver_folder().join("nvml-sim.yaml");
        write(&machine.driver_folder(), |path| fs::create_dir_all(path))?;
        write(&text, |path| fs::write(path, &scenario.text))?;
        let failed = |said| DemoError::Prepare {
            machine: scenario.name.clone(),
            said,
        };
        let init: [&OsStr; 2] = ["init".as_ref(), text.as_ref()];
        machine.simulate(init).await.map_err(failed)?;
        machine.show().await.map_err(failed)?;
        write(&machine.layouts(), |path| fs::write(path, LAYOUTS))?;
        if let Some(tenants) = &machine.tenants {
            write(&tenants.kubelet(), |_| tenants.come())?;
        }
        if scenario.has_driver_at_once() {
            machine.install_driver()?;
        }
        Ok(machine)
    }

    pub(super) fn name(&self) -> &str {
        &self.scenario.name
    }

    /// Whether its driver is still to be installed.
    pub(super) fn waits_for_driver(&self) -> bool {
        self.scenario.has_driver() && !self.library().exists()
    }

    /// Renamed into place, as a package manager does: an agent that looks now never finds half a file.
    pub(super) fn install_driver(&self) -> Result<(), DemoError> {
        let draft = self.driver_folder().join(".incoming");
        write(&draft, |path| fs::copy(&self.programs.library, path))?;
        write(&self.library(), |path| fs::rename(&draft, path))
    }

    /// Its files of /sys are as its devices are now.
    pub(super) async fn show(&self) -> Result<(), String> {
        let sysfs: [&OsStr; 2] = ["sysfs".as_ref(), self.folder.as_ref()];
        self.simulate(sysfs).await
    }

    /// Something happens to the machine; what the simulation says if it cannot.
    pub(super) async fn simulate<A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<(), String> {
        let output = Command::new(&self.programs.simulator)
            .arg("--state")
            .arg(self.driver_folder().join("nvml-sim.state"))
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

    /// Its agent, quick to notice so that something is to be seen. The library is named, so that a real driver of this
    /// machine is never taken. The machine that has none is searched in vain instead: naming a file that never comes is an
    /// error of whoever names it.
    pub(super) fn agent(&self, aggregator: &str) -> Command {
        let mut command = Command::new(&self.programs.agent);
        for variable in SIMULATOR_VARIABLES {
            command.env_remove(variable);
        }
        if self.scenario.has_driver() {
            command.arg("--nvml-library").arg(self.library());
        } else {
            command.arg("--driver-root").arg(&self.folder);
        }
        command
            .arg("--sys-root")
            .arg(self.folder.join("sys"))
            .arg("--neuron-logical-config")
            .arg(self.folder.join("opt/aws/neuron/logical_nc_config"))
            .args(["--node-name", self.name()])
            .args(["--aggregator", aggregator, "--aggregator-plaintext"])
            .args(["--interval=1s", "--heartbeat=2s", "--call-deadline=2s"])
            .args(["--mig-strategy=mixed", "--label-sink=file"])
            .args(["--feature-file-expiry=0", "--feature-file"])
            .arg(self.folder.join("octavo"))
            .arg("--layouts")
            .arg(self.layouts())
            .arg("--state-dir")
            .arg(self.state());
        if let Some(tenants) = &self.tenants {
            command
                .args(["--layout", tenants::LAYOUT, "--usage-interval=2s"])
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

    /// Chooses a layout by hand, as a person does who is logged in there: `own` is this very program, which asks the agent
    /// and never touches the machine that the demo runs on. What it says if it cannot; that somebody is in the way is no failure.
    pub(super) async fn choose(&self, own: &Path, layout: &str) -> Result<(), String> {
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
        self.folder.join("layouts.yaml")
    }

    fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    fn driver_folder(&self) -> PathBuf {
        self.folder.join("lib")
    }

    fn library(&self) -> PathBuf {
        self.driver_folder().join("libnvidia-ml.so.1")
    }
}

fn write<T>(path: &Path, how: impl FnOnce(&Path) -> io::Result<T>) -> Result<(), DemoError> {
    how(path).map(|_| ()).map_err(|source| DemoError::File {
        path: path.to_owned(),
        source,
    })
}
