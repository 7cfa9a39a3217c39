//! Problems of a node, one by one: what lists summarize in the state and the reason of the node.

use octavo_model::inventory::DeviceState;
use octavo_model::reason::Reason;
use octavo_model::text::count_noun;
use octavo_model::tone::Tone;

use super::device::{DeviceSummary, HealthState};
use super::node::NodeSummary;
use super::node_state::NodeState;
use super::problem::{NodeProblem, ProblemArea};

impl NodeSummary {
    /// Problems of the node with these devices, while it reports; empty unless its state needs attention. `devices` are
    /// those that it was summarized from.
    pub fn problems(&self, devices: &[DeviceSummary]) -> Vec<NodeProblem> {
        if !self.state.needs_attention() {
            return Vec::new();
        }
        let mut all: Vec<NodeProblem> = self.driver_problem(devices).into_iter().collect();
        all.extend(without_driver(devices));
        let faulty = devices.iter().filter(|device| {
            device.health.tone >= Tone::Warning && !is_driver_problem(device.health.state)
        });
        all.extend(faulty.map(NodeProblem::of_device));
        if !devices.is_empty() {
            let layout = self.layout.iter().flat_map(|layout| &layout.problems);
            all.extend(layout.map(NodeProblem::of_layout));
            let sharing = self.sharing_status.iter().filter(|sharing| sharing.needs_attention());
            all.extend(sharing.filter_map(|sharing| {
                let message = sharing.message.clone().unwrap_or_default();
                Some(NodeProblem::of_allocation(sharing.state.known()?, message))
            }));
        }
        let partial = DeviceState::Partial;
        all.extend(self.neuron_problems.iter().map(|message| NodeProblem {
            area: ProblemArea::Devices,
            tone: Tone::Warning,
            reason: partial.as_str(),
            device: None,
            place: None,
            message: message.clone(),
            remedy: partial.remedy(),
        }));
        if all.is_empty() {
            // Nothing explains the state, which must not hide it.
            all.push(NodeProblem {
                area: ProblemArea::Devices,
                tone: self.state.tone(),
                reason: self.state.as_str(),
                device: None,
                place: None,
                message: self.reason.clone().unwrap_or_default(),
                remedy: "Open the page of the node: it shows each device.",
            });
        }
        all
    }

    /// Problem of a driver that was unloaded or does not answer.
    fn driver_problem(&self, devices: &[DeviceSummary]) -> Option<NodeProblem> {
        let reason = match self.state {
            NodeState::NvmlLost => Reason::NvmlLost,
            NodeState::NvmlStalled => Reason::NvmlStalled,
            NodeState::Empty
            | NodeState::Passthrough
            | NodeState::Ok
            | NodeState::Applying
            | NodeState::NoAgent
            | NodeState::Attention
            | NodeState::Degraded
            | NodeState::NoDriver
            | NodeState::Stale => return None,
        };
        let stale = HealthState::Device(DeviceState::Stale);
        let outdated = devices.iter().filter(|device| device.health.state == stale).count();
        let message = self.reason.clone().unwrap_or_default();
        Some(NodeProblem {
            device: count_devices(outdated),
            ..NodeProblem::of_node(self.state.tone(), reason, message)
        })
    }
}

/// Returns whether the state concerns the driver of the node rather than the device.
fn is_driver_problem(state: HealthState) -> bool {
    matches!(state, HealthState::Device(DeviceState::Stale | DeviceState::NoDriver))
}

/// Problem of the devices that have no driver, which they usually all miss for the same reason.
fn without_driver(devices: &[DeviceSummary]) -> Option<NodeProblem> {
    let state = HealthState::Device(DeviceState::NoDriver);
    let mut all = devices.iter().filter(|device| device.health.state == state);
    let first = NodeProblem::of_device(all.next()?);
    let more = all.count();
    Some(NodeProblem {
        device: if more == 0 { first.device } else { count_devices(more.saturating_add(1)) },
        place: first.place.filter(|_| more == 0),
        ..first
    })
}

fn count_devices(count: usize) -> Option<String> {
    (count > 0).then(|| count_noun(count, "device", "devices"))
}
