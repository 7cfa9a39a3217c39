//! One simulated machine: a directory with a simulated NVML library, its state, the files of /sys that are read, and a
//! simulated kubelet.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::{fs, io};

use serde_json::Value;
use tokio::process::Command;

use super::programs::Programs;
use super::scenario::Scenario;
use super::simulated::SIMULATOR_VARIABLES;
use crate::cluster::{Kind, ObjectKey, Objects};
use crate::error::DemoError;
use crate::kubelet::{Hardware, Kubelet, LAYOUT_LABEL};
use crate::servers::Servers;
use crate::workloads::Workloads;

/// The available layouts.
pub const LAYOUTS: &str = include_str!("../../../demo/layouts.yaml");

/// Nodes of processors in the topology of AMD's driver.
const PROCESSOR_NODES: u64 = 2;

/// What all machines have in common.
#[derive(Debug)]
pub struct DemoSite<'a> {
    /// The programs.
    pub programs: &'a Programs,
    /// The directory of all machines.
    pub directory: &'a Path,
    /// The objects of the simulated API server.
    pub objects: &'a Arc<Objects>,
    /// Its kubeconfig.
    pub kubeconfig: &'a Path,
    /// The pods.
    pub workloads: &'a Workloads,
}

/// A simulated machine.
#[derive(Debug)]
pub struct DemoMachine<'a> {
    scenario: &'a Scenario,
    site: &'a DemoSite<'a>,
    directory: PathBuf,
    kubelet: Kubelet,
}

impl<'a> DemoMachine<'a> {
    /// Creates the machine and its Node.
    pub async fn make(
        scenario: &'a Scenario,
        site: &'a DemoSite<'a>,
        servers: &mut Servers,
    ) -> Result<Self, DemoError> {
        let directory = site.directory.join(&scenario.name);
        let kubelet = Kubelet::new(&scenario.name, &directory, site.objects);
        let machine = Self { scenario, site, directory, kubelet };
        let text = machine.driver_directory().join("nvml-sim.yaml");
        write(&machine.driver_directory(), |path| fs::create_dir_all(path))?;
        write(&text, |path| fs::write(path, &scenario.text))?;
        let failed = |message| DemoError::Prepare { machine: scenario.name.clone(), message };
        let init: [&OsStr; 2] = ["init".as_ref(), text.as_ref()];
        machine.simulate(init).await.map_err(failed)?;
        machine.show().await.map_err(failed)?;
        write(&machine.layouts(), |path| fs::write(path, LAYOUTS))?;
        let details = site.workloads.node(&scenario.name);
        let plugins = machine.kubelet.plugins();
        write(&plugins, |_| machine.kubelet.start(servers, &details, scenario.pool()))?;
        machine.offer_other_devices();
        machine.run_pods().await.map_err(failed)?;
        machine.vary_load().await.map_err(failed)?;
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
        write(&draft, |path| fs::copy(&self.site.programs.library, path))?;
        write(&self.library(), |path| fs::rename(&draft, path))
    }

    /// Updates the files of /sys to the current devices.
    pub async fn show(&self) -> Result<(), String> {
        let sysfs: [&OsStr; 2] = ["sysfs".as_ref(), self.directory.as_ref()];
        self.simulate(sysfs).await.map(|_| ())
    }

    /// Updates the files of /sys and the resources of the Node after a change of devices that NVML does not manage.
    pub async fn show_other_devices(&self) -> Result<(), String> {
        self.show().await?;
        self.offer_other_devices();
        Ok(())
    }

    /// Starts and ends the processes of the pods that were created and deleted. The error is the simulator's message.
    pub async fn run_pods(&self) -> Result<(), String> {
        if !self.kubelet.needs_sync() {
            return Ok(());
        }
        let failed = |error: io::Error| error.to_string();
        for pid in self.kubelet.end_pods().map_err(failed)? {
            // The process may have ended with its GPU.
            let _ = self.simulate(["process", "remove", &pid.to_string()]).await;
        }
        let shown = self.simulate(["show", "--json"]).await?;
        let hardware = Hardware::parse(&shown)?;
        self.kubelet.start_pods(self.site.workloads, &hardware).map_err(failed)?;
        let mut result = Ok(());
        for (pid, arguments) in self.kubelet.prepare_processes(&hardware).map_err(failed)? {
            let added = match arguments {
                Some(arguments) => self.simulate(&arguments).await.map(|_| ()),
                None => Ok(()),
            };
            match added {
                Ok(()) => self.kubelet.process_started(pid),
                // The next call retries. Other processes are independent of this one.
                Err(message) => result = Err(message),
            }
        }
        result
    }

