//! Collects the facts that the checks need. A source that cannot be read is reported with the reason, and does not
//! stop the others.
//!
//! A file may be on a hanging disk, or may not be a regular file: sources are read on threads of their own, each with
//! a timeout of [`SOURCE_TIMEOUT`]. A hanging thread ends with the program.

mod layout;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io, thread};

use octavo_hardware::device_files::{self, DeviceFilesError};
use octavo_hardware::{driver_traces, holders};
use octavo_kubelet::{kubelet_checkpoint, pod_resources};
use octavo_model::accelerators::Catalog;
use octavo_model::driver_traces::{ControlGroups, DeviceFiles, DriverTraces, Observed};
use octavo_model::inventory::{Inventory, Vendor};
use octavo_node::doctor::{
    Facts, FeatureLabels, GFD, InstanceFiles, Kubelet, LayoutProgress, MIG_MANAGER, Processes,
    Roots,
};
use octavo_toolkit::error::chain;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::settings::Input;
use crate::settings::doctor::{DoctorSettings, FEATURE_FILE};
use crate::{CliError, input};

/// Timeout per source: files and a working kubelet respond in milliseconds.
const SOURCE_TIMEOUT: Duration = Duration::from_secs(5);
/// Reason why a recording has no facts besides the inventory.
const NOT_IN_RECORDING: &str = "a recording does not tell";
/// Maximum number of directory entries, more than kubelet's directories have.
const MAX_DIR_ENTRIES: usize = 4096;

/// Facts besides the inventory.
#[derive(Debug)]
pub(crate) struct CollectedFacts {
    is_recorded: bool,
    roots: Roots,
    traces: Observed<DriverTraces>,
    files: Observed<DeviceFiles>,
    instance_files: Observed<InstanceFiles>,
    groups: Observed<ControlGroups>,
    processes: Observed<Processes>,
    layout: Observed<Option<LayoutProgress>>,
    kubelet: Observed<Option<Kubelet>>,
    labels: Observed<Option<FeatureLabels>>,
}

impl CollectedFacts {
    /// Combines these facts with the inventory.
    pub(crate) fn facts<'a>(self, inventory: &'a Inventory, catalogue: &'a Catalog) -> Facts<'a> {
        Facts {
            inventory,
            is_recorded: self.is_recorded,
            catalogue,
            roots: self.roots,
            traces: self.traces,
            files: self.files,
            instance_files: self.instance_files,
            groups: self.groups,
            processes: self.processes,
            layout: self.layout,
            kubelet: self.kubelet,
            labels: self.labels,
        }
    }
}

/// Collects the facts. Only explicitly named labels that cannot be read are an error.
pub(crate) async fn gather(
    inventory: &Inventory,
    settings: &DoctorSettings,
) -> Result<CollectedFacts, CliError> {
    let labels = labels(settings).await?;
    if settings.source.from.is_some() {
        return Ok(recorded(settings, labels));
    }
    let sys = &settings.source.hardware.sys_root;
    let (traces, files, instance_files, groups, processes, layout, kubelet) = tokio::join!(
        traces(sys, settings),
        files(settings),
        instance_files(inventory, settings),
        groups(sys, settings),
        processes(settings),
        layout::layout(settings),
        kubelet(settings),
    );
    Ok(CollectedFacts {
        is_recorded: false,
        roots: roots(sys, settings),
        traces,
        files,
        instance_files,
        groups,
        processes,
        layout,
        kubelet,
        labels,
    })
}

fn recorded(settings: &DoctorSettings, labels: Observed<Option<FeatureLabels>>) -> CollectedFacts {
    let untold = || NOT_IN_RECORDING.to_owned();
    CollectedFacts {
        is_recorded: true,
        roots: roots(Path::new("/sys"), settings),
        traces: Err(untold()),
        files: Err(untold()),
        instance_files: Err(untold()),
        groups: Err(untold()),
        processes: Err(untold()),
        layout: Err(untold()),
        kubelet: Err(untold()),
        // Labels that this machine has written do not apply to another one.
        labels: labels.map(|labels| labels.filter(|_| settings.labels.is_some())),
    }
}

