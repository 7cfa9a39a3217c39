//! Description of GPUs: picture, steps or the reason against them, and cost. GPUs with the same description are
//! grouped.

use std::collections::BTreeSet;

use octavo_model::holder::{Holder, without_repeated_pods};
use octavo_model::id::PciAddress;
use octavo_model::inventory::Device;
use octavo_model::reason::Reason;
use octavo_model::slices::words as say;
use octavo_planner::layout::{DeviceTarget, MigTarget};
use octavo_planner::plan::messages::{self, PlanFormatter, disruption, holder, remedy};
use octavo_planner::plan::{
    Blocked, Cause, DeviceChange, DevicePlan, DevicePlanResult, Disruption, Infeasible, ResetScope,
};

use super::PlanView;
use super::picture::{LEGEND, picture, result};
use super::steps::steps;
use crate::devices;
use crate::settings::Colors;
use crate::style::Style;
use crate::text::{group_by_key, lines, printable, wrap};

/// Prefix of an instance's IDs in every picture.
const INSTANCE_ID: &str = "gi ";

/// GPUs with the same description.
#[derive(Debug)]
pub(super) struct DeviceGroup<'a> {
    pub(super) devices: Vec<&'a Device>,
    pub(super) plan: &'a DevicePlan,
    /// The description, with the names of all devices.
    pub(super) text: String,
}

/// Groups all devices of the plan; the order is that of each group's first device.
pub(super) fn groups<'a>(view: &PlanView<'a>) -> Vec<DeviceGroup<'a>> {
    let summaries = view.plan.devices.iter().filter_map(|plan| {
        let device = devices::find(view.inventory, plan.pci)?;
        Some((summarize(view, device, plan), (device, plan)))
    });
    let groups = group_by_key(summaries).into_iter().filter_map(|(text, members)| {
        let (_, plan) = *members.first()?;
        let devices: Vec<&Device> = members.into_iter().map(|(device, _)| device).collect();
        let who = Style::Strong.paint(&devices::range(&devices), view.colors);
        let coupled = coupled(view, &devices);
        Some(DeviceGroup { text: format!("{who}  {text}{coupled}"), devices, plan })
    });
    let mut groups: Vec<DeviceGroup<'_>> = groups.collect();
    let signed = groups.iter().any(|group| has_signs(&group.plan.verdict));
    let named = groups.iter().any(|group| group.text.contains(INSTANCE_ID));
    let legend = [(signed, LEGEND), (named, say::LEGEND)];
    let legend = legend.into_iter().filter(|(is_needed, _)| *is_needed);
    let legend = lines(legend.map(|(_, line)| Style::Faint.paint(line, view.colors)));
    if let Some(last) = groups.last_mut().filter(|_| !legend.is_empty()) {
        last.text = format!("{}\n{legend}", last.text);
    }
    groups
}

/// Returns whether its picture has markers that need a legend.
fn has_signs(verdict: &DevicePlanResult) -> bool {
    match verdict {
        DevicePlanResult::Change(_) => true,
        DevicePlanResult::Blocked(blocked) => {
            blocked.causes.iter().any(|cause| matches!(cause, Cause::InstanceInUse { .. }))
        }
        DevicePlanResult::Unchanged | DevicePlanResult::Infeasible(_) => false,
    }
}

/// Draws the devices of an empty node after the plan.
pub(super) fn results(view: &PlanView<'_>) -> String {
    let drawn = view.plan.devices.iter().filter_map(|plan| {
        let device = devices::find(view.inventory, plan.pci)?;
        let formatter = PlanFormatter::new(view.inventory, plan.pci);
        let drawn = match &plan.verdict {
            DevicePlanResult::Infeasible(why) => {
                impossible(view, why, target(view, plan), &formatter)
            }
            verdict @ (DevicePlanResult::Unchanged
            | DevicePlanResult::Change(_)
            | DevicePlanResult::Blocked(_)) => result(device, verdict, &formatter, view),
        };
        Some((format!("{}\n{drawn}", device.identity), device))
    });
    let groups = group_by_key(drawn).into_iter();
    let groups = groups.map(|(text, devices)| format!("{}  {text}", devices::range(&devices)));
    groups.collect()
}

