//! `octavo pod-devices`: the accelerators that a container sees. `octavo validate` runs it in its pods.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use octavo_engine::durable::DurableError;
use octavo_hardware::DriverHandle;
use octavo_node::validation::{ContainerReport, is_accelerator_file};

use super::{CliError, Exit, Report, json, json_line};
use crate::settings::validate::PodDevicesSettings;

/// Subdirectories of `/dev` with device files of accelerators.
const SUBDIRECTORIES: [&str; 2] = ["dri", "nvidia-caps"];

/// Prints the report, or writes it to a file. The file is not replaced: a termination message is a mount.
pub(super) async fn report(
    driver: &DriverHandle,
    settings: &PodDevicesSettings,
) -> Result<Report, CliError> {
    let inventory = driver.observe().await;
    // Without NVML, there are no readings; the report has the reason.
    let readings = driver.readings().await.unwrap_or_default();
    let variables = [
        ("NVIDIA_VISIBLE_DEVICES", &settings.nvidia_visible_devices),
        ("NEURON_RT_VISIBLE_CORES", &settings.neuron_rt_visible_cores),
    ];
    let variables = variables.into_iter();
    let environment: BTreeMap<String, String> =
        variables.filter_map(|(name, value)| Some((name.to_owned(), value.clone()?))).collect();
    let files = device_files(&settings.dev_root);
    let report = ContainerReport::new((&inventory, &readings), &files, environment);
    let Some(path) = &settings.output_file else {
        return Ok(Report { output: json(&report)?, ..Report::default() });
    };
    let text = json_line(&report)?;
    let file = OpenOptions::new().write(true).truncate(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|source| {
        CliError::Write(DurableError { action: "write the report to", path: path.clone(), source })
    })?;
    Ok(Report { exit: Exit::Done, ..Report::default() })
}

/// Lists the device files of accelerators, as paths below `dev`. A directory that does not exist has none.
fn device_files(dev: &Path) -> BTreeSet<String> {
    let names = |directory: &Path, prefix: &str| -> Vec<String> {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let entries = entries.filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_dir()));
        entries.map(|entry| format!("{prefix}{}", entry.file_name().to_string_lossy())).collect()
    };
    let own = names(dev, "");
    let below = SUBDIRECTORIES.iter();
    let below = below.flat_map(|name| names(&dev.join(name), &format!("{name}/")));
    own.into_iter().chain(below).filter(|path| is_accelerator_file(path)).collect()
}
