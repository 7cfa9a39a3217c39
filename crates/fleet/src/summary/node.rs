//! Summary of one node for the fleet.

use octavo_model::inventory::{Neuron, NvmlState};
use octavo_model::quantity::Mebibytes;
use octavo_model::sharing_mode::Sharing;

use super::counts::{DeviceCounts, TypeCounts};
use super::device::{DeviceSummary, Occupancy, truncated};
use super::layout::LayoutSummary;
use super::node_state::NodeState;
use super::sharing::{SharingSummary, TimeSlicingExtent};
use super::usage_rank::UsageRank;

/// Summary of a node's devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSummary {
    /// Counts by type, ordered by name.
    pub types: Vec<TypeCounts>,
    /// Total memory of the devices whose memory is known.
    pub memory: Mebibytes,
    /// Sharing mode of its devices.
    pub sharing: Sharing,
    /// State of the node, while it reports.
    pub state: NodeState,
    /// Reason for the state, for users; it can contain driver messages.
    pub reason: Option<String>,
    /// State of NVML, with the version of NVIDIA's driver.
    pub nvml: NvmlState,
    /// Version of the Neuron driver, if it is loaded.
    pub neuron_driver: Option<String>,
    /// Layout status; `None` if no layout covers its devices.
    pub layout: Option<LayoutSummary>,
    /// Status of the allocation of devices to pods; `None` if not reported.
    pub sharing_status: Option<SharingSummary>,
    /// Problems of the Neuron driver that do not concern a single device.
    pub neuron_problems: Vec<String>,
}

impl NodeSummary {
    /// Summarizes a node with these devices.
    pub fn new(devices: &[DeviceSummary], nvml: &NvmlState, layout: Option<LayoutSummary>) -> Self {
        // The layout does not matter on a node without devices.
        let missed = layout.as_ref().filter(|_| !devices.is_empty());
        let (mut state, mut reason) = (state(devices, nvml), reason(devices, nvml));
        if missed.is_some_and(|layout| layout.is_changing) {
            state = state.max(NodeState::Applying);
        }
        if let Some(layout) = missed.filter(|layout| layout.needs_attention()) {
            state = state.max(NodeState::Attention);
            reason = reason.or_else(|| layout.message.clone());
        }
        let memory = devices.iter().filter_map(|device| device.memory);
        let memory = memory.fold(0_u64, |sum, memory| sum.saturating_add(memory.get()));
        Self {
            types: TypeCounts::from_devices(devices),
            memory: Mebibytes::new(memory),
            sharing: sharing(devices),
            state,
            reason,
            nvml: nvml.clone(),
            neuron_driver: None,
            layout,
            sharing_status: None,
            neuron_problems: Vec::new(),
        }
    }

    /// Adds the allocation status that the node reports.
    #[must_use]
    pub fn with_sharing(mut self, sharing: Option<SharingSummary>) -> Self {
        let missed = sharing.as_ref().filter(|_| !self.types.is_empty());
        if let Some(sharing) = missed.filter(|sharing| sharing.needs_attention()) {
            self.state = self.state.max(NodeState::Attention);
            self.reason = self.reason.or_else(|| Some(sharing.why()));
        }
        self.sharing = match (self.sharing, sharing.as_ref().map(|sharing| sharing.time_slicing)) {
            // There is no device that could be shared.
            (Sharing::None, _) => Sharing::None,
            (_, Some(TimeSlicingExtent::All)) => Sharing::TimeSlicing,
            (_, Some(TimeSlicingExtent::Some)) => Sharing::Mixed,
            (sharing, Some(TimeSlicingExtent::None) | None) => sharing,
        };
        self.sharing_status = sharing;
        self
    }

