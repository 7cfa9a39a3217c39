//! What the checks are made from.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::accelerators::Catalogue;
use crate::domain::id::PciAddress;
use crate::domain::inventory::{Condition, Device, Inventory, Vendor};

/// What was looked for; the error says in words why nobody knows.
pub type Told<T> = Result<T, String>;

/// All that is known of a node.
#[derive(Debug, Clone)]
pub struct Facts<'a> {
    /// What it has.
    pub inventory: &'a Inventory,
    /// Whether that is a recording, of which nothing else can be asked.
    pub is_recorded: bool,
    /// By what a name is looked up that a person gave.
    pub catalogue: &'a Catalogue,
    /// Where things were looked for.
    pub roots: Roots,
    /// What drivers leave in sysfs.
    pub traces: Told<Traces>,
    /// Which device files there are.
    pub files: Told<Files>,
    /// The device file of each GPU instance and compute instance that the driver has a number for, as a path below the folder of
    /// device files.
    pub instance_files: Told<InstanceFiles>,
    /// How pods' control groups are made, on which it depends whether containers keep their device files.
    pub groups: Told<Groups>,
    /// Processes of the machine.
    pub processes: Told<Processes>,
    /// How far the node is on the way to its layout; `None` where no agent ever changed its devices.
    pub layout: Told<Option<Layout>>,
    /// Kubelet; `None` where none ever ran.
    pub kubelet: Told<Option<Kubelet>>,
    /// Labels that were written; `None` where there are none.
    pub labels: Told<Option<FeatureLabels>>,
}

/// Places, as they are told to people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    /// Where sysfs is mounted.
    pub sys: String,
    /// Where device files are.
    pub dev: String,
    /// Where procfs is mounted.
    pub proc: String,
    /// The kubelet's folder.
    pub kubelet: String,
    /// The agent's folder of state.
    pub state: String,
}

/// What drivers leave in sysfs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Traces {
    /// Whether the folder of PCI functions can be read.
    pub has_bus: bool,
    /// Kernel modules that are loaded, with their versions where they have any; only those that have to do with accelerators.
    pub modules: BTreeMap<String, Option<String>>,
    /// Of which of them it cannot be told whether they are loaded, and why.
    pub untold: BTreeMap<String, String>,
    /// Devices that the Neuron driver shows, by their numbers.
    pub neuron: BTreeSet<u32>,
    /// Nodes of KFD's topology.
    pub kfd_nodes: usize,
    /// Why that cannot be told, where it cannot.
    pub kfd_untold: Option<String>,
    /// Modules that are there for the kernel that runs, loaded or not; `None` where it does not say.
    pub installed: Option<Installed>,
}

/// Kernel modules that could be loaded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Installed {
    /// Which file says so.
    pub place: String,
    /// Those of them that drive accelerators.
    pub modules: BTreeSet<String>,
}

/// Control groups of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Groups {
    /// Of which version they are.
    pub version: GroupVersion,
    /// Who makes those of pods; `None` where there is none of a pod.
    pub pods: Option<PodGroups>,
    /// Device files of NVIDIA's without a link in `/dev/char`, by which systemd finds them.
    pub unlinked: Told<Vec<String>>,
}

/// A version of control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupVersion {
    /// A folder for each controller.
    One,
    /// All in one.
    Two,
}

/// Who makes pods' control groups. Source: Kubernetes, "Container Runtimes", cgroup drivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodGroups {
    /// systemd, asked by the container runtime: `kubepods.slice`.
    Systemd,
    /// The container runtime itself: `kubepods`.
    Runtime,
}

/// Processes of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Processes {
    /// Why not all of them and their pods can be seen, where that is so.
    pub hidden: Option<String>,
    /// Which programs run that partition or label devices, or give them out, as far as they can be seen.
    pub programs: BTreeSet<String>,
}

/// How far a node is on the way to its layout.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Layout {
    /// Whether the agent says it, now. Else it is what one left.
    pub is_agent: bool,
    /// The layout; `None` where none is chosen.
    pub name: Option<String>,
    /// The state that most needs attention, one of [`crate::domain::reason::Reason`]'s words.
    pub state: Option<String>,
    /// What is wrong with the layout itself.
    pub notice: Option<String>,
    /// Devices that something is asked of.
    pub devices: Vec<LayoutDevice>,
    /// Changes that were begun and are not known to have ended, and journals that cannot be read; in words for a person.
    pub journal: Vec<String>,
}

/// How far a device is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayoutDevice {
    /// What people call it.
    pub name: String,
    /// Likewise a reason's word.
    pub state: String,
    /// Why; may be empty.
    pub message: String,
}

/// Names of device files below their folder, such as `nvidiactl` and `dri/renderD128`; only those of accelerators.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Files(pub BTreeSet<String>);

/// Device files by device, GPU instance and, where it is that of one, compute instance.
pub type InstanceFiles = BTreeMap<(PciAddress, u32, Option<u32>), String>;

