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
use octavo_model::driver_traces::{ControlGroups, DeviceFiles, DriverTraces, Observed};
use octavo_model::inventory::{Inventory, Vendor};
use octavo_node::doctor::{
    ExaminedPaths, Facts, FeatureLabels, GFD, InstanceFiles, Kubelet, MIG_MANAGER, Processes,
};
use octavo_toolkit::error::chain;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::settings::Input;
use crate::settings::doctor::{DoctorSources, FEATURE_FILE};
use crate::{CliError, input};

/// Timeout per source: files and a working kubelet respond in milliseconds.
const SOURCE_TIMEOUT: Duration = Duration::from_secs(5);
/// Reason why a recording has no facts besides the inventory.
const NOT_IN_RECORDING: &str = "not part of a recording";
/// Maximum number of directory entries, more than kubelet's directories have.
const MAX_DIR_ENTRIES: usize = 4096;

/// Collects the facts. Only explicitly named labels that cannot be read are an error.
pub(crate) async fn collect<'a>(
    inventory: &'a Inventory,
    settings: &DoctorSources,
) -> Result<Facts<'a>, CliError> {
    let labels = labels(settings).await?;
    if settings.source.from.is_some() {
        let unknown = || NOT_IN_RECORDING.to_owned();
        return Ok(Facts {
            inventory,
            is_recorded: true,
            roots: roots(Path::new("/sys"), settings),
            traces: Err(unknown()),
            files: Err(unknown()),
            instance_files: Err(unknown()),
            groups: Err(unknown()),
            processes: Err(unknown()),
            layout: Err(unknown()),
            kubelet: Err(unknown()),
            // Labels that this machine has written do not apply to another one.
            labels: labels.map(|labels| labels.filter(|_| settings.labels.is_some())),
        });
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
    Ok(Facts {
        inventory,
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

/// Reads a source that may hang; `what` describes it.
async fn read<T: Send + 'static>(
    what: impl Into<String>,
    read: impl FnOnce() -> Observed<T> + Send + 'static,
) -> Observed<T> {
    let what = what.into();
    let (sender, receiver) = oneshot::channel();
    let thread = thread::Builder::new().name("read".to_owned());
    thread
        // After a timeout the result has no receiver.
        .spawn(move || drop(sender.send(read())))
        .map_err(|error| format!("cannot read {what}: {error}"))?;
    match timeout(SOURCE_TIMEOUT, receiver).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(format!("cannot read {what}: the reader failed")),
        Err(_) => {
            Err(format!("cannot read {what}: no result after {} s", SOURCE_TIMEOUT.as_secs()))
        }
    }
}

fn roots(sys: &Path, settings: &DoctorSources) -> ExaminedPaths {
    let text = |path: &Path| path.display().to_string();
    ExaminedPaths {
        sys: text(sys),
        dev: settings.dev_root().map_or_else(|| "/dev".to_owned(), text),
        proc: text(&settings.proc_root),
        kubelet: text(&settings.kubelet_root),
        state: text(&settings.state_dir),
    }
}

async fn traces(sys: &Path, settings: &DoctorSources) -> Observed<DriverTraces> {
    let place = sys.display().to_string();
    let [sys, modules, proc] =
        [sys, settings.modules_root.as_path(), &settings.proc_root].map(Path::to_owned);
    let installed = read("the list of kernel modules", move || {
        Ok(driver_traces::installed_modules(&modules, &proc))
    });
    let traces = read(place, move || Ok(driver_traces::read(&sys)));
    let (installed, traces) = tokio::join!(installed, traces);
    let mut traces = traces?;
    traces.installed = installed.ok().flatten();
    Ok(traces)
}

async fn files(settings: &DoctorSources) -> Observed<DeviceFiles> {
    let dev = settings.dev_root().ok_or_else(|| {
        "/dev is the pod's own: mount the node's /dev and set --dev-root".to_owned()
    })?;
    let dev = dev.to_owned();
    read(dev.display().to_string(), move || driver_traces::device_files(&dev)).await
}

async fn instance_files(
    inventory: &Inventory,
    settings: &DoctorSources,
) -> Observed<InstanceFiles> {
    let devices = inventory.devices.iter();
    let nvidia = devices.filter(|device| device.vendor == Vendor::Nvidia);
    let minors = nvidia.filter_map(|device| Some((device.pci, device.minor?)));
    let minors = minors.collect();
    let dev = settings.dev_root().unwrap_or_else(|| Path::new("/dev"));
    let [proc, dev] = [settings.proc_root.as_path(), dev].map(Path::to_owned);
    read("the driver's capabilities table", move || {
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

async fn groups(sys: &Path, settings: &DoctorSources) -> Observed<ControlGroups> {
    let dev = settings.dev_root().map(Path::to_owned);
    let (sys, place) = (sys.to_owned(), sys.join("fs/cgroup").display().to_string());
    let shown = place.clone();
    let groups = read(place, move || driver_traces::control_groups(&sys, dev.as_deref())).await?;
    if groups.pods.is_none() && settings.in_pod() {
        return Err(format!("{shown} shows only this pod's own cgroup"));
    }
    Ok(groups)
}

async fn processes(settings: &DoctorSources) -> Observed<Processes> {
    let proc = settings.proc_root.clone();
    read(proc.display().to_string(), move || {
        Ok(Processes {
            hidden: holders::pods(&proc).err().map(|error| chain(&error)),
            programs: holders::running_programs(&proc, &[MIG_MANAGER, GFD]),
        })
    })
    .await
}

async fn kubelet(settings: &DoctorSources) -> Observed<Option<Kubelet>> {
    let root = settings.kubelet_root.clone();
    let place = root.display().to_string();
    let looked = root.clone();
    let is_there = read(place.clone(), move || {
        let there = looked.try_exists();
        there.map_err(|error| format!("cannot inspect {}: {error}", looked.display()))
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
    let (directory, claims) = (plugins.clone(), root.join("plugins"));
    let in_pod = settings.in_pod();
    let (allocatable, registered, sockets, claim_drivers) = tokio::join!(
        pod_resources::allocatable_of_all_vendors(&socket, SOURCE_TIMEOUT),
        read("the kubelet's device plugin checkpoint", move || {
            kubelet_checkpoint::healthy_device_counts(&directory).map_err(|error| chain(&error))
        }),
        read(plugins.display().to_string(), mounted(plugins.clone(), in_pod)),
        read(claims.display().to_string(), mounted(claims.clone(), in_pod)),
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
fn mounted(directory: PathBuf, in_pod: bool) -> impl FnOnce() -> Observed<BTreeSet<String>> + Send {
    move || match names(&directory) {
        Ok(none) if none.is_empty() && in_pod => {
            Err(format!("{} is not mounted in this pod", directory.display()))
        }
        result => result,
    }
}

/// Returns the names in a directory; empty if it does not exist.
fn names(directory: &Path) -> Observed<BTreeSet<String>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        Err(error) => return Err(format!("cannot read {}: {error}", directory.display())),
    };
    let entries = entries.take(MAX_DIR_ENTRIES).flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    Ok(names.collect())
}

async fn labels(settings: &DoctorSources) -> Result<Observed<Option<FeatureLabels>>, CliError> {
    if let Some(named) = &settings.labels {
        let labels = input::labels(named)?;
        return Ok(Ok(Some(FeatureLabels { place: input::place(named), labels, gfd: gfd(named) })));
    }
    let own = Input::File(FEATURE_FILE.into());
    let result = read(input::place(&own), move || match input::labels(&own) {
        Ok(labels) => Ok(Some(FeatureLabels { place: input::place(&own), labels, gfd: gfd(&own) })),
        Err(CliError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(chain(&error)),
    });
    Ok(result.await)
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
        let hung = read("a disk", move || {
            let _ended = hangs.recv();
            Ok(())
        });
        let error = hung.await.unwrap_err();
        assert_eq!(error, "cannot read a disk: no result after 5 s");
        drop(release);
    }

    #[tokio::test]
    async fn source_result_is_returned_and_panic_is_an_error() {
        assert_eq!(read("it", || Ok(7)).await, Ok(7));
        let error = read("it", || -> Observed<()> { panic!("odd") }).await;
        assert_eq!(error.unwrap_err(), "cannot read it: the reader failed");
    }
}
