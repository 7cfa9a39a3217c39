//! Everything that the checks are made from. Whatever cannot be read is told with the reason, and stops nothing else.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use crate::cli::{CliError, input};
use crate::config::octavo::doctor::DoctorSettings;
use crate::config::octavo::{Input, Source};
use crate::domain::doctor::{
    Facts, FeatureLabels, Files, InstanceFiles, Kubelet, Roots, Told, Traces,
};
use crate::domain::error::chain;
use crate::domain::inventory::{Inventory, Vendor};
use crate::hw::device_files::{self, DeviceFilesError};
use crate::hw::{holders, traces};
use crate::k8s::{device_record, pod_resources};

/// A kubelet that works answers in milliseconds.
const KUBELET: Duration = Duration::from_secs(5);
/// Why nothing is known beside the inventory.
const RECORDED: &str = "a recording does not tell";

/// What was read beside the inventory.
#[derive(Debug)]
pub(in crate::cli) struct Gathered {
    roots: Roots,
    traces: Told<Traces>,
    files: Told<Files>,
    instance_files: Told<InstanceFiles>,
    processes: Told<()>,
    kubelet: Told<Option<Kubelet>>,
    labels: Told<Option<FeatureLabels>>,
}

impl Gathered {
    /// The same with the inventory.
    pub(in crate::cli) fn facts<'a>(&self, inventory: &'a Inventory) -> Facts<'a> {
        Facts {
            inventory,
            roots: self.roots.clone(),
            traces: self.traces.clone(),
            files: self.files.clone(),
            instance_files: self.instance_files.clone(),
            processes: self.processes.clone(),
            kubelet: self.kubelet.clone(),
            labels: self.labels.clone(),
        }
    }
}

/// Reads it. Only labels that were named and cannot be read are an error.
pub(in crate::cli) async fn gather(
    inventory: &Inventory,
    settings: &DoctorSettings,
) -> Result<Gathered, CliError> {
    let labels = labels(settings)?;
    let sys = match settings.source() {
        Source::Recording(_) => return Ok(recorded(settings, labels)),
        Source::Machine(hardware) => hardware.sys_root(),
    };
    Ok(Gathered {
        roots: roots(sys, settings),
        traces: Ok(traces::read(sys)),
        files: files(settings),
        instance_files: instance_files(inventory, settings),
        processes: holders::pods(settings.proc_root())
            .map(drop)
            .map_err(|error| chain(&error)),
        kubelet: kubelet(settings).await,
        labels,
    })
}

fn recorded(settings: &DoctorSettings, labels: Told<Option<FeatureLabels>>) -> Gathered {
    let untold = || RECORDED.to_owned();
    Gathered {
        roots: roots(Path::new("/sys"), settings),
        traces: Err(untold()),
        files: Err(untold()),
        instance_files: Err(untold()),
        processes: Err(untold()),
        kubelet: Err(untold()),
        // What this machine has written says nothing of another.
        labels: labels.map(|labels| labels.filter(|_| settings.labels().is_some())),
    }
}

fn roots(sys: &Path, settings: &DoctorSettings) -> Roots {
    let text = |path: &Path| path.display().to_string();
    Roots {
        sys: text(sys),
        dev: settings.dev_root().map_or_else(|| "/dev".to_owned(), text),
        proc: text(settings.proc_root()),
        kubelet: text(settings.kubelet_root()),
    }
}

fn files(settings: &DoctorSettings) -> Told<Files> {
    let dev = settings.dev_root().ok_or_else(|| {
        "/dev is this pod's own here: mount the node's and name it with --dev-root".to_owned()
    })?;
    traces::files(dev)
}

fn instance_files(inventory: &Inventory, settings: &DoctorSettings) -> Told<InstanceFiles> {
    let devices = inventory.devices.iter();
    let nvidia = devices.filter(|device| device.vendor == Vendor::Nvidia);
    let minors = nvidia.filter_map(|device| Some((device.pci, device.minor?)));
    let dev = settings.dev_root().unwrap_or_else(|| Path::new("/dev"));
    let files = match device_files::read(settings.proc_root(), dev, &minors.collect()) {
        Ok(files) => files,
        Err(DeviceFilesError::NoDriver) => return Err(DeviceFilesError::NoDriver.to_string()),
        Err(error) => return Err(chain(&error)),
    };
    // The paths are those of a host.
    let below = |path: &str| path.strip_prefix("/dev/").unwrap_or(path).to_owned();
    let all = files.instances.into_iter();
    Ok(all.map(|(key, file)| (key, below(&file.path))).collect())
}

async fn kubelet(settings: &DoctorSettings) -> Told<Option<Kubelet>> {
    let root = settings.kubelet_root();
    match root.try_exists() {
        Ok(true) => {}
        Ok(false) if settings.in_pod() => {
            let root = root.display();
            return Err(format!("{root} is not mounted in this pod"));
        }
        Ok(false) => return Ok(None),
        Err(error) => return Err(format!("cannot look at {}: {error}", root.display())),
    }
    let socket = root.join("pod-resources/kubelet.sock");
    let allocatable = pod_resources::allocatable_of_all(&socket, KUBELET).await;
    let registered = device_record::registered(&root.join("device-plugins"));
    Ok(Some(Kubelet {
        registered: registered.map_err(|error| chain(&error)),
        allocatable: allocatable.map_err(|error| chain(&error)),
        claim_drivers: names(&root.join("plugins")),
    }))
}

/// Names in a folder; none where it cannot be read.
fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.collect()
}

fn labels(settings: &DoctorSettings) -> Result<Told<Option<FeatureLabels>>, CliError> {
    if let Some(named) = settings.labels() {
        let labels = input::labels(named)?;
        let place = input::place(named);
        return Ok(Ok(Some(FeatureLabels { place, labels })));
    }
    let own = Input::File(DoctorSettings::feature_file().to_owned());
    Ok(match input::labels(&own) {
        Ok(labels) => Ok(Some(FeatureLabels {
            place: input::place(&own),
            labels,
        })),
        Err(CliError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(chain(&error)),
    })
}