    /// Changes utilization and memory of the processes. The error is the simulator's message.
    pub async fn vary_load(&self) -> Result<(), String> {
        let loads = self.kubelet.next_loads();
        if loads.is_empty() {
            return Ok(());
        }
        let arguments = ["process", "load"].map(ToOwned::to_owned).into_iter().chain(loads);
        self.simulate(arguments).await.map(|_| ())
    }

    /// Offers the devices of AMD and AWS, whose device plugins count the files of their drivers.
    fn offer_other_devices(&self) {
        let count = |directory: &str| {
            let entries = fs::read_dir(self.directory.join("sys").join(directory));
            let count = entries.map_or(0, Iterator::count);
            u64::try_from(count).unwrap_or_default()
        };
        let gpus = count("class/kfd/kfd/topology/nodes").saturating_sub(PROCESSOR_NODES);
        for (resource, count) in
            [("amd.com/gpu", gpus), ("aws.amazon.com/neuron", count("class/neuron_device"))]
        {
            if count > 0 {
                self.kubelet.offer(resource, count);
            }
        }
    }

    /// Runs the simulator, and returns its output. The error is its message.
    pub async fn simulate<A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<String, String> {
        let output = Command::new(&self.site.programs.simulator)
            .arg("--state")
            .arg(self.driver_directory().join("nvml-sim.state"))
            .args(arguments)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }

    /// Returns the command of the machine's agent, with a short scan interval so that changes are visible soon. The
    /// library is named explicitly, so that a real driver of this machine is never used. A machine without a driver
    /// gets a search path without one instead: naming a file that never appears would be a configuration error.
    pub fn agent(&self, aggregator: &str) -> Command {
        let mut command = Command::new(&self.site.programs.agent);
        for variable in SIMULATOR_VARIABLES {
            command.env_remove(variable);
        }
        if self.scenario.has_driver() {
            command.arg("--nvml-library").arg(self.library());
            command.arg("--sharing=embedded");
        } else {
            command.arg("--driver-root").arg(&self.directory);
        }
        if self.site.workloads.node(self.name()).drain {
            command.arg("--drain=affected");
        }
        command
            .arg("--sys-root")
            .arg(self.directory.join("sys"))
            .arg("--neuron-logical-config")
            .arg(self.directory.join("opt/aws/neuron/logical_nc_config"))
            .args(["--node-name", self.name()])
            .args(["--aggregator", aggregator, "--aggregator-plaintext"])
            .args(["--interval=1s", "--heartbeat=2s", "--call-deadline=2s"])
            .args(["--mig-strategy=mixed", "--label-sink=node", "--kubeconfig"])
            .arg(self.site.kubeconfig)
            .arg("--layouts")
            .arg(self.layouts())
            .arg("--state-dir")
            .arg(self.state())
            .arg("--usage-interval=2s")
            .arg("--proc-root")
            .arg(self.kubelet.proc())
            .arg("--pod-resources")
            .arg(self.kubelet.socket())
            .arg("--device-plugins")
            .arg(self.kubelet.plugins());
        command
    }

    /// Selects a layout with the label of the Node, as an administrator would. The agent reads it from the API server.
    pub fn choose(&self, layout: &str) -> Result<(), String> {
        let key = ObjectKey::new(Kind::Node, "", self.name());
        let chosen = self.site.objects.update(&key, |node| {
            let labels = node.pointer_mut("/metadata/labels").and_then(Value::as_object_mut);
            if let Some(labels) = labels {
                labels.insert(LAYOUT_LABEL.to_owned(), Value::String(layout.to_owned()));
            }
            Ok(())
        });
        chosen.map(|_| ()).map_err(|refusal| refusal.to_string())
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
