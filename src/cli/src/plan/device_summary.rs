//! Description of GPUs: picture, steps or the reason against them, and cost. GPUs with the same description are
//! grouped.

use std::collections::BTreeSet;

use jiff::Timestamp;
use octavo_model::holder::Holder;
use octavo_model::id::PciAddress;
use octavo_model::inventory::Device;
use octavo_model::reason::Reason;
use octavo_model::slices::words as say;
use octavo_planner::layout::{DeviceTarget, MigTarget};
use octavo_planner::plan::messages::{self, PlanFormatter, disruption, holder, remedy};
use octavo_planner::plan::{
    Blocked, Cause, DeviceChange, DevicePlan, Disruption, Infeasible, ResetScope, Verdict,
};

use super::PlanView;
use super::picture::{LEGEND, picture, result};
use super::steps::steps;
use crate::devices;
use crate::style::Style;
use crate::text::{lines, printable, wrap};

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
    let mut groups: Vec<(String, Vec<&Device>, &DevicePlan)> = Vec::new();
    for plan in &view.plan.devices {
        let mut found = view.inventory.devices.iter();
        let Some(device) = found.find(|device| device.pci == plan.pci) else {
            continue;
        };
        let text = summarize(view, device, plan);
        match groups.iter_mut().find(|(known, _, _)| *known == text) {
            Some((_, devices, _)) => devices.push(device),
            None => groups.push((text, vec![device], plan)),
        }
    }
    let mut groups: Vec<DeviceGroup<'_>> = groups
        .into_iter()
        .map(|(text, devices, plan)| {
            let who = Style::Strong.paint(&devices::range(&devices), view.colors);
            let coupled = coupled(view, &devices);
            DeviceGroup {
                text: format!("{who}  {text}{coupled}"),
                devices,
                plan,
            }
        })
        .collect();
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
fn has_signs(verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Change(_) => true,
        Verdict::Blocked(blocked) => blocked
            .causes
            .iter()
            .any(|cause| matches!(cause, Cause::InstanceInUse { .. })),
        Verdict::Unchanged | Verdict::Infeasible(_) => false,
    }
}

/// Draws the devices of an empty node after the plan.
pub(super) fn results(view: &PlanView<'_>) -> String {
    let mut groups: Vec<(String, Vec<&Device>)> = Vec::new();
    for plan in &view.plan.devices {
        let mut found = view.inventory.devices.iter();
        let Some(device) = found.find(|device| device.pci == plan.pci) else {
            continue;
        };
        let words = PlanFormatter::new(view.inventory, plan.pci);
        let drawn = match &plan.verdict {
            Verdict::Infeasible(why) => {
                let mut targets = view.targets.devices.iter();
                let target = targets.find(|target| target.pci == plan.pci);
                impossible(view, why, target, &words)
            }
            verdict @ (Verdict::Unchanged | Verdict::Change(_) | Verdict::Blocked(_)) => {
                result(device, verdict, &words, view)
            }
        };
        let text = format!("{}\n{drawn}", device.identity);
        match groups.iter_mut().find(|(known, _)| *known == text) {
            Some((_, devices)) => devices.push(device),
            None => groups.push((text, vec![device])),
        }
    }
    let drawn = groups
        .iter()
        .map(|(text, devices)| format!("{}  {text}", devices::range(devices)));
    drawn.collect()
}

/// Returns the rest of the heading, and everything below it.
fn summarize(view: &PlanView<'_>, device: &Device, plan: &DevicePlan) -> String {
    let words = PlanFormatter::new(view.inventory, plan.pci);
    let mut targets = view.targets.devices.iter();
    let target = targets.find(|target| target.pci == plan.pci);
    let mode = device.mig.state().map(say::mode);
    let (headline, ink) = headline(&plan.verdict, target);
    let mut text = device.identity.to_string();
    if let Some(mode) = mode {
        text = format!("{text}  {mode}");
    }
    let headline = ink.paint(&headline, view.colors);
    text = format!("{text}: {headline}\n");
    text.push_str(&picture(device, &plan.verdict, &words, view));
    text.push_str(&match &plan.verdict {
        Verdict::Unchanged => String::new(),
        Verdict::Change(change) => changed(view, change, &words),
        Verdict::Blocked(blocked) => in_the_way(view, blocked, target, &words),
        Verdict::Infeasible(why) => impossible(view, why, target, &words),
    });
    if let Some(layout) = view.interrupted.get(&plan.pci) {
        let why = match &plan.verdict {
            Verdict::Blocked(_) | Verdict::Infeasible(_) => "an apply finishes it or takes it back",
            Verdict::Unchanged | Verdict::Change(_) => "this finishes it",
        };
        let line = format!(
            "  interrupted: the change of this GPU to layout {} has not ended; {why}",
            printable(layout)
        );
        text.push_str(&lines([wrap(&line, 4)]));
    }
    if let Some(sharing) = target.and_then(|target| target.time_slicing.as_ref()) {
        let line = format!(
            "  time-slicing: {sharing}; this plan is about partitions and leaves sharing as it is",
        );
        text.push_str(&lines([wrap(&line, 4)]));
    }
    text
}