/// Reads a source that may hang; `what` describes it.
async fn look<T: Send + 'static>(
    what: impl Into<String>,
    read: impl FnOnce() -> Observed<T> + Send + 'static,
) -> Observed<T> {
    let what = what.into();
    let (tell, told) = oneshot::channel();
    let thread = thread::Builder::new().name("look".to_owned());
    thread
        // After a timeout the result has no receiver.
        .spawn(move || drop(tell.send(read())))
        .map_err(|error| format!("cannot read {what}: {error}"))?;
    match timeout(SOURCE_TIMEOUT, told).await {
        Ok(Ok(told)) => told,
        Ok(Err(_)) => Err(format!("cannot read {what}: whoever read it gave up")),
        Err(_) => Err(format!(
            "cannot read {what}: it takes longer than {} s",
            SOURCE_TIMEOUT.as_secs()
        )),
    }
}

fn roots(sys: &Path, settings: &DoctorSettings) -> Roots {
    let text = |path: &Path| path.display().to_string();
    Roots {
        sys: text(sys),
        dev: settings.dev_root().map_or_else(|| "/dev".to_owned(), text),
        proc: text(&settings.proc_root),
        kubelet: text(&settings.kubelet_root),
        state: text(&settings.state_dir),
    }
}

async fn traces(sys: &Path, settings: &DoctorSettings) -> Observed<DriverTraces> {
    let place = sys.display().to_string();
    let [sys, modules, proc] =
        [sys, settings.modules_root.as_path(), &settings.proc_root].map(Path::to_owned);
    let installed = look("the list of kernel modules", move || {
        Ok(driver_traces::installed_modules(&modules, &proc))
    });
    let traces = look(place, move || Ok(driver_traces::read(&sys)));
    let (installed, traces) = tokio::join!(installed, traces);
    let mut traces = traces?;
    traces.installed = installed.ok().flatten();
    Ok(traces)
}

async fn files(settings: &DoctorSettings) -> Observed<DeviceFiles> {
    let dev = settings.dev_root().ok_or_else(|| {
        "/dev is this pod's own here: mount the node's and name it with --dev-root".to_owned()
    })?;
    let dev = dev.to_owned();
    look(dev.display().to_string(), move || {
        driver_traces::device_files(&dev)
    })
    .await
}

async fn instance_files(
    inventory: &Inventory,
    settings: &DoctorSettings,
) -> Observed<InstanceFiles> {
    let devices = inventory.devices.iter();
    let nvidia = devices.filter(|device| device.vendor == Vendor::Nvidia);
    let minors = nvidia.filter_map(|device| Some((device.pci, device.minor?)));
    let minors = minors.collect();
    let dev = settings.dev_root().unwrap_or_else(|| Path::new("/dev"));
    let [proc, dev] = [settings.proc_root.as_path(), dev].map(Path::to_owned);
    look("the driver's table of capabilities", move || {
        let files = match device_files::read(&proc, &dev, &minors) {
            Ok(files) => files,
            Err(DeviceFilesError::NoDriver) => return Err(DeviceFilesError::NoDriver.to_string()),
            Err(error) => return Err(chain(&error)),
        };
        // The paths are those of a host.
        let below = |path: &str| path.strip_prefix("/dev/").unwrap_or(path).to_owned();
        let all = files.instances.into_iter();
        Ok(all.map(|(key, file)| (key, below(&file.path))).collect())
    })
    .await
}

async fn groups(sys: &Path, settings: &DoctorSettings) -> Observed<ControlGroups> {
    let dev = settings.dev_root().map(Path::to_owned);
    let (sys, place) = (sys.to_owned(), sys.join("fs/cgroup").display().to_string());
    let said = place.clone();
    let groups = look(place, move || {
        driver_traces::control_groups(&sys, dev.as_deref())
    })
    .await?;
    if groups.pods.is_none() && settings.in_pod() {
        return Err(format!(
            "{said} shows this pod's own control group and no other"
        ));
    }
    Ok(groups)
}

async fn processes(settings: &DoctorSettings) -> Observed<Processes> {
    let proc = settings.proc_root.clone();
    look(proc.display().to_string(), move || {
        Ok(Processes {
            hidden: holders::pods(&proc).err().map(|error| chain(&error)),
            programs: holders::running_programs(&proc, &[MIG_MANAGER, GFD]),
        })
    })
    .await
}