fn target<'a>(view: &PlanView<'a>, plan: &DevicePlan) -> Option<&'a DeviceTarget> {
    view.targets.devices.iter().find(|target| target.pci == plan.pci)
}

/// Returns the rest of the heading, and everything below it.
fn summarize(view: &PlanView<'_>, device: &Device, plan: &DevicePlan) -> String {
    let formatter = PlanFormatter::new(view.inventory, plan.pci);
    let target = target(view, plan);
    let mode = device.mig.state().map(say::mode);
    let (headline, style) = headline(&plan.verdict, target);
    let mut text = device.identity.to_string();
    if let Some(mode) = mode {
        text = format!("{text}  {mode}");
    }
    let headline = style.paint(&headline, view.colors);
    text = format!("{text}: {headline}\n");
    text.push_str(&picture(device, &plan.verdict, &formatter, view));
    text.push_str(&match &plan.verdict {
        DevicePlanResult::Unchanged => String::new(),
        DevicePlanResult::Change(change) => changed(view, change, &formatter),
        DevicePlanResult::Blocked(blocked) => blockers(view.colors, blocked, target, &formatter),
        DevicePlanResult::Infeasible(why) => impossible(view, why, target, &formatter),
    });
    if let Some(layout) = view.interrupted.get(&plan.pci) {
        let why = match &plan.verdict {
            DevicePlanResult::Blocked(_) | DevicePlanResult::Infeasible(_) => {
                "`octavo apply` completes it or rolls it back"
            }
            DevicePlanResult::Unchanged | DevicePlanResult::Change(_) => "this plan completes it",
        };
        let line = format!(
            "  interrupted: the change of this GPU to layout {} was not completed; {why}",
            printable(layout)
        );
        text.push_str(&lines([wrap(&line, 4)]));
    }
    for note in target.map(messages::notes).unwrap_or_default() {
        text.push_str(&lines([wrap(&format!("  {note}"), 4)]));
    }
    text
}

fn headline(verdict: &DevicePlanResult, target: Option<&DeviceTarget>) -> (String, Style) {
    match verdict {
        DevicePlanResult::Unchanged if target.is_some_and(|target| target.mig.is_none()) => {
            ("partitions are not changed".to_owned(), Style::Plain)
        }
        DevicePlanResult::Unchanged => ("no changes".to_owned(), Style::Plain),
        DevicePlanResult::Change(change) => (messages::summary(&change.summary()), Style::Plain),
        DevicePlanResult::Blocked(_) => (Reason::Blocked.as_str().to_owned(), Style::Warning),
        DevicePlanResult::Infeasible(_) => ("impossible".to_owned(), Style::Bad),
    }
}

fn changed(view: &PlanView<'_>, change: &DeviceChange, formatter: &PlanFormatter<'_>) -> String {
    let steps = steps(change, formatter, view.detail);
    let mut output: Vec<String> = steps
        .iter()
        .enumerate()
        .map(|(number, (sign, text))| {
            let number = number.saturating_add(1);
            let style = match sign {
                '-' => Style::Bad,
                '+' => Style::Good,
                _ => Style::Warning,
            };
            let line = wrap(&format!("  {number:>2}. {sign} {text}"), 8);
            style.paint(&line, view.colors)
        })
        .collect();
    let cost = change.mode.as_ref().map_or(Disruption::None, |mode| mode.disruption);
    let cost = match &change.mode {
        Some(mode) => formatter.mode(mode),
        None => disruption(cost).to_owned(),
    };
    output.push(wrap(&format!("  cost: {cost}"), 8));
    lines(output)
}

fn blockers(
    colors: Colors,
    blocked: &Blocked,
    target: Option<&DeviceTarget>,
    formatter: &PlanFormatter<'_>,
) -> String {
    let mut output: Vec<String> =
        target.iter().map(|target| requested_partitions(Some(target), formatter)).collect();
    for cause in &blocked.causes {
        let line = wrap(&format!("  blocked: {}", formatter.cause(cause)), 11);
        output.push(Style::Warning.paint(&line, colors));
        let holders = without_repeated_pods(cause.holders());
        output.extend(holders.iter().map(|one| wrap(&format!("    by {}", format_holder(one)), 7)));
        output.push(wrap(&format!("    try: {}", remedy(cause)), 9));
    }
    lines(output)
}

