//! Problems of a node as on the overview, most severe first, with links to their places on the page.

use std::cmp::Reverse;

use octavo_fleet::summary::{DevicePlace, NodeProblem, ProblemArea};
use octavo_model::inventory::Inventory;
use octavo_model::tone::Tone;

use super::badges::{TextPart, printable, text_parts, tone_class, tone_icon};

/// Problem as shown on the page of a node.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Problem {
    tone: Tone,
    /// Affected object.
    pub(super) what: String,
    /// Fragment of its place on the page; `None` for the whole node.
    pub(super) href: Option<String>,
    /// Reason and explanation.
    pub(super) text: Vec<TextPart>,
    pub(super) remedy: Vec<TextPart>,
}

impl Problem {
    fn new(problem: &NodeProblem, inventory: &Inventory) -> Self {
        let NodeProblem { area, tone, reason, device, place, message, remedy } = problem;
        let text = match message.as_str() {
            "" => (*reason).to_owned(),
            // The message about a device can begin with its state.
            message if begins_with_state(message, reason) => printable(message),
            message => printable(&format!("{reason}: {message}")),
        };
        let of_node = match area {
            ProblemArea::Devices => "Node",
            ProblemArea::Layout => "Layout",
            ProblemArea::Allocation => "Allocation to pods",
        };
        Self {
            tone: *tone,
            what: device.as_deref().map_or_else(|| of_node.to_owned(), printable),
            href: href(*area, device.as_deref(), *place, inventory),
            text: text_parts(&text),
            remedy: text_parts(remedy),
        }
    }

    /// CSS class of its color.
    pub(super) fn class(&self) -> &'static str {
        tone_class(self.tone)
    }

    /// Icon of its color.
    pub(super) fn icon(&self) -> &'static str {
        tone_icon(self.tone)
    }
}

/// Problems of a node with this inventory, as on its page.
pub(super) fn problems(all: &[NodeProblem], inventory: &Inventory) -> Vec<Problem> {
    let mut shown: Vec<Problem> = all.iter().map(|one| Problem::new(one, inventory)).collect();
    shown.sort_by_key(|problem| Reverse(problem.tone));
    shown
}

/// Returns whether the message is the state, or the state followed by its explanation.
fn begins_with_state(message: &str, state: &str) -> bool {
    let rest = message.strip_prefix(state);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
}

