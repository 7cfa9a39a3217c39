//! AWS Neuron devices, read from the files of their kernel driver in sysfs. Requires no tool or library of the vendor.
//!
//! ```text
//! class/neuron_device/neuronN   one directory per device          (here)
//!   path of each file           known, or found by file name      files.rs
//!   content of each file        a value, or a reported problem    values.rs
//! size of a logical core        configuration file or chip        logical.rs
//! ```
//!
//! Every file is optional, and values are checked for plausibility: an implausible value is absent and a problem of its
//! device. Permissions differ by release (some files are readable only by root before 2.28), so an unreadable file is a
//! problem and not a failure. Source of paths, formats and limits: the driver's releases 2.24 to 2.26 and AWS Neuron's
//! documentation of its sysfs tree.

mod files;
mod logical;
mod values;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use octavo_model::accelerators;
use octavo_model::inventory::{
    DriverLayout, Neuron, NeuronDevice, NeuronErrors, PciIds, ReadProblem, is_passthrough_driver,
};
use octavo_model::quantity::Mebibytes;

use crate::pci_function::PciFunction;
use crate::sysfs::{MAX_DEVICE_MEMORY, Sysfs};
use files::{AttributePath, Files};

const MODULE: &str = "module/neuron";
const VERSION: &str = "module/neuron/version";

/// Directories of the devices. The first consists of links to the second.
const DEVICE_DIRS: [&str; 2] = ["class/neuron_device", "devices/virtual/neuron_device"];

/// The driver's own limit. The limit of devices is in `values`.
const MAX_CORES: usize = 8;

/// Maximum number of entries named like devices, or like cores, that are read.
const MAX_ENTRIES: usize = 1024;

const CORE_COUNT: &str = "core_count";
const CONNECTED: &str = "connected_devices";
const SERIAL: &str = "info/serial_number";
const NAME: &str = "info/architecture/device_name";
const MEMORY_UNCORRECTED: &str = "stats/hardware/mem_ecc_uncorrected";
const MEMORY_REPAIRABLE: &str = "stats/hardware/mem_ecc_repairable_uncorrected";
const SRAM_UNCORRECTED: &str = "stats/hardware/sram_ecc_uncorrected";
const MEMORY_CORRECTED: &str = "stats/hardware/mem_ecc_corrected";
const SRAM_CORRECTED: &str = "stats/hardware/sram_ecc_corrected";
const POWER: &str = "stats/power/utilization";
const UNHEALTHY: &str = "stats/hardware/health_status/unhealthy_components";

const CORE_ARCHITECTURE: AttributePath =
    AttributePath { path: "info/architecture/arch_type", suffix: "arch_type" };
/// Memory currently in use. The neighboring file `present` is the size of the last allocation or release.
const CORE_MEMORY: AttributePath =
    AttributePath { path: "stats/memory_usage/device_mem/total", suffix: "device_mem/total" };

/// Class attributes of a node that is part of an `UltraServer`: Trainium2's, then Trainium3's.
const ULTRASERVER: [&str; 7] = [
    "ultraserver_mode",
    "server_id_2",
    "server_id_4",
    "node_id_2",
    "node_id_4",
    "node_id",
    "reservation_id",
];

const AMAZON: u16 = 0x1d0f;

/// Reads the Neuron driver's files of a machine.
#[derive(Debug)]
pub(crate) struct NeuronReader {
    sys: Sysfs,
    /// The configuration file with the number of physical cores per logical core.
    logical_config: PathBuf,
    /// The devices read last, retained while they cannot be listed.
    last: Vec<NeuronDevice>,
}

impl NeuronReader {
    pub(crate) fn new(sys: Sysfs, logical_config: PathBuf) -> Self {
        Self { sys, logical_config, last: Vec::new() }
    }