fn impossible(
    view: &PlanView<'_>,
    why: &Infeasible,
    target: Option<&DeviceTarget>,
    formatter: &PlanFormatter<'_>,
) -> String {
    let rule = wrap(&format!("  impossible: {}", formatter.rule(&why.rule)), 14);
    let mut output =
        vec![requested_partitions(target, formatter), Style::Bad.paint(&rule, view.colors)];
    let nearest = formatter.alternatives(why);
    output.extend(nearest.iter().enumerate().map(|(number, offer)| {
        let head = if number == 0 { "would fit:" } else { "or:" };
        wrap(&format!("    {head:<10} {offer}"), 15)
    }));
    lines(output)
}

/// Formats the target where no picture shows it.
fn requested_partitions(target: Option<&DeviceTarget>, formatter: &PlanFormatter<'_>) -> String {
    let requested_partitions = target.and_then(|target| target.mig.as_ref());
    let requested_partitions = match requested_partitions {
        None => return "  requested: nothing".to_owned(),
        Some(MigTarget::Disabled) => "MIG mode off".to_owned(),
        Some(MigTarget::Enabled(instances)) => formatter.list(instances),
    };
    wrap(&format!("  requested: {requested_partitions}"), 13)
}

fn format_holder(one: &Holder) -> String {
    let since = one.details.since.as_ref();
    let since = since.map(|time| format!(", since {time}"));
    printable(&format!("{}{}", holder(&one.details), since.unwrap_or_default()))
}

/// Lists the other devices that a reset of these devices affects.
fn coupled(view: &PlanView<'_>, group: &[&Device]) -> String {
    let own: BTreeSet<PciAddress> = group.iter().map(|device| device.pci).collect();
    let scopes: Vec<&ResetScope> = view
        .plan
        .devices
        .iter()
        .filter(|plan| own.contains(&plan.pci))
        .filter_map(|plan| match &plan.verdict {
            DevicePlanResult::Change(change) => change.mode.as_ref()?.reset.as_ref(),
            DevicePlanResult::Unchanged
            | DevicePlanResult::Blocked(_)
            | DevicePlanResult::Infeasible(_) => None,
        })
        .collect();
    let with: BTreeSet<PciAddress> =
        scopes.iter().flat_map(|scope| scope.coupled.iter().copied()).collect();
    let Some(links) = scopes.iter().find_map(|scope| scope.links) else {
        return String::new();
    };
    if with.is_empty() {
        return String::new();
    }
    let links = messages::link_name(links);
    let others: Vec<&Device> = view
        .inventory
        .devices
        .iter()
        .filter(|device| with.contains(&device.pci) && !own.contains(&device.pci))
        .collect();
    let text = if others.is_empty() {
        format!("  reset: {links} couples these GPUs; the driver might require a common reset")
    } else {
        format!(
            "  reset: {links} couples {} with {}; the driver might require a common reset",
            devices::range(group),
            devices::range(&others)
        )
    };
    lines([wrap(&text, 9)])
}

#[cfg(test)]
mod tests {
    use octavo_model::examples::gpu;
    use octavo_model::holder::HolderDetails;
    use octavo_model::inventory::Inventory;

    use super::*;

    #[test]
    fn process_name_cannot_control_the_terminal() {
        let device = gpu();
        let pci = device.pci;
        let inventory = Inventory { devices: vec![device], ..Inventory::default() };
        let holder = Holder {
            device: pci,
            gpu_instance: None,
            compute_instance: None,
            details: HolderDetails {
                pid: Some(7),
                command: Some("a\u{202e}b\u{200b}c\u{1b}[2Jd".to_owned()),
                ..HolderDetails::default()
            },
        };
        let causes = vec![Cause::DeviceInUse { holders: vec![holder] }];
        let formatter = PlanFormatter::new(&inventory, pci);
        let shown = blockers(Colors::Off, &Blocked { causes }, None, &formatter);
        assert!(shown.contains("by pid 7, a\u{fffd}b\u{fffd}c\u{fffd}[2Jd\n"), "{shown:?}");
    }
}
