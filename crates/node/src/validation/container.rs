//! Accelerators that a container sees: its device files, its environment, and the units that drivers report for them.

use std::collections::{BTreeMap, BTreeSet};

use octavo_model::inventory::{Condition, Device, Inventory, NvmlState, Vendor};
use octavo_model::quantity::Mebibytes;
use octavo_model::reading::Reading;
use octavo_model::text::truncate;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Maximum number of listed units, and of device files. A correct container has one unit and a handful of files.
const MAX_UNITS: usize = 8;
const MAX_FILES: usize = 16;
/// Maximum length of a text. The report must fit into a termination message, which has 4096 bytes.
const MAX_TEXT_BYTES: usize = 120;

/// Accelerators that a container sees.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerReport {
    /// Device files of accelerators, as paths below `/dev`: `nvidia0`, `dri/renderD128`. At most 16.
    pub device_files: Vec<String>,
    /// Environment variables that select devices.
    pub environment: BTreeMap<String, String>,
    /// Usable units: GPUs, MIG devices, AMD partitions, Neuron devices. At most 8.
    pub units: Vec<VisibleUnit>,
    /// Reason why NVML is not usable; `None` if it is.
    pub nvml: Option<String>,
}

/// A unit that a container can use.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VisibleUnit {
    /// Vendor.
    pub vendor: Vendor,
    /// UUID of a GPU or MIG device; name of the device file of others.
    pub id: String,
    /// Type of the device.
    #[serde(rename = "type")]
    pub type_name: Option<String>,
    /// MIG profile.
    pub profile: Option<String>,
    /// Memory.
    #[serde(rename = "memoryMiB")]
    pub memory_mib: Option<u64>,
    /// Error that the driver reports for the device.
    pub error: Option<String>,
}

/// Returns whether a path below `/dev` is a device file of an accelerator or of its driver.
pub fn is_accelerator_file(path: &str) -> bool {
    ["nvidia", "neuron", "dri/renderD"].iter().any(|prefix| path.starts_with(prefix))
        || path == "kfd"
}

/// Returns the number at the end of a device file with this prefix: 3 for `nvidia3`.
pub(super) fn number_after(path: &str, prefix: &str) -> Option<u32> {
    path.strip_prefix(prefix)?.parse().ok()
}

impl ContainerReport {
    /// Creates the report from the hardware that drivers report here, the device files and the environment. sysfs shows
    /// all devices of the machine, so a device without NVML counts only if the container has its device file.
    pub fn new(
        (inventory, readings): (&Inventory, &[Reading]),
        device_files: &BTreeSet<String>,
        environment: BTreeMap<String, String>,
    ) -> Self {
        let nvidia = inventory.devices.iter().filter(|device| device.vendor == Vendor::Nvidia);
        let mut units: Vec<VisibleUnit> =
            nvidia.flat_map(|device| nvidia_units(device, readings)).collect();
        let has_kfd = device_files.contains("kfd");
        for file in device_files {
            if let Some(minor) = number_after(file, "dri/renderD") {
                units.extend(amd_unit(inventory, file, minor, has_kfd));
            } else if let Some(number) = number_after(file, "neuron") {
                units.push(neuron_unit(inventory, file, number));
            }
        }
        units.truncate(MAX_UNITS);
        let cut = |text: String| truncate(&text, MAX_TEXT_BYTES);
        let environment = environment.into_iter().map(|(name, value)| (name, cut(value)));
        Self {
            device_files: device_files.iter().take(MAX_FILES).cloned().map(cut).collect(),
            environment: environment.collect(),
            units,
            nvml: nvml_problem(&inventory.nvml).map(cut),
        }
    }
}

fn nvml_problem(state: &NvmlState) -> Option<String> {
    match state {
        NvmlState::Ready(_) => None,
        NvmlState::Absent { reason } | NvmlState::Lost { reason } => Some(reason.clone()),
        NvmlState::Loading => Some("NVML is still being initialized".to_owned()),
        NvmlState::Stalled { call, .. } => Some(format!("NVML does not return from {call}")),
    }
}

/// Returns the partitions of a GPU with MIG devices, or the GPU itself. The partitions come from the reading: an
/// inventory lists them only for privileged processes.
fn nvidia_units(device: &Device, readings: &[Reading]) -> Vec<VisibleUnit> {
    let error = match &device.condition {
        Condition::Working => None,
        Condition::Failing { reason } => Some(truncate(reason, MAX_TEXT_BYTES)),
        // On the bus, but not accessible from here.
        Condition::PciOnly { .. } => return Vec::new(),
    };
    let unit = |id: String, profile: Option<String>, memory: Option<Mebibytes>| VisibleUnit {
        vendor: Vendor::Nvidia,
        id,
        type_name: device.identity.type_name().map(ToString::to_string),
        profile,
        memory_mib: memory.map(Mebibytes::get),
        error: error.clone(),
    };
    let reading = readings.iter().find(|reading| reading.pci == device.pci);
    let partitions = reading.iter().flat_map(|reading| &reading.partitions);
    let partitions: Vec<VisibleUnit> = partitions
        .map(|one| {
            let memory = one.memory.as_ref().map(|memory| memory.total);
            unit(one.uuid.clone(), one.profile.clone(), memory)
        })
        .collect();
    if partitions.is_empty() {
        let uuid = device.uuid.as_ref().map(ToString::to_string);
        vec![unit(uuid.unwrap_or_else(|| device.pci.to_string()), None, device.memory)]
    } else {
        partitions
    }
}

/// Returns the unit of a render node. CDI gives containers the render nodes of NVIDIA's GPUs too: a node that sysfs does
/// not assign to a device of AMD counts only beside AMD's compute driver.
fn amd_unit(inventory: &Inventory, file: &str, minor: u32, has_kfd: bool) -> Option<VisibleUnit> {
    let found = inventory.devices.iter().find_map(|device| {
        let partitions = &device.amd.as_ref()?.partitions;
        let partition = partitions.iter().find(|one| one.render_minor == minor)?;
        let whole = device.memory.filter(|_| partitions.len() == 1);
        Some((device, partition.memory.or(whole)))
    });
    (found.is_some() || has_kfd).then(|| VisibleUnit {
        vendor: Vendor::Amd,
        id: file.to_owned(),
        type_name: found.and_then(|(device, _)| Some(device.identity.type_name()?.to_string())),
        profile: None,
        memory_mib: found.and_then(|(_, memory)| memory.map(Mebibytes::get)),
        error: None,
    })
}

fn neuron_unit(inventory: &Inventory, file: &str, number: u32) -> VisibleUnit {
    let chips = inventory.neuron.iter().flat_map(|neuron| &neuron.devices);
    let chip = chips.into_iter().find(|one| one.number == number);
    let unhealthy = chip.and_then(|chip| chip.unhealthy.as_ref()).filter(|parts| !parts.is_empty());
    // The driver's numbers do not identify PCI functions, but all chips of a node are of one type.
    let mut functions = inventory.devices.iter().filter(|device| device.vendor == Vendor::Aws);
    let function = functions.next().filter(|_| chip.is_some());
    VisibleUnit {
        vendor: Vendor::Aws,
        id: file.to_owned(),
        type_name: function.and_then(|device| Some(device.identity.type_name()?.to_string())),
        profile: None,
        memory_mib: function.and_then(|device| device.memory.map(Mebibytes::get)),
        error: unhealthy
            .map(|parts| truncate(&format!("unhealthy: {}", parts.join(", ")), MAX_TEXT_BYTES)),
    }
}
