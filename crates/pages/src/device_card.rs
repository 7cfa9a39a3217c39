//! Attributes of a device, line by line.

use octavo_history::History;
use octavo_model::id::NodeName;
use octavo_model::inventory::{
    Condition, Device, DeviceProcesses, NvmlState, Process, ProcessKind, Vendor,
};
use octavo_model::reason::Reason;
use octavo_node::sharing::usage::DeviceUsage;
use octavo_planner::reconcile::NodeLayoutStatus;

use super::badges::{Badge, device_state, format_memory, printable};
use super::card_lines::{Fact, IssueLine, issue_lines, known_facts};
use super::chart::{NO_VALUE, metric_name};
use super::history::{Trends, device_trends};
use super::layout::StateBadge;
use super::live_values::{LiveValue, live_values};
use super::sharing::{UsageTable, mark_usage};
use super::slice_diagram::SliceDiagram;
use super::slots::slot_diagrams;
use super::vendor_devices::{amd_facts, partition_diagram};

/// Device as shown on a page.
#[derive(Debug)]
pub(super) struct DeviceCard {
    pub(super) title: String,
    pub(super) kind: String,
    pub(super) product: String,
    pub(super) pci: String,
    pub(super) state: Badge,
    /// State of its layout, unless it is applied: a healthy device can fail to get its layout.
    pub(super) layout: Option<StateBadge>,
    pub(super) complaints: Vec<IssueLine>,
    pub(super) picture: Option<SliceDiagram>,
    /// Replicas of time-sliced units.
    pub(super) slots: Vec<SliceDiagram>,
    /// Current values, if the device works.
    pub(super) values: Vec<LiveValue>,
    /// Usage by pod, if the node reports it.
    pub(super) users: Option<UsageTable>,
    /// Charts of the device and its partitions.
    pub(super) trends: Vec<Trends>,
    pub(super) processes: Vec<ProcessRow>,
    /// Whether the device is known to be idle and has no diagram that shows it.
    pub(super) quiet: bool,
    pub(super) facts: Vec<Fact>,
    pub(super) ids: Vec<Fact>,
}

/// Process on the device.
#[derive(Debug)]
pub(super) struct ProcessRow {
    pub(super) pid: String,
    pub(super) kind: &'static str,
    pub(super) place: String,
    pub(super) memory: String,
}

impl DeviceCard {
    /// Converts `device` on a node with this state of NVML.
    pub(super) fn of(device: &Device, nvml: &NvmlState) -> Self {
        let working = device.condition == Condition::Working;
        Self {
            title: title(device),
            kind: device.identity.to_string(),
            product: product(device),
            pci: device.pci.to_string(),
            layout: None,
            state: device_state(device.state(nvml).as_str(), device.tone(nvml)),
            complaints: issue_lines(device.issues()),
            picture: SliceDiagram::of(device)
                .or_else(|| partition_diagram(device.amd.as_ref()?, device.memory)),
            slots: Vec::new(),
            values: live_values(device, None),
            users: None,
            trends: Vec::new(),
            processes: device.processes.iter().map(process_row).collect(),
            quiet: working
                && device.mig.state().is_none()
                && matches!(device.usage(), DeviceProcesses::Known([])),
            facts: facts(device, working)
                .into_iter()
                .chain(device.amd.iter().flat_map(amd_facts))
                .collect(),
            ids: ids(device),
        }
    }
}

impl DeviceCard {
    /// Adds the usage of `device` by pod.
    pub(super) fn with_usage(mut self, device: &Device, usage: Option<&DeviceUsage>) -> Self {
        let Some(usage) = usage else {
            return self;
        };
        if let Some(picture) = &mut self.picture {
            mark_usage(picture, usage);
        }
        self.slots = slot_diagrams(usage);
        self.values = live_values(device, Some(usage));
        self.users = UsageTable::of(usage);
        self
    }

    /// Adds the history of `device`. Without current usage, such as after the driver is lost, its partitions are unknown.
    pub(super) fn with_history(
        mut self,
        history: &History,
        node: &NodeName,
        device: &Device,
        usage: Option<&DeviceUsage>,
    ) -> Self {
        let units = usage.map_or(&[][..], |usage| usage.units.as_slice());
        self.trends = device_trends(history, node, device.pci, units, &self.title);
        let own = self.trends.iter().filter(|trends| trends.of.is_empty());
        let current = own.flat_map(|trends| &trends.charts);
        let current = current.filter(|chart| chart.value != NO_VALUE);
        let current: Vec<&str> = current.map(|chart| chart.name).collect();
        // A chart shows the current value too.
        self.values.retain(|value| !current.contains(&metric_name(value.metric)));
        self
    }

    /// Adds the state of the device in the node's layout status.
    pub(super) fn with_layout(mut self, layout: Option<&NodeLayoutStatus>) -> Self {
        let mut devices = layout.iter().flat_map(|layout| &layout.devices);
        let device = devices.find(|device| device.pci.to_string() == self.pci);
        let device = device.filter(|device| device.state != Reason::Applied);
        self.layout = device.map(|device| StateBadge::of(&device.state));
        self
    }

    /// Returns whether the diagram shows instance IDs.
    pub(super) fn has_ids(&self) -> bool {
        let picture = self.picture.as_ref();
        picture.is_some_and(SliceDiagram::has_instances)
    }
}

