//! Page of a node.

use std::time::Duration;

use askama::Template;
use octavo_files::config_files::LayoutFileSnapshot;
use octavo_fleet::summary::DeviceCounts;
use octavo_fleet::type_source::TypeSource;
use octavo_history::History;
use octavo_model::interconnect::{self, Interconnect, InterconnectKind};
use octavo_model::inventory::{Inventory, Neuron, NvmlState, Topology};
use octavo_model::slices::words::LEGEND;
use octavo_store::clock::{Clock, Moment};
use octavo_store::fleet::Node;
use octavo_toolkit::error::chain;

use super::badges::{Badge, count_noun, format_age, format_time, node_state, printable, type_name};
use super::bar::describe_counts;
use super::card_lines::{Fact, known_facts};
use super::device_card::DeviceCard;
use super::frame::Frame;
use super::health::{Problem, problems};
use super::history::HistorySection;
use super::layout::LayoutSection;
use super::plan::LayoutPreview;
use super::policies::NodePolicy;
use super::sharing::{SharingSection, device_usage};
use super::timeline::Timeline;
use super::topology::TopologySection;
use super::unknown_devices::UnknownDevices;
use super::vendor_devices::NeuronSection;

#[derive(Template)]
#[template(path = "node.html")]
pub(super) struct NodePage {
    frame: Frame,
    name: String,
    state: Badge,
    stale: bool,
    summary: String,
    notices: Vec<Notice>,
    /// Problems, most severe first; `None` if the state is not known.
    problems: Option<Vec<Problem>>,
    facts: Vec<Fact>,
    boot_id: String,
    policy: Option<NodePolicy>,
    timeline: Option<Timeline>,
    layout: Option<LayoutSection>,
    given: Option<SharingSection>,
    /// Usage that could not be read.
    missing: Vec<String>,
    devices: Vec<DeviceCard>,
    /// Neuron devices, if the driver is loaded.
    neuron: Option<NeuronSection>,
    history: Option<HistorySection>,
    topology: Option<TopologySection>,
    /// Explanation of the instance IDs in the diagrams, if there are any.
    legend: Option<&'static str>,
    /// Devices that are unknown or were named manually.
    unknown: Option<UnknownDevices>,
    what_if: LayoutPreview,
    labels: Vec<(String, String)>,
    origin: String,
}

/// Parameters of a page view.
#[derive(Debug)]
pub(super) struct PageParameters {
    pub(super) frame: Frame,
    /// Available layouts.
    pub(super) layouts: LayoutFileSnapshot,
    /// History of all devices.
    pub(super) history: History,
    /// Policy that changed the node.
    pub(super) policy: Option<NodePolicy>,
    /// Base URL of Prometheus.
    pub(super) prometheus: Option<String>,
    /// Layout to plan.
    pub(super) layout: Option<String>,
    /// Base URL by which the reader reached this server.
    pub(super) origin: String,
}

/// Warning about the data on the page.
#[derive(Debug)]
struct Notice {
    text: String,
    since: Option<String>,
}

/// Builds the page of `node`.
pub(super) fn page(node: &Node, clock: &Clock, reader: PageParameters) -> NodePage {
    let now = clock.now();
    let mut notices = freshness(node, clock, now);
    let status = node.has_agent().then(|| node.status());
    let status = match status.transpose() {
        Ok(status) => status,
        Err(error) => {
            let text = printable(&chain(&error));
            let text = format!("The report of the agent cannot be decoded completely: {text}");
            notices.push(Notice { text, since: None });
            None
        }
    };
    let inventory = status.as_ref().map(|status| &status.inventory);
    let usage = status.as_ref().and_then(|status| status.usage.as_ref());
    let layout = status.as_ref().and_then(|status| status.layout.as_ref());
    let sharing = status.as_ref().and_then(|status| status.sharing.as_ref());
    notices.extend(inventory.filter(|all| all.is_nvml_relevant()).and_then(|all| nvml(&all.nvml)));
    let devices = inventory.iter().flat_map(|all| {
        let devices = all.devices.iter();
        // Devices held by the Neuron driver are shown once, in their own section.
        let devices = devices.filter(|device| !all.is_reported_by_neuron(device));
        devices.map(|device| {
            let used = device_usage(usage, device.pci);
            DeviceCard::of(device, &all.nvml)
                .with_usage(device, used)
                .with_history(&reader.history, &node.name, device, used)
                .with_layout(layout)
        })
    });
    let devices: Vec<DeviceCard> = devices.collect();
    let labels = node.labels.iter();
    NodePage {
        frame: reader.frame,
        name: node.name.to_string(),
        state: node_state(node.state(now)),
        stale: node.freshness.is_stale(now),
        summary: summary(node, now),
        notices,
        // Nothing is known about a stale node.
        problems: inventory
            .filter(|_| !node.freshness.is_stale(now))
            .map(|inventory| problems(&node.problems(now), inventory)),
        facts: facts(node, inventory),
        boot_id: printable(&node.run.boot_id),
        policy: reader.policy,
        timeline: Timeline::new(node, clock, now),
        layout: layout.map(LayoutSection::of),
        given: sharing.map(SharingSection::of),
        missing: usage
            .into_iter()
            .flat_map(|usage| usage.missing.iter().map(|text| printable(text)))
            .collect(),
        legend: devices.iter().any(DeviceCard::has_ids).then_some(LEGEND),
        devices,
        neuron: inventory.and_then(NeuronSection::of),
        history: HistorySection::of_node(&reader.history, &node.name, reader.prometheus.as_deref()),
        topology: inventory.and_then(TopologySection::of),
        unknown: inventory.and_then(|all| UnknownDevices::new(&node.name, all)),
        what_if: status
            .as_ref()
            .map(|status| LayoutPreview::of(&reader.layouts, status, reader.layout.as_deref()))
            .unwrap_or_default(),
        labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        origin: reader.origin,
    }
}

