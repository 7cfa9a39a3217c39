//! The last lines: a summary of the whole plan.

use octavo_model::inventory::Device;
use octavo_model::reason::Reason;
use octavo_planner::plan::messages::{self, disruption};
use octavo_planner::plan::{PlanOutcome, Verdict};

use super::PlanView;
use super::device_summary::DeviceGroup;
use crate::devices;
use crate::style::Style;
use crate::text::{lines, printable, wrap};

pub(super) fn summary(view: &PlanView<'_>, layout: &str, groups: &[DeviceGroup<'_>]) -> String {
    let outcome = view.plan.outcome();
    let head = match outcome {
        PlanOutcome::Unchanged => "nothing to do",
        PlanOutcome::Changes => "there are changes",
        PlanOutcome::Blocked => Reason::Blocked.as_str(),
        PlanOutcome::Infeasible => "impossible",
    };
    let head = format!("Layout {}: {head}", printable(layout));
    let mut said = vec![Style::Strong.paint(&head, view.colors)];
    let mut told: Vec<(String, Vec<&Device>)> = Vec::new();
    for group in groups {
        let text = line(group);
        match told.iter_mut().find(|(known, _)| *known == text) {
            Some((_, devices)) => devices.extend(&group.devices),
            None => told.push((text, group.devices.clone())),
        }
    }
    said.extend(told.iter().map(|(text, devices)| {
        let who = devices::range(devices);
        wrap(&format!("  {who}: {text}"), 4)
    }));
    let tally = view.plan.summary();
    if groups.len() > 1 && outcome == PlanOutcome::Changes {
        said.push(wrap(&format!("  in all: {}", messages::summary(&tally)), 4));
    }
    match outcome {
        PlanOutcome::Infeasible => said.push(wrap(
            "  The layout as a whole is refused, and nothing of it would be done, as long as one GPU cannot have it.",
            2,
        )),
        PlanOutcome::Unchanged | PlanOutcome::Changes | PlanOutcome::Blocked => {}
    }
    let untouched = untouched(view);
    if !untouched.is_empty() {
        let line = format!(
            "  {}: not in the layout, never touched",
            devices::range(&untouched)
        );
        said.push(wrap(&line, 4));
    }
    lines(said)
}

fn line(group: &DeviceGroup<'_>) -> String {
    let each = if group.devices.len() > 1 {
        " on each"
    } else {
        ""
    };
    match &group.plan.verdict {
        Verdict::Unchanged => "nothing to do".to_owned(),
        Verdict::Change(change) => {
            let tally = change.summary();
            let cost = disruption(tally.disruption);
            format!("{}{each}; {cost}", messages::summary(&tally))
        }
        Verdict::Blocked(blocked) => match blocked.causes.len() {
            1 => "blocked, see above".to_owned(),
            causes => format!("blocked by {causes} things, see above"),
        },
        Verdict::Infeasible(_) => "impossible, see above".to_owned(),
    }
}

/// Returns the devices that the layout does not mention.
fn untouched<'a>(view: &PlanView<'a>) -> Vec<&'a Device> {
    let planned = |device: &&Device| {
        let mut all = view.plan.devices.iter();
        !all.any(|plan| plan.pci == device.pci)
    };
    view.inventory.devices.iter().filter(planned).collect()
}
