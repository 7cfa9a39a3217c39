//! The last lines: a summary of the whole plan.

use octavo_model::inventory::Device;
use octavo_model::reason::Reason;
use octavo_planner::plan::messages::{self, disruption};
use octavo_planner::plan::{DevicePlanResult, PlanOutcome};

use super::PlanView;
use super::device_summary::DeviceGroup;
use crate::devices;
use crate::style::Style;
use crate::text::{group_by_key, lines, printable, wrap};

pub(super) fn summary(view: &PlanView<'_>, layout: &str, groups: &[DeviceGroup<'_>]) -> String {
    let outcome = view.plan.outcome();
    let head = match outcome {
        PlanOutcome::Unchanged => "no changes",
        PlanOutcome::Changes => "changes",
        PlanOutcome::Blocked => Reason::Blocked.as_str(),
        PlanOutcome::Infeasible => "impossible",
    };
    let head = format!("Layout {}: {head}", printable(layout));
    let mut all_lines = vec![Style::Strong.paint(&head, view.colors)];
    let groups_by_line = group_by_key(groups.iter().map(|group| (line(group), &group.devices)));
    all_lines.extend(groups_by_line.into_iter().map(|(text, groups)| {
        let devices: Vec<&Device> = groups.into_iter().flatten().copied().collect();
        let who = devices::range(&devices);
        wrap(&format!("  {who}: {text}"), 4)
    }));
    let tally = view.plan.summary();
    if groups.len() > 1 && outcome == PlanOutcome::Changes {
        all_lines.push(wrap(&format!("  total: {}", messages::summary(&tally)), 4));
    }
    match outcome {
        PlanOutcome::Infeasible => all_lines.push(wrap(
            "  The layout is rejected as a whole, and no GPU would be changed, because at least \
             one GPU does not support it.",
            2,
        )),
        PlanOutcome::Unchanged | PlanOutcome::Changes | PlanOutcome::Blocked => {}
    }
    let untouched = untouched(view);
    if !untouched.is_empty() {
        let line = format!("  {}: not in the layout, never changed", devices::range(&untouched));
        all_lines.push(wrap(&line, 4));
    }
    lines(all_lines)
}

fn line(group: &DeviceGroup<'_>) -> String {
    let each = if group.devices.len() > 1 { " on each" } else { "" };
    match &group.plan.verdict {
        DevicePlanResult::Unchanged => "no changes".to_owned(),
        DevicePlanResult::Change(change) => {
            let tally = change.summary();
            let cost = disruption(tally.disruption);
            format!("{}{each}; {cost}", messages::summary(&tally))
        }
        DevicePlanResult::Blocked(blocked) => match blocked.causes.len() {
            1 => "blocked, see above".to_owned(),
            causes => format!("blocked for {causes} reasons, see above"),
        },
        DevicePlanResult::Infeasible(_) => "impossible, see above".to_owned(),
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
