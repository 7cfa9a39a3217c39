//! What is known of a device, line by line.

use super::chips::{amd_facts, lines, partitions};
use super::shares::{Users, mark};
use super::slices::Picture;
use super::words::{Badge, device_state, memory, printable};
use crate::domain::inventory::{Condition, Device, NvmlState, Process, ProcessKind, Usage, Vendor};
use crate::domain::sharing::usage::DeviceUsage;

/// A device, ready to be shown.
#[derive(Debug)]
pub(super) struct Card {
    pub(super) title: String,
    pub(super) kind: String,
    pub(super) product: String,
    pub(super) pci: String,
    pub(super) state: Badge,
    pub(super) complaints: Vec<Line>,
    pub(super) picture: Option<Picture>,
    /// Who uses what of it, where the node tells.
    pub(super) users: Option<Users>,
    pub(super) processes: Vec<Runs>,
    /// It is known that no process is on it, and no picture says so.
    pub(super) quiet: bool,
    pub(super) facts: Vec<Fact>,
    pub(super) ids: Vec<Fact>,
}

/// A complaint.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) tone: &'static str,
    pub(super) icon: &'static str,
    pub(super) text: String,
}

/// A process on the device.
#[derive(Debug)]
pub(super) struct Runs {
    pub(super) pid: String,
    pub(super) kind: &'static str,
    pub(super) place: String,
    pub(super) memory: String,
}

/// A name with its value.
#[derive(Debug)]
pub(super) struct Fact {
    pub(super) name: &'static str,
    pub(super) value: String,
}

impl Card {
    /// Of `device`, on a node whose NVML is in this state.
    pub(super) fn of(device: &Device, nvml: &NvmlState) -> Self {
        let working = device.condition == Condition::Working;
        Self {
            title: title(device),
            kind: device.identity.to_string(),
            product: device
                .product_name
                .as_deref()
                .map(printable)
                .unwrap_or_default(),
            pci: device.pci.to_string(),
            state: device_state(device.state(nvml), device.gravity(nvml)),
            complaints: lines(device.complaints()),
            picture: Picture::of(device)
                .or_else(|| partitions(device.amd.as_ref()?, device.memory)),
            users: None,
            processes: device.processes.iter().map(runs).collect(),
            quiet: working
                && device.mig.state().is_none()
                && matches!(device.usage(), Usage::Known([])),
            facts: facts(device, working)
                .into_iter()
                .chain(device.amd.iter().flat_map(amd_facts))
                .collect(),
            ids: ids(device),
        }
    }
}

impl Card {
    /// The same of a device of which this is told.
    pub(super) fn with_usage(mut self, usage: Option<&DeviceUsage>) -> Self {
        let Some(usage) = usage else {
            return self;
        };
        if let Some(picture) = &mut self.picture {
            mark(picture, usage);
        }
        self.users = Users::of(usage);
        self
    }

    /// Whether its picture names instances by their ids.
    pub(super) fn has_ids(&self) -> bool {
        let picture = self.picture.as_ref();
        picture.is_some_and(Picture::has_instances)
    }
}

/// `GPU 0`, and the address where there is no number.
fn title(device: &Device) -> String {
    let noun = match device.vendor {
        Vendor::Aws => "Device",
        Vendor::Nvidia | Vendor::Amd | Vendor::Other(_) => "GPU",
    };
    match device.index {
        Some(index) => format!("{noun} {index}"),
        None => format!("{noun} {}", device.pci),
    }
}

fn runs(process: &Process) -> Runs {
    let place = match (process.gpu_instance, process.compute_instance) {
        (Some(gpu), Some(compute)) => format!("gi {gpu}/{compute}"),
        (Some(gpu), None) => format!("gi {gpu}"),
        (None, _) => "whole".to_owned(),
    };
    Runs {
        pid: process.pid.to_string(),
        kind: match process.kind {
            ProcessKind::Compute => "compute",
            ProcessKind::Graphics => "graphics",
        },
        place,
        memory: process.memory.map_or_else(|| "not told".to_owned(), memory),
    }
}

fn facts(device: &Device, working: bool) -> Vec<Fact> {
    let untold = working && device.usage() == Usage::Unknown;
    let chip = device.architecture.as_ref().map(|chip| {
        let chip = printable(chip.as_str());
        match device.compute_capability {
            Some(capability) => format!("{chip}, compute {capability}"),
            None => chip,
        }
    });
    let ecc = device.health.ecc_enabled;
    let links = Some(device.links.len()).filter(|links| *links > 0);
    told([
        ("Memory", device.memory.map(memory)),
        ("NUMA node", device.numa_node.map(|node| node.to_string())),
        ("Chip", chip),
        (
            "ECC",
            ecc.map(|on| if on { "on" } else { "off" }.to_owned()),
        ),
        ("NVLinks", links.map(|links| links.to_string())),
        ("Processes", untold.then(|| "not told".to_owned())),
    ])
}

fn ids(device: &Device) -> Vec<Fact> {
    told([
        ("PCI", Some(device.pci.to_string())),
        ("UUID", device.uuid.as_ref().map(ToString::to_string)),
    ])
}

/// Those that are known.
pub(super) fn told(all: impl IntoIterator<Item = (&'static str, Option<String>)>) -> Vec<Fact> {
    let all = all.into_iter();
    all.filter_map(|(name, value)| value.map(|value| Fact { name, value }))
        .collect()
}