/// `8 devices: 2 in use, 6 free`.
fn summary(node: &Node, now: Moment) -> String {
    let types = node.types(now).map(|one| one.counts);
    let counts = types.fold(DeviceCounts::default(), DeviceCounts::plus);
    match usize::try_from(counts.total).unwrap_or(usize::MAX) {
        0 => "no accelerator".to_owned(),
        total => {
            let total = count_noun(total, "device", "devices");
            format!("{total}: {}", describe_counts(counts))
        }
    }
}

fn freshness(node: &Node, clock: &Clock, now: Moment) -> Vec<Notice> {
    let mut notices = Vec::new();
    if !node.has_agent() {
        notices.push(Notice { text: without_agent(node), since: None });
    } else if node.freshness.is_stale(now) {
        let bound = format_age(node.freshness.bound().max(Duration::from_secs(1)));
        notices.push(Notice {
            text: format!(
                "Stale: no report from the agent for more than {bound}. Check that the node is up and its agent is running; \
                 the agent's log shows why it does not report. The data below is from the last report, at"
            ),
            since: Some(format_time(clock.wall(node.freshness.confirmed()))),
        });
    } else if !node.connected {
        notices.push(Notice {
            text: "The agent is not connected. It may be restarting.".to_owned(),
            since: None,
        });
    }
    notices
}

/// Describes a node without an agent, with remedies.
fn without_agent(node: &Node) -> String {
    let types = node.summary.types.iter().map(|one| {
        let name = type_name(one.type_name.as_ref());
        match one.counts.total {
            0 => format!("{name} (count not reported)"),
            count => format!("{count} x {name}"),
        }
    });
    let types: Vec<String> = types.collect();
    let by = match node.source {
        TypeSource::Label(key) => format!("according to the label {key}"),
        TypeSource::Agent | TypeSource::Unknown => {
            "according to its capacity; no label names the type".to_owned()
        }
    };
    format!(
        "No agent reports this node. It has {} {by}. To see devices, state and usage, run octavo-agent on it: check that the \
         node selector and tolerations of the DaemonSet match this node, and that its pod is running. Until then, a hardware \
         profile can select the node by its label.",
        types.join(", ")
    )
}

fn nvml(state: &NvmlState) -> Option<Notice> {
    let text = match state {
        NvmlState::Ready(_) => return None,
        NvmlState::Absent { reason } => format!(
            "NVML: absent: {}. Install the driver. If it is installed in another location, set --driver-root of the agent.",
            printable(reason)
        ),
        NvmlState::Loading => "NVML: loading: found but not yet initialized".to_owned(),
        NvmlState::Lost { reason } => format!(
            "NVML: lost: {}. The data below is from the PCI bus. If the driver is being upgraded, the agent \
             reconnects to it automatically.",
            printable(reason)
        ),
        NvmlState::Stalled { call, .. } => format!(
            "NVML: stalled: {} does not return. The data below was read earlier. Check the node for \
             processes in state D and its kernel log; often only a reboot helps.",
            printable(call)
        ),
    };
    Some(Notice { text, since: None })
}

/// For Neuron devices, the topology says more than the number of directly connected devices.
fn links(found: &Interconnect, topology: Option<Topology>) -> String {
    match (found.kind, topology, found.domain_size) {
        (InterconnectKind::NeuronLink, Some(topology), _) => format!("{}, {topology}", found.kind),
        (_, _, 0 | 1) => found.kind.to_string(),
        (_, _, size) => format!("{}, {size} devices", found.kind),
    }
}

fn facts(node: &Node, inventory: Option<&Inventory>) -> Vec<Fact> {
    let driver = inventory.and_then(|all| all.nvml.driver());
    let neuron = inventory.and_then(|all| all.neuron.as_ref());
    let topology = neuron.and_then(Neuron::topology);
    let neuron = neuron.and_then(|neuron| neuron.driver_version.as_deref());
    let mut amd = inventory.iter().flat_map(|all| &all.devices);
    // All AMD devices share the kernel module; the in-tree module has no version.
    let amd = amd.find_map(|device| device.amd.as_ref()?.driver_version.as_deref());
    let machine = inventory.map(|all| &all.machine);
    let product = machine.and_then(|machine| machine.product_name.as_deref());
    let vgpu = machine.and_then(|machine| machine.vgpu.as_ref());
    let bus = machine.and_then(|machine| machine.bus_error.as_deref());
    let found = inventory.and_then(interconnect::of_node);
    known_facts([
        ("Machine", product.map(printable)),
        ("PCI bus", bus.map(|error| format!("cannot be read: {}", printable(error)))),
        ("Driver", driver.map(|driver| printable(driver.version.as_str()))),
        ("CUDA", driver.and_then(|driver| driver.cuda.map(|cuda| cuda.to_string()))),
        ("Neuron driver", neuron.map(printable)),
        ("AMD driver", amd.map(printable)),
        ("Host driver", vgpu.map(|host| printable(&host.driver_version))),
        ("Interconnect", found.map(|found| links(&found, topology))),
        ("Sharing", Some(node.summary.sharing.to_string())),
        (
            "Agent",
            Some(if node.has_agent() { printable(&node.agent_version) } else { "none".to_owned() }),
        ),
        ("Type source", (!node.has_agent()).then(|| node.source.as_str().to_owned())),
    ])
}