/// Fragment of the place of a problem on the page.
fn href(
    area: ProblemArea,
    device: Option<&str>,
    place: Option<DevicePlace>,
    inventory: &Inventory,
) -> Option<String> {
    // The page shows the devices of the Neuron driver by number, because it does not know their PCI addresses.
    let chip = device.and_then(|name| name.strip_prefix("Neuron ")?.parse::<u32>().ok());
    if let (ProblemArea::Devices, Some(chip)) = (area, chip) {
        return Some(format!("#neuron-{chip}"));
    }
    let pci = match place {
        Some(DevicePlace::Pci(pci)) if inventory.devices.iter().any(|one| one.pci == pci) => {
            Some(pci)
        }
        Some(DevicePlace::Pci(_) | DevicePlace::Neuron(_)) | None => None,
    };
    match (area, pci) {
        (ProblemArea::Layout, Some(pci)) => Some(format!("#stands-{pci}")),
        (ProblemArea::Layout, None) => Some("#layout-now".to_owned()),
        (ProblemArea::Allocation, _) => Some("#sharing-now".to_owned()),
        (ProblemArea::Devices, Some(pci)) => Some(format!("#device-{pci}")),
        (ProblemArea::Devices, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use octavo_fleet::summary::{DeviceSummary, LayoutSummary, NodeSummary};
    use octavo_model::id::PciAddress;
    use octavo_model::inventory::{Condition, DeviceState};
    use octavo_model::reason::Reason;
    use octavo_planner::reconcile::{DeviceLayoutStatus, NodeLayoutStatus};

    use super::*;
    use crate::device_card::title;

    #[test]
    fn most_severe_problem_comes_first_with_its_place_and_remedy() {
        let mut failing = octavo_model::examples::gpu();
        failing.condition = Condition::Failing { reason: "GPU is lost\n".to_owned() };
        let inventory = Inventory { devices: vec![failing], ..Inventory::default() };
        let pci = inventory.devices[0].pci;
        let name = title(&inventory.devices[0]);
        let mut blocked = DeviceLayoutStatus::new(pci, name.clone(), Reason::Blocked.into());
        blocked.message = "in use: `pid 4711`".to_owned();
        let other = PciAddress::new(0, 0x99, 0, 0).unwrap();
        let silent = DeviceLayoutStatus::new(other, "GPU 99".to_owned(), Reason::Blocked.into());
        let layout = NodeLayoutStatus {
            state: Some(Reason::Blocked.into()),
            devices: vec![silent, blocked],
            ..NodeLayoutStatus::default()
        };
        let devices = DeviceSummary::all(&inventory);
        let layout = LayoutSummary::of(&layout);
        let summary = NodeSummary::new(&devices, &inventory.nvml, Some(layout));
        let problems = problems(&summary.problems(&devices), &inventory);
        let shown: Vec<(String, &str, &str, &str)> = problems
            .iter()
            .map(|one| {
                let text: String = one.text.iter().map(|part| part.text.as_str()).collect();
                (text, one.class(), one.what.as_str(), one.href.as_deref().unwrap())
            })
            .collect();
        let text = |text: &str| text.to_owned();
        assert_eq!(
            shown,
            [
                (
                    text("failing: GPU is lost "),
                    "bad",
                    &*pci.to_string(),
                    &*format!("#device-{pci}"),
                ),
                (text("blocked"), "warn", "GPU 99", "#layout-now"),
                (text("blocked: in use: pid 4711"), "warn", &*name, &*format!("#stands-{pci}")),
            ]
        );
        assert_eq!(problems[0].remedy, text_parts(DeviceState::Failing.remedy()));
        assert_eq!(problems[1].remedy, text_parts(Reason::Blocked.remedy()));
    }

    #[test]
    fn places_of_other_problems_are_sections_of_the_page() {
        let inventory = Inventory::default();
        let of = |area, device| href(area, device, None, &inventory);
        assert_eq!(of(ProblemArea::Devices, Some("Neuron 3")).unwrap(), "#neuron-3");
        assert_eq!(of(ProblemArea::Devices, Some("2 devices")), None);
        assert_eq!(of(ProblemArea::Layout, None).unwrap(), "#layout-now");
        assert_eq!(of(ProblemArea::Allocation, None).unwrap(), "#sharing-now");
    }

    #[test]
    fn devices_with_the_same_name_have_different_places() {
        let first = octavo_model::examples::gpu();
        let mut second = first.clone();
        second.pci = PciAddress::new(0, 8, 0, 0).unwrap();
        let place = |pci| Some(DevicePlace::Pci(pci));
        let (a, b) = (first.pci, second.pci);
        let inventory = Inventory { devices: vec![first, second], ..Inventory::default() };
        let of = |pci| href(ProblemArea::Devices, Some("GPU 0"), place(pci), &inventory);
        assert_eq!((of(a), of(b)), (Some(format!("#device-{a}")), Some(format!("#device-{b}"))));
        let missing = PciAddress::new(0, 9, 0, 0).unwrap();
        assert_eq!(of(missing), None);
        let layout = href(ProblemArea::Layout, Some("GPU 0"), place(b), &inventory);
        assert_eq!(layout.unwrap(), format!("#stands-{b}"));
    }

    #[test]
    fn state_of_a_message_is_a_whole_word() {
        assert!(begins_with_state("failing: GPU is lost", "failing"));
        assert!(begins_with_state("stale", "stale"));
        assert!(!begins_with_state("applying", "apply"));
        assert!(!begins_with_state("stale data", "stale"));
    }
}
