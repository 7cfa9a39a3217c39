//! Input of the checks.

use std::collections::{BTreeMap, BTreeSet};

use octavo_model::driver_traces::{
    AvailableModules, ControlGroups, DeviceFiles, DriverTraces, Observed,
};
use octavo_model::id::PciAddress;
use octavo_model::inventory::{Condition, Device, Inventory, Vendor};
use octavo_model::reason::Reason;
use octavo_model::reported::Reported;
use octavo_model::sharing_status::{DeviceProvider, SharingStatus};

/// Gathered facts about a node.
#[derive(Debug, Clone)]
pub struct Facts<'a> {
    /// Inventory of the node.
    pub inventory: &'a Inventory,
    /// True if the inventory is a recording, which cannot answer further queries.
    pub is_recorded: bool,
    /// Paths that were examined.
    pub roots: ExaminedPaths,
    /// Driver information in sysfs.
    pub traces: Observed<DriverTraces>,
    /// Existing device files.
    pub files: Observed<DeviceFiles>,
    /// Device file of each GPU instance and compute instance that has a driver minor number, as a path below the
    /// device directory.
    pub instance_files: Observed<InstanceFiles>,
    /// Control groups of pods, which determine whether containers retain their device files.
    pub groups: Observed<ControlGroups>,
    /// Processes on the machine.
    pub processes: Observed<Processes>,
    /// Progress of the node's layout; `None` if no agent has ever changed its devices.
    pub layout: Observed<Option<LayoutProgress>>,
    /// State of the kubelet; `None` if none has ever run.
    pub kubelet: Observed<Option<Kubelet>>,
    /// Labels of the node or of a feature file; `None` if there are none.
    pub labels: Observed<Option<FeatureLabels>>,
}

/// Examined paths, as displayed to users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExaminedPaths {
    /// Mount point of sysfs.
    pub sys: String,
    /// Directory of device files.
    pub dev: String,
    /// Mount point of procfs.
    pub proc: String,
    /// Directory of the kubelet.
    pub kubelet: String,
    /// State directory of the agent.
    pub state: String,
}

/// Processes on the machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Processes {
    /// Reason why processes or their pods are partly invisible; `None` if all are visible.
    pub hidden: Option<String>,
    /// Visible running programs that partition, label or allocate devices.
    pub programs: BTreeSet<String>,
}

/// Progress of a node towards its desired layout.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LayoutProgress {
    /// True if a running agent reports this; otherwise it comes from files that an agent left.
    pub is_agent: bool,
    /// Name of the layout; `None` if none is chosen.
    pub name: Option<String>,
    /// State that most needs attention.
    pub state: Option<Reported<Reason>>,
    /// Problem with the layout itself.
    pub notice: Option<String>,
    /// Devices that the layout covers.
    pub devices: Vec<LayoutDevice>,
    /// Changes that started and are not known to have finished, and unreadable journals, as descriptions for users.
    pub journal: Vec<String>,
    /// Result of serving resource claims; `None` if no running agent serves them.
    pub claims: Option<Result<(), String>>,
}

/// Returns whether an agent with this status serves resource claims, or why it cannot; `None` if it does not.
pub fn claim_service(sharing: Option<&SharingStatus>) -> Option<Result<(), String>> {
    let sharing = sharing.filter(|sharing| sharing.mode == DeviceProvider::Dra)?;
    let state = || sharing.state.as_str().to_owned();
    let message = sharing.message.clone().unwrap_or_else(state);
    Some(if sharing.state == Reason::ClaimsServed { Ok(()) } else { Err(message) })
}

/// Progress of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayoutDevice {
    /// Display name.
    pub name: String,
    /// State.
    pub state: Reported<Reason>,
    /// Explanation; may be empty.
    pub message: String,
}

/// Device files by device, GPU instance and, for compute instances, compute instance.
pub type InstanceFiles = BTreeMap<(PciAddress, u32, Option<u32>), String>;

/// State of the kubelet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kubelet {
    /// Resources registered by device plugins, from the kubelet's checkpoint.
    pub registered: Observed<RegisteredResources>,
    /// Allocatable device ids by resource. `None`: this kubelet does not report them.
    pub allocatable: Observed<Option<BTreeMap<String, BTreeSet<String>>>>,
    /// DRA drivers that allocate devices to claims, according to their directories.
    pub claim_drivers: Observed<BTreeSet<String>>,
    /// Sockets of device plugins, including those without a listener.
    pub sockets: Observed<BTreeSet<String>>,
}

impl Kubelet {
    /// Known sockets.
    pub(super) fn sockets(&self) -> impl Iterator<Item = &String> {
        self.sockets.iter().flatten()
    }