fn headline(verdict: &Verdict, target: Option<&DeviceTarget>) -> (String, Style) {
    match verdict {
        Verdict::Unchanged if target.is_some_and(|target| target.mig.is_none()) => {
            ("partitions are left as they are".to_owned(), Style::Plain)
        }
        Verdict::Unchanged => ("nothing to do".to_owned(), Style::Plain),
        Verdict::Change(change) => (messages::summary(&change.summary()), Style::Plain),
        Verdict::Blocked(_) => (Reason::Blocked.as_str().to_owned(), Style::Warning),
        Verdict::Infeasible(_) => ("impossible".to_owned(), Style::Bad),
    }
}

fn changed(view: &PlanView<'_>, change: &DeviceChange, words: &PlanFormatter<'_>) -> String {
    let steps = steps(change, words, view.detail);
    let mut said: Vec<String> = steps
        .iter()
        .enumerate()
        .map(|(number, (sign, text))| {
            let number = number.saturating_add(1);
            let ink = match sign {
                '-' => Style::Bad,
                '+' => Style::Good,
                _ => Style::Warning,
            };
            let line = wrap(&format!("  {number:>2}. {sign} {text}"), 8);
            ink.paint(&line, view.colors)
        })
        .collect();
    let cost = change
        .mode
        .as_ref()
        .map_or(Disruption::None, |mode| mode.disruption);
    let cost = match &change.mode {
        Some(mode) => words.mode(mode),
        None => disruption(cost).to_owned(),
    };
    said.push(wrap(&format!("  cost: {cost}"), 8));
    lines(said)
}

fn in_the_way(
    view: &PlanView<'_>,
    blocked: &Blocked,
    target: Option<&DeviceTarget>,
    words: &PlanFormatter<'_>,
) -> String {
    let mut said: Vec<String> = target
        .iter()
        .map(|target| wish(Some(target), words))
        .collect();
    for cause in &blocked.causes {
        let line = wrap(&format!("  blocked: {}", words.cause(cause)), 11);
        said.push(Style::Warning.paint(&line, view.colors));
        said.extend(
            cause
                .holders()
                .iter()
                .map(|one| wrap(&format!("    by {}", format_holder(one)), 7)),
        );
        said.push(wrap(&format!("    try: {}", remedy(cause)), 9));
    }
    lines(said)
}

fn impossible(
    view: &PlanView<'_>,
    why: &Infeasible,
    target: Option<&DeviceTarget>,
    words: &PlanFormatter<'_>,
) -> String {
    let rule = wrap(&format!("  impossible: {}", words.rule(&why.rule)), 14);
    let mut said = vec![wish(target, words), Style::Bad.paint(&rule, view.colors)];
    let nearest = words.alternatives(why);
    said.extend(nearest.iter().enumerate().map(|(number, offer)| {
        let head = if number == 0 { "would fit:" } else { "or:" };
        wrap(&format!("    {head:<10} {offer}"), 15)
    }));
    lines(said)
}

/// Formats the target where no picture shows it.
fn wish(target: Option<&DeviceTarget>, words: &PlanFormatter<'_>) -> String {
    let wish = target.and_then(|target| target.mig.as_ref());
    let wish = match wish {
        None => return "  asked for: nothing".to_owned(),
        Some(MigTarget::Disabled) => "MIG mode off".to_owned(),
        Some(MigTarget::Enabled(instances)) => words.list(instances),
    };
    wrap(&format!("  asked for: {wish}"), 13)
}

fn format_holder(one: &Holder) -> String {
    let since = one.details.since.and_then(|seconds| {
        let time = Timestamp::from_second(i64::try_from(seconds).ok()?).ok()?;
        Some(format!(", since {time}"))
    });
    printable(&format!(
        "{}{}",
        holder(&one.details),
        since.unwrap_or_default()
    ))
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
            Verdict::Change(change) => change.mode.as_ref()?.reset.as_ref(),
            Verdict::Unchanged | Verdict::Blocked(_) | Verdict::Infeasible(_) => None,
        })
        .collect();
    let with: BTreeSet<PciAddress> = scopes
        .iter()
        .flat_map(|scope| scope.coupled.iter().copied())
        .collect();
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
        format!(
            "  reset: {links} couples these GPUs; the driver may want to reset all of them together"
        )
    } else {
        format!(
            "  reset: {links} couples {} with {}; the driver may want to reset all of them together",
            devices::range(group),
            devices::range(&others)
        )
    };
    lines([wrap(&text, 9)])
}