    /// Reads the driver's current state; `None` if it is not loaded. Compares the device count with `functions`, those
    /// on the bus.
    pub(crate) fn read(&mut self, functions: &[PciFunction]) -> Option<Neuron> {
        let listed = self.numbers();
        // Require a readable directory: an inaccessible path may be anything.
        let is_loaded = [MODULE].iter().chain(&DEVICE_DIRS).any(|path| self.sys.is_dir(path));
        let is_hidden = listed.is_err() && !self.last.is_empty();
        if !is_loaded && !is_hidden {
            self.last.clear();
            return None;
        }
        let mut problems = Vec::new();
        let driver_version = self.word(VERSION, VERSION, &mut problems);
        let may_differ = !values::is_known_release(driver_version.as_deref());
        let mut driver_layout = DriverLayout::Known;
        match listed {
            Ok((class, numbers)) => {
                let numbers = within_device_limit(numbers, &mut problems);
                self.last.clear();
                for number in numbers {
                    let root = format!("{class}/neuron{number}");
                    let mut files = Files::open(&self.sys, &root, may_differ);
                    if files.layout() == DriverLayout::Unknown {
                        driver_layout = DriverLayout::Unknown;
                    }
                    self.last.push(device(number, &mut files));
                }
                problems.extend(count_mismatch(self.last.len(), functions));
            }
            Err(error) => {
                let error = format!("{error}; the devices show the previous reading");
                problems.push(problem(DEVICE_DIRS[0], error));
            }
        }
        let devices = self.last.clone();
        let logical = logical::read(&devices, &self.logical_config, &mut problems);
        Some(Neuron {
            driver_version,
            driver_layout,
            logical,
            ultraserver: self.ultraserver(&mut problems),
            devices,
            problems,
        })
    }

    /// Returns the `UltraServer` attributes verbatim. They belong to the class and not to a device, so only the class
    /// directory has them.
    fn ultraserver(&self, problems: &mut Vec<ReadProblem>) -> BTreeMap<String, String> {
        let attributes = ULTRASERVER.iter().filter_map(|name| {
            let word = self.word(&format!("{}/{name}", DEVICE_DIRS[0]), name, problems)?;
            Some(((*name).to_owned(), word))
        });
        attributes.collect()
    }

    /// Returns the device numbers and their directory. Fails if a directory that may contain devices cannot be read.
    fn numbers(&self) -> io::Result<(&'static str, Vec<u32>)> {
        let mut nothing = Ok(("", Vec::new()));
        for class in DEVICE_DIRS {
            match numbered(&self.sys, class, "neuron") {
                Ok(numbers) if numbers.is_empty() => {}
                Ok(numbers) => return Ok((class, numbers)),
                Err(error) => nothing = nothing.and(Err(error)),
            }
        }
        nothing
    }

    /// Returns the word in the file `path`. Invalid content is a problem of `source`.
    fn word(&self, path: &str, source: &str, problems: &mut Vec<ReadProblem>) -> Option<String> {
        let read = values::parse_value(self.sys.read_text(path), values::word);
        read.unwrap_or_else(|error| {
            problems.push(problem(source, error));
            None
        })
    }
}

/// Returns the numbers N of the subdirectories `<stem>N` in ascending order. Ignores other entries.
fn numbered(sys: &Sysfs, dir: &str, stem: &str) -> io::Result<Vec<u32>> {
    let numbers = values::numbered(&sys.names(dir)?, stem).into_iter();
    let is_dir = |number: &u32| sys.is_dir(&format!("{dir}/{stem}{number}"));
    Ok(numbers.take(MAX_ENTRIES).filter(is_dir).collect())
}

/// Returns the numbers within the driver's limit. Reports the others as a problem.
fn within_device_limit(numbers: Vec<u32>, problems: &mut Vec<ReadProblem>) -> Vec<u32> {
    let (numbers, others): (Vec<u32>, Vec<u32>) =
        numbers.into_iter().partition(|number| *number < values::MAX_DEVICES);
    if let Some(first) = others.first() {
        let error = format!(
            "neuron{first} is ignored: device numbers from {} on are not supported",
            values::MAX_DEVICES
        );
        problems.push(problem("neuron_device", error));
    }
    numbers
}