/// What kubelet tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kubelet {
    /// Resources that device plugins registered, from kubelet's own record.
    pub registered: Told<Registered>,
    /// What it would give out: ids by resource. `None`: this kubelet does not tell.
    pub allocatable: Told<Option<BTreeMap<String, BTreeSet<String>>>>,
    /// Drivers that allocate devices to claims (DRA), by the folders that they have.
    pub claim_drivers: Told<BTreeSet<String>>,
    /// Sockets of device plugins, whether anybody listens at them or not.
    pub sockets: Told<BTreeSet<String>>,
}

impl Kubelet {
    /// Those sockets that are told.
    pub(super) fn sockets(&self) -> impl Iterator<Item = &String> {
        self.sockets.iter().flatten()
    }
}

/// How many healthy devices each registered resource has.
pub type Registered = BTreeMap<String, usize>;

/// Labels that were written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeatureLabels {
    /// Where.
    pub place: String,
    /// Keys and values.
    pub labels: BTreeMap<String, String>,
    /// The file beside them that gpu-feature-discovery writes, if it is there.
    pub gfd: Option<String>,
}

impl FeatureLabels {
    /// Whether they are all labels of a Node, and not those that one program writes.
    pub(super) fn is_node(&self) -> bool {
        self.labels.contains_key("kubernetes.io/hostname")
    }

    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }
}

/// Whether a module is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Loaded {
    /// It is; the words say how that is known.
    Yes(String),
    /// It is not; likewise.
    No(String),
    /// Nobody tells.
    Untold(String),
}

impl Facts<'_> {
    /// Devices of a vendor that are there for this machine: not those that a virtual machine is given.
    pub(super) fn here(&self, vendor: Vendor) -> Vec<&Device> {
        let all = self.inventory.devices.iter();
        let of_vendor = all.filter(|device| device.vendor == vendor);
        of_vendor
            .filter(|device| !device.condition.is_passthrough())
            .collect()
    }

    /// How many devices of a vendor their driver tells of by itself, whatever the bus shows.
    pub(super) fn told(&self, vendor: Vendor) -> usize {
        let neuron = self.inventory.neuron.as_ref();
        let neuron = neuron.filter(|_| vendor == Vendor::Aws);
        neuron.map_or(0, |neuron| neuron.devices.len())
    }

    /// Whether a kernel module is loaded, for devices that are here.
    pub(super) fn loaded(&self, module: &str, devices: &[&Device]) -> Loaded {
        let folder = format!("{}/module/{module}", self.roots.sys);
        let version = self
            .traces
            .as_ref()
            .map(|traces| traces.modules.get(module));
        if let Ok(Some(version)) = version {
            let version = version.as_deref().unwrap_or("it tells no version");
            return Loaded::Yes(format!("{folder}: {version}"));
        }
        let bound = devices
            .iter()
            .filter(|device| bound(device) == Some(module));
        let bound = bound.count();
        if bound > 0 {
            let all = devices.len();
            return Loaded::Yes(format!(
                "the kernel driver {module} is bound to {bound} of {all}"
            ));
        }
        if devices.iter().any(|device| answers(device)) {
            return Loaded::Yes("its devices answer".to_owned());
        }
        let untold = self.traces.as_ref().ok();
        if let Some(why) = untold.and_then(|traces| traces.untold.get(module)) {
            return Loaded::Untold(format!("cannot look at {folder}: {why}"));
        }
        match version {
            Ok(_) => Loaded::No(format!("there is no {folder}{}", self.installed(module))),
            // A recording says what was bound then.
            Err(_) if devices.iter().all(|device| bound_to_nothing(device)) => {
                Loaded::No("no kernel driver is bound to any of them".to_owned())
            }
            Err(why) => Loaded::Untold(why.clone()),
        }
    }

    /// Whether a module that is not loaded is there to be; `None` where nobody tells.
    pub(super) fn is_installed(&self, module: &str) -> Option<bool> {
        let installed = self.traces.as_ref().ok()?.installed.as_ref()?;
        Some(installed.modules.contains(module))
    }

    /// The same in words.
    fn installed(&self, module: &str) -> String {
        let installed = self.traces.as_ref().ok();
        let installed = installed.and_then(|traces| traces.installed.as_ref());
        match (installed, self.is_installed(module)) {
            (Some(Installed { place, .. }), Some(true)) => format!(", though {place} has it"),
            (Some(Installed { place, .. }), Some(false)) => format!(", and {place} has none"),
            (None, _) | (_, None) => String::new(),
        }
    }
}

/// The kernel driver that is bound to it, where no driver library speaks for it.
pub(super) fn bound(device: &Device) -> Option<&str> {
    match &device.condition {
        Condition::PciOnly { kernel_driver } => kernel_driver.as_deref(),
        Condition::Working | Condition::Failing { .. } => None,
    }
}

/// Whether its driver answers, or at least lists it.
fn answers(device: &Device) -> bool {
    match &device.condition {
        Condition::Working | Condition::Failing { .. } => true,
        Condition::PciOnly { .. } => false,
    }
}

fn bound_to_nothing(device: &Device) -> bool {
    !answers(device) && bound(device).is_none()
}