async fn kubelet(settings: &DoctorSettings) -> Observed<Option<Kubelet>> {
    let root = settings.kubelet_root.clone();
    let place = root.display().to_string();
    let looked = root.clone();
    let is_there = look(place.clone(), move || {
        let there = looked.try_exists();
        there.map_err(|error| format!("cannot look at {}: {error}", looked.display()))
    });
    match is_there.await {
        Ok(true) => {}
        Ok(false) if settings.in_pod() => {
            return Err(format!("{place} is not mounted in this pod"));
        }
        Ok(false) => return Ok(None),
        Err(why) => return Err(why),
    }
    let socket = root.join("pod-resources/kubelet.sock");
    let plugins = root.join("device-plugins");
    let (folder, claims) = (plugins.clone(), root.join("plugins"));
    let in_pod = settings.in_pod();
    let (allocatable, registered, sockets, claim_drivers) = tokio::join!(
        pod_resources::allocatable_of_all_vendors(&socket, SOURCE_TIMEOUT),
        look("kubelet's record of device plugins", move || {
            kubelet_checkpoint::healthy_device_counts(&folder).map_err(|error| chain(&error))
        }),
        look(
            plugins.display().to_string(),
            mounted(plugins.clone(), in_pod)
        ),
        look(
            claims.display().to_string(),
            mounted(claims.clone(), in_pod)
        ),
    );
    let sockets = sockets.map(|mut names| {
        names.retain(|name| name != "kubelet.sock" && !name.starts_with("kubelet_internal"));
        names
    });
    Ok(Some(Kubelet {
        registered,
        allocatable: allocatable.map_err(|error| chain(&error)),
        claim_drivers,
        sockets,
    }))
}

/// Returns a reader of the names in a kubelet directory. In a pod, an empty or missing directory means that it was not
/// mounted.
fn mounted(folder: PathBuf, in_pod: bool) -> impl FnOnce() -> Observed<BTreeSet<String>> + Send {
    move || match names(&folder) {
        Ok(none) if none.is_empty() && in_pod => {
            Err(format!("{} is not mounted in this pod", folder.display()))
        }
        told => told,
    }
}

/// Returns the names in a directory; empty if it does not exist.
fn names(folder: &Path) -> Observed<BTreeSet<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        Err(error) => return Err(format!("cannot read {}: {error}", folder.display())),
    };
    let entries = entries.take(MAX_DIR_ENTRIES).flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    Ok(names.collect())
}

async fn labels(settings: &DoctorSettings) -> Result<Observed<Option<FeatureLabels>>, CliError> {
    if let Some(named) = &settings.labels {
        let labels = input::labels(named)?;
        return Ok(Ok(Some(FeatureLabels {
            place: input::place(named),
            labels,
            gfd: gfd(named),
        })));
    }
    let own = Input::File(FEATURE_FILE.into());
    let told = look(input::place(&own), move || match input::labels(&own) {
        Ok(labels) => Ok(Some(FeatureLabels {
            place: input::place(&own),
            labels,
            gfd: gfd(&own),
        })),
        Err(CliError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(chain(&error)),
    });
    Ok(told.await)
}

/// Returns gpu-feature-discovery's file in the same directory. Source: k8s-device-plugin, `--output-file`.
fn gfd(labels: &Input) -> Option<String> {
    let path: PathBuf = match labels {
        Input::File(path) => path.with_file_name("gfd"),
        Input::Stdin => return None,
    };
    path.is_file().then(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn hanging_source_times_out() {
        let (release, hangs) = mpsc::channel::<()>();
        let hung = look("a disk", move || {
            let _ended = hangs.recv();
            Ok(())
        });
        let said = hung.await.unwrap_err();
        assert_eq!(said, "cannot read a disk: it takes longer than 5 s");
        drop(release);
    }

    #[tokio::test]
    async fn source_result_is_returned_and_panic_is_an_error() {
        assert_eq!(look("it", || Ok(7)).await, Ok(7));
        let said = look("it", || -> Observed<()> { panic!("odd") }).await;
        assert_eq!(said.unwrap_err(), "cannot read it: whoever read it gave up");
    }
}