    /// Reason why its resources are unknown.
    pub(super) fn unknown_reason(&self) -> String {
        let registered = self.registered.as_ref().err();
        let allocatable = self.allocatable.as_ref().err();
        let reasons: Vec<&str> =
            [registered, allocatable].into_iter().flatten().map(String::as_str).collect();
        if reasons.is_empty() {
            return "this kubelet does not report its allocatable devices".to_owned();
        }
        reasons.join("; ")
    }
}

/// Number of healthy devices by registered resource.
pub type RegisteredResources = BTreeMap<String, usize>;

/// Labels of the node or of a feature file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeatureLabels {
    /// Source of the labels.
    pub place: String,
    /// Labels by key.
    pub labels: BTreeMap<String, String>,
    /// Feature file of gpu-feature-discovery in the same directory, if it exists.
    pub gfd: Option<String>,
}

impl FeatureLabels {
    /// Returns `true` if these are all labels of a Node, as opposed to those of one program.
    pub(super) fn is_node(&self) -> bool {
        self.labels.contains_key("kubernetes.io/hostname")
    }

    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }
}

/// State of a kernel module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ModuleState {
    /// Loaded, with the evidence.
    Yes(String),
    /// Not loaded, with the evidence.
    No(String),
    /// Unknown, with the reason.
    Unknown(String),
}

impl Facts<'_> {
    /// Devices of a vendor that this machine can use: excludes those passed through to virtual machines.
    pub(super) fn usable_devices(&self, vendor: Vendor) -> Vec<&Device> {
        let all = self.inventory.devices.iter();
        let of_vendor = all.filter(|device| device.vendor == vendor);
        of_vendor.filter(|device| !device.condition.is_passthrough()).collect()
    }

    /// Number of devices that a vendor's driver reports independently of the bus.
    pub(super) fn driver_device_count(&self, vendor: Vendor) -> usize {
        let neuron = self.inventory.neuron.as_ref();
        let neuron = neuron.filter(|_| vendor == Vendor::Aws);
        neuron.map_or(0, |neuron| neuron.devices.len())
    }

    /// State of a kernel module that drives `devices`.
    pub(super) fn module_state(&self, module: &str, devices: &[&Device]) -> ModuleState {
        let directory = format!("{}/module/{module}", self.roots.sys);
        let version = self.traces.as_ref().map(|traces| traces.modules.get(module));
        if let Ok(Some(version)) = version {
            let version = version.as_deref().unwrap_or("unknown version");
            return ModuleState::Yes(format!("{directory}: {version}"));
        }
        let bound = devices.iter().filter(|device| bound_driver(device) == Some(module));
        let bound = bound.count();
        if bound > 0 {
            let all = devices.len();
            return ModuleState::Yes(format!(
                "the kernel driver {module} is bound to {bound} of {all}"
            ));
        }
        if devices.iter().any(|device| is_driver_answering(device)) {
            return ModuleState::Yes("its devices answer".to_owned());
        }
        let traces = self.traces.as_ref().ok();
        if let Some(why) = traces.and_then(|traces| traces.unknown_modules.get(module)) {
            return ModuleState::Unknown(format!("cannot inspect {directory}: {why}"));
        }
        match version {
            Ok(_) => {
                ModuleState::No(format!("{directory} does not exist{}", self.installed(module)))
            }
            // A recording contains the driver that was bound.
            Err(_) if devices.iter().all(|device| has_no_driver(device)) => {
                ModuleState::No("no kernel driver is bound to any of them".to_owned())
            }
            Err(why) => ModuleState::Unknown(why.clone()),
        }
    }

    /// Returns `true` if a module is available for loading; `None` if unknown.
    pub(super) fn is_module_available(&self, module: &str) -> Option<bool> {
        let installed = self.traces.as_ref().ok()?.installed.as_ref()?;
        Some(installed.modules.contains(module))
    }

    /// Availability of the module as a clause of a message.
    fn installed(&self, module: &str) -> String {
        let installed = self.traces.as_ref().ok();
        let installed = installed.and_then(|traces| traces.installed.as_ref());
        match (installed, self.is_module_available(module)) {
            (Some(AvailableModules { place, .. }), Some(true)) => {
                format!(", although {place} contains the module")
            }
            (Some(AvailableModules { place, .. }), Some(false)) => {
                format!(", and {place} does not contain the module")
            }
            (None, _) | (_, None) => String::new(),
        }
    }
}

/// Kernel driver bound to a device without a driver library.
pub(super) fn bound_driver(device: &Device) -> Option<&str> {
    match &device.condition {
        Condition::PciOnly { kernel_driver } => kernel_driver.as_deref(),
        Condition::Working | Condition::Failing { .. } => None,
    }
}

/// Returns `true` if the driver answers for the device, or at least lists it.
fn is_driver_answering(device: &Device) -> bool {
    match &device.condition {
        Condition::Working | Condition::Failing { .. } => true,
        Condition::PciOnly { .. } => false,
    }
}

fn has_no_driver(device: &Device) -> bool {
    !is_driver_answering(device) && bound_driver(device).is_none()
}
