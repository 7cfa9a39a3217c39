//! Problems of a node, most severe first, with what to do about each.

use octavo_model::inventory::{Device, Inventory};
use octavo_model::reason::{Reason, Severity};
use octavo_model::reported::Reported;
use octavo_model::sharing_status::SharingStatus;
use octavo_model::tone::Tone;
use octavo_planner::reconcile::{ApplyState, NodeLayoutStatus};

use super::badges::{TextPart, printable, text_parts, tone_class, tone_icon};
use super::device_card::title;
use super::sharing::unhealthy_units;

/// Problem as shown on the page of a node.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Problem {
    tone: Tone,
    /// Affected object.
    pub(super) what: String,
    /// Fragment of its place on the page.
    pub(super) href: String,
    pub(super) text: String,
    /// Remedy; empty if the problem has no reason that this version knows.
    pub(super) remedy: Vec<TextPart>,
}

impl Problem {
    /// CSS class of its color.
    pub(super) fn class(&self) -> &'static str {
        tone_class(self.tone)
    }

    /// Icon of its color.
    pub(super) fn icon(&self) -> &'static str {
        tone_icon(self.tone)
    }
}

/// Problems of devices, layout and allocation.
pub(super) fn problems(
    inventory: &Inventory,
    layout: Option<&NodeLayoutStatus>,
    sharing: Option<&SharingStatus>,
) -> Vec<Problem> {
    let devices = inventory.devices.iter();
    let devices = devices.filter(|device| !inventory.is_reported_by_neuron(device));
    let mut all: Vec<Problem> =
        devices.filter_map(|device| device_problem(device, inventory)).collect();
    all.extend(neuron_problems(inventory));
    all.extend(layout.into_iter().flat_map(layout_problems));
    all.extend(sharing.into_iter().flat_map(sharing_problems));
    all.sort_by_key(|problem| std::cmp::Reverse(problem.tone));
    all
}

fn device_problem(device: &Device, inventory: &Inventory) -> Option<Problem> {
    let state = device.state(&inventory.nvml);
    let tone = device.tone(&inventory.nvml);
    if tone < Tone::Warning {
        return None;
    }
    let issues = device.issues();
    let texts: Vec<String> = issues.iter().map(|issue| printable(&issue.text)).collect();
    Some(Problem {
        tone,
        what: title(device),
        href: format!("#device-{}", device.pci),
        text: if texts.is_empty() { state.as_str().to_owned() } else { texts.join("; ") },
        remedy: text_parts(state.remedy()),
    })
}

fn neuron_problems(inventory: &Inventory) -> impl Iterator<Item = Problem> {
    let chips = inventory.neuron.iter().flat_map(|neuron| &neuron.devices);
    chips.filter_map(|chip| {
        let tone = Tone::from(chip.state().severity()?);
        let texts: Vec<String> = chip.issues().iter().map(|issue| printable(&issue.text)).collect();
        (tone >= Tone::Warning).then(|| Problem {
            tone,
            what: format!("Neuron {}", chip.number),
            href: format!("#neuron-{}", chip.number),
            text: texts.join("; "),
            remedy: text_parts(chip.state().remedy()),
        })
    })
}

fn layout_problems(layout: &NodeLayoutStatus) -> impl Iterator<Item = Problem> {
    layout.devices.iter().filter_map(|device| {
        let tone = ApplyState::tone(&device.state);
        let text = format!("layout {}: {}", device.state.as_str(), device.message);
        (tone >= Tone::Warning).then(|| Problem {
            tone,
            what: printable(&device.name),
            href: format!("#stands-{}", device.pci),
            text: printable(text.trim_end_matches([':', ' '])),
            remedy: remedy(&device.state),
        })
    })
}

fn sharing_problems(report: &SharingStatus) -> impl Iterator<Item = Problem> {
    let problem = |tone, text, remedy| Problem {
        tone,
        what: "Allocation to pods".to_owned(),
        href: "#sharing-now".to_owned(),
        text,
        remedy,
    };
    let is_wrong = report.state.known().is_some_and(|state| state.kind() == Severity::Warning);
    let state = is_wrong.then(|| {
        let message = report.message.as_deref().unwrap_or_default();
        let text = format!("{}: {message}", report.state.as_str());
        problem(Tone::Bad, printable(text.trim_end_matches([':', ' '])), remedy(&report.state))
    });
    let units = report.resources.iter().flat_map(unhealthy_units);
    state.into_iter().chain(units.map(move |text| problem(Tone::Warning, text, Vec::new())))
}

fn remedy(reason: &Reported<Reason>) -> Vec<TextPart> {
    reason.known().map(|reason| text_parts(reason.remedy())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use octavo_model::inventory::{Condition, DeviceState};
    use octavo_planner::reconcile::DeviceLayoutStatus;

    use super::*;

    #[test]
    fn most_severe_problem_comes_first_with_its_remedy() {
        let mut failing = octavo_model::examples::gpu();
        failing.condition = Condition::Failing { reason: "GPU is lost\n".to_owned() };
        let inventory = Inventory { devices: vec![failing], ..Inventory::default() };
        let pci = inventory.devices[0].pci;
        let mut blocked = DeviceLayoutStatus::new(pci, "GPU 1".to_owned(), Reason::Blocked.into());
        blocked.message = "in use: pid 4711".to_owned();
        let silent = DeviceLayoutStatus::new(pci, "GPU 2".to_owned(), Reason::Blocked.into());
        let devices = vec![blocked, silent];
        let layout = NodeLayoutStatus { devices, ..NodeLayoutStatus::default() };
        let problems = problems(&inventory, Some(&layout), None);
        let shown: Vec<_> = problems.iter().map(|one| (&*one.text, one.class())).collect();
        assert_eq!(
            shown,
            [
                ("failing: GPU is lost ", "bad"),
                ("layout blocked: in use: pid 4711", "warn"),
                ("layout blocked", "warn"),
            ]
        );
        assert_eq!(problems[0].href, format!("#device-{pci}"));
        // The overview shows the same remedies.
        assert_eq!(problems[0].remedy, text_parts(DeviceState::Failing.remedy()));
        assert_eq!(problems[1].remedy, text_parts(Reason::Blocked.remedy()));
    }

    #[test]
    fn healthy_node_has_no_problem() {
        let inventory =
            Inventory { devices: vec![octavo_model::examples::gpu()], ..Inventory::default() };
        let devices = vec![DeviceLayoutStatus::new(
            inventory.devices[0].pci,
            "GPU 0".to_owned(),
            Reason::Applied.into(),
        )];
        let layout = NodeLayoutStatus { devices, ..NodeLayoutStatus::default() };
        let sharing =
            SharingStatus { state: Reason::SharingInForce.into(), ..SharingStatus::default() };
        assert_eq!(problems(&inventory, Some(&layout), Some(&sharing)), []);
    }
}