fn device(number: u32, files: &mut Files<'_>) -> NeuronDevice {
    let cores = cores(files);
    let device_name = files.value(NAME, values::word);
    let most =
        device_name.as_deref().and_then(accelerators::neuron_memory).unwrap_or(MAX_DEVICE_MEMORY);
    let mut device = NeuronDevice {
        number,
        serial: files
            .value(SERIAL, values::serial)
            .filter(|serial| values::is_nonzero_serial(serial)),
        device_name,
        core_architecture: (0..files.cores())
            .find_map(|core| files.core_value(core, CORE_ARCHITECTURE, values::word)),
        cores,
        connected: files.list(CONNECTED, values::numbers),
        memory_used: memory(files, cores).and_then(|used| checked_memory(used, most, files)),
        errors: NeuronErrors {
            memory_uncorrected: files.value(MEMORY_UNCORRECTED, values::count),
            memory_repairable: files.value(MEMORY_REPAIRABLE, values::count),
            sram_uncorrected: files.value(SRAM_UNCORRECTED, values::count),
            memory_corrected: files.value(MEMORY_CORRECTED, values::count),
            sram_corrected: files.value(SRAM_CORRECTED, values::count),
        },
        power_percent: files.value(POWER, values::power).and_then(values::Power::percent),
        unhealthy: files.list(UNHEALTHY, values::parts),
        problems: Vec::new(),
    };
    device.problems = files.take_problems();
    device
}

/// Returns the number of cores that the driver reports, or the number of core directories: the count is readable only
/// by root before 2.28.
fn cores(files: &mut Files<'_>) -> Option<u32> {
    let directories = u32::try_from(files.cores()).ok().filter(|n| *n > 0);
    let count = files.value(CORE_COUNT, values::cores);
    if let (Some(reported), Some(directories)) = (count, directories)
        && reported != directories
    {
        let error = format!("it reports {reported}, but there are {directories} core directories");
        files.add_problem(CORE_COUNT, error);
    }
    count.or(directories)
}

/// Returns the sum over all cores, or `None` if a core does not report its memory: a partial sum would overstate the
/// free memory.
fn memory(files: &mut Files<'_>, cores: Option<u32>) -> Option<Mebibytes> {
    let values: Vec<u64> = (0..files.cores())
        .filter_map(|core| files.core_value(core, CORE_MEMORY, values::count))
        .collect();
    let all = usize::try_from(cores?).ok()?;
    if values.is_empty() {
        let whole = files.moved_value(CORE_MEMORY, values::count)?;
        return Some(Mebibytes::from_bytes(whole));
    }
    if values.len() != all {
        let error = format!("only {} of {all} cores report it", values.len());
        files.add_problem(CORE_MEMORY.path, error);
        return None;
    }
    let sum = values.into_iter().try_fold(0_u64, u64::checked_add);
    if sum.is_none() {
        files.add_problem(CORE_MEMORY.path, "the sum of all cores is too large".to_owned());
    }
    sum.map(Mebibytes::from_bytes)
}

/// Rejects a value above the device's memory.
fn checked_memory(used: Mebibytes, most: Mebibytes, files: &mut Files<'_>) -> Option<Mebibytes> {
    if used > most {
        // Exact: rounded values could be equal.
        let (used, most) = (used.get(), most.get());
        let error = format!("{used} MiB in use exceeds the total of {most} MiB");
        files.add_problem(CORE_MEMORY.path, error);
        return None;
    }
    Some(used)
}

/// Reports a difference between the device counts of the bus and the driver. The files do not show which function is
/// which device, so only the counts are compared.
fn count_mismatch(reported: usize, functions: &[PciFunction]) -> Option<ReadProblem> {
    let is_ours = |ids: PciIds| ids.vendor == AMAZON;
    let on_bus = functions
        .iter()
        .filter(|function| is_ours(function.ids))
        .filter(|function| !function.kernel_driver.as_deref().is_some_and(is_passthrough_driver))
        .count();
    (reported != on_bus).then(|| {
        let error = format!("the driver reports {reported}, but {on_bus} are on the PCI bus");
        problem(Neuron::COUNT_MISMATCH, error)
    })
}

fn problem(what: &str, error: String) -> ReadProblem {
    ReadProblem { source: what.to_owned(), error }
}

#[cfg(test)]
mod tests;