/// Product name from the driver, and whether the type was set manually.
fn product(device: &Device) -> String {
    let name = device.product_name.as_deref().map(printable);
    let by_hand = device.identity.is_manual();
    let hand = by_hand.then(|| "type set manually".to_owned());
    let words: Vec<String> = name.into_iter().chain(hand).collect();
    words.join(", ")
}

/// `GPU 0`, or the PCI address if there is no index.
pub(super) fn title(device: &Device) -> String {
    let noun = match device.vendor {
        Vendor::Aws => "Device",
        Vendor::Nvidia | Vendor::Amd | Vendor::Other(_) => "GPU",
    };
    match device.index {
        Some(index) => format!("{noun} {index}"),
        None => format!("{noun} {}", device.pci),
    }
}

fn process_row(process: &Process) -> ProcessRow {
    let place = match (process.gpu_instance, process.compute_instance) {
        (Some(gpu), Some(compute)) => format!("gi {gpu}/{compute}"),
        (Some(gpu), None) => format!("gi {gpu}"),
        (None, _) => "whole device".to_owned(),
    };
    ProcessRow {
        pid: process.pid.to_string(),
        kind: match process.kind {
            ProcessKind::Compute => "compute",
            ProcessKind::Graphics => "graphics",
        },
        place,
        memory: process.memory.map_or_else(|| "not reported".to_owned(), format_memory),
    }
}

fn facts(device: &Device, working: bool) -> Vec<Fact> {
    let is_unreported = working && device.usage() == DeviceProcesses::Unknown;
    let chip = device.architecture.as_ref().map(|chip| {
        let chip = printable(chip.as_str());
        match device.compute_capability {
            Some(capability) => format!("{chip}, compute capability {capability}"),
            None => chip,
        }
    });
    let ecc = device.health.ecc_enabled;
    let links = Some(device.links.len()).filter(|links| *links > 0);
    known_facts([
        ("Memory", device.memory.map(format_memory)),
        ("NUMA node", device.numa_node.map(|node| node.to_string())),
        ("Architecture", chip),
        ("ECC", ecc.map(|on| if on { "on" } else { "off" }.to_owned())),
        ("NVLinks", links.map(|links| links.to_string())),
        ("Processes", is_unreported.then(|| "not reported".to_owned())),
    ])
}

fn ids(device: &Device) -> Vec<Fact> {
    // PCI IDs let a user look up a device that the catalog lacks.
    let unknown = device.identity_note().map(|_| device.pci_ids.to_string());
    known_facts([
        ("PCI", Some(device.pci.to_string())),
        ("PCI ID", unknown),
        ("UUID", device.uuid.as_ref().map(ToString::to_string)),
    ])
}

#[cfg(test)]
mod tests {
    use octavo_model::id::PciAddress;
    use octavo_model::inventory::{Identity, PciIds};
    use octavo_planner::reconcile::DeviceLayoutStatus;

    use super::*;

    #[test]
    fn card_of_a_healthy_device_shows_that_its_layout_failed() {
        let device = octavo_model::examples::gpu();
        for (state, shown) in [(Reason::Failed, Some("failed")), (Reason::Applied, None)] {
            let status = DeviceLayoutStatus::new(device.pci, "GPU 0".to_owned(), state.into());
            let layout = NodeLayoutStatus { devices: vec![status], ..NodeLayoutStatus::default() };
            let card = DeviceCard::of(&device, &NvmlState::Loading).with_layout(Some(&layout));
            let badge = card.layout.as_ref().map(|badge| badge.word.as_str());
            assert_eq!((card.state.word, badge), ("ok", shown));
        }
    }

    #[test]
    fn passthrough_card_is_neutral() {
        let ids = PciIds {
            vendor: 0x10de,
            device: 0x2330,
            subsystem_vendor: 0,
            subsystem_device: 0,
            class: None,
        };
        let mut device = Device::new(PciAddress::new(0, 1, 0, 0).unwrap(), ids);
        device.condition = Condition::PciOnly { kernel_driver: Some("vfio-pci".to_owned()) };
        let state = DeviceCard::of(&device, &NvmlState::Loading).state;
        assert_eq!((state.word, state.tone), ("passthrough", "soft"));
    }

    #[test]
    fn manual_type_is_marked_and_unknown_device_shows_its_pci_id() {
        let ids = PciIds {
            vendor: 0x1e52,
            device: 0xfff7,
            subsystem_vendor: 0,
            subsystem_device: 0,
            class: None,
        };
        let mut device = Device::new(PciAddress::new(0, 1, 0, 0).unwrap(), ids);
        let card = DeviceCard::of(&device, &NvmlState::Loading);
        assert_eq!((&*card.kind, &*card.product), ("GPU - type unknown", ""));
        let id = |card: &DeviceCard| {
            card.ids.iter().find(|id| id.name == "PCI ID").map(|id| id.value.clone())
        };
        assert_eq!(id(&card).as_deref(), Some("1e52:fff7"));
        device.identity = Identity::Manual { type_name: "acme-x1".parse().unwrap(), sku: None };
        device.condition = Condition::PciOnly { kernel_driver: Some("vfio-pci".to_owned()) };
        let card = DeviceCard::of(&device, &NvmlState::Loading);
        assert_eq!((&*card.kind, &*card.product), ("acme-x1", "type set manually"));
        assert_eq!(id(&card).as_deref(), Some("1e52:fff7"));
        let complaints: Vec<&str> = card.complaints.iter().map(|line| &*line.text).collect();
        assert_eq!(
            complaints,
            ["reserved for a virtual machine: bound to the kernel driver vfio-pci"]
        );
    }
}