    /// Corrects the sharing mode: a device of which containers hold replicas is time-sliced, whatever else is reported.
    /// Call this after [`with_sharing`](Self::with_sharing).
    #[must_use]
    pub fn with_usage(mut self, usage: &UsageRank) -> Self {
        if usage.has_replicas() {
            self.sharing = match self.sharing {
                Sharing::None => Sharing::None,
                Sharing::Exclusive | Sharing::TimeSlicing => Sharing::TimeSlicing,
                Sharing::Mig | Sharing::Partitioned | Sharing::Mixed => Sharing::Mixed,
            };
        }
        self
    }

    /// Adds the version of the Neuron driver, and its problems that do not concern a single device.
    #[must_use]
    pub fn with_neuron(mut self, neuron: Option<&Neuron>) -> Self {
        self.neuron_driver = neuron.and_then(|neuron| neuron.driver_version.clone());
        let problems = neuron.into_iter().flat_map(|neuron| &neuron.problems);
        let problems = problems
            .map(|problem| truncated(&format!("Neuron: {}: {}", problem.source, problem.error)));
        self.neuron_problems = problems.take(MAX_NEURON_PROBLEMS).collect();
        if let Some(issue) = self.neuron_problems.first() {
            self.state = self.state.max(NodeState::Attention);
            self.reason = self.reason.or_else(|| Some(issue.clone()));
        }
        self
    }

    /// Counts of all devices.
    pub fn counts(&self) -> DeviceCounts {
        let types = self.types.iter().map(|one| one.counts);
        types.fold(DeviceCounts::default(), DeviceCounts::plus)
    }
}

/// Maximum number of problems of the Neuron driver that are stored.
const MAX_NEURON_PROBLEMS: usize = 16;

fn sharing(devices: &[DeviceSummary]) -> Sharing {
    let mut sharing = Sharing::None;
    for device in devices {
        // A hanging driver does not change the sharing mode; the node label stays as well.
        let is_there = !matches!(device.occupancy, Occupancy::Unavailable | Occupancy::Passthrough);
        let Some(one) = device.sharing.filter(|_| is_there) else {
            continue;
        };
        sharing = match sharing {
            Sharing::None => one,
            same if same == one => one,
            Sharing::Exclusive
            | Sharing::Mig
            | Sharing::Partitioned
            | Sharing::TimeSlicing
            | Sharing::Mixed => Sharing::Mixed,
        };
    }
    sharing
}

fn state(devices: &[DeviceSummary], nvml: &NvmlState) -> NodeState {
    let of_devices = devices.iter().map(|device| device.node_state);
    let of_devices = of_devices.max().unwrap_or(NodeState::Empty);
    let of_nvml = match nvml {
        NvmlState::Stalled { .. } => NodeState::NvmlStalled,
        NvmlState::Lost { .. } => NodeState::NvmlLost,
        NvmlState::Absent { .. } | NvmlState::Loading | NvmlState::Ready(_) => NodeState::Empty,
    };
    of_devices.max(of_nvml)
}

/// Problem of the driver, otherwise the first issue of the devices in the most severe state and the number of further
/// devices with issues.
fn reason(devices: &[DeviceSummary], nvml: &NvmlState) -> Option<String> {
    match nvml {
        NvmlState::Stalled { call, .. } => return Some(format!("{call} does not return")),
        NvmlState::Lost { reason } => return Some(reason.clone()),
        NvmlState::Absent { .. } | NvmlState::Loading | NvmlState::Ready(_) => {}
    }
    // Passthrough is not a problem. It is the reason only for the state of a node that has no other devices.
    let is_passthrough = devices.iter().all(|device| device.node_state == NodeState::Passthrough);
    let troubled: Vec<_> = devices
        .iter()
        .filter(|device| is_passthrough || device.node_state != NodeState::Passthrough)
        .filter_map(|device| Some((device.node_state, device.worst_issue.as_deref()?)))
        .collect();
    let most_severe = troubled.iter().map(|(weight, _)| *weight).max()?;
    let (_, first) = troubled.iter().find(|(weight, _)| *weight == most_severe)?;
    Some(match troubled.len().saturating_sub(1) {
        0 => (*first).to_owned(),
        more => format!("{first} (and {more} more)"),
    })
}
