//! The last lines: a summary of the whole plan.

use super::View;
use super::story::Group;
use crate::cli::devices;
use crate::cli::paint::Ink;
use crate::cli::text::{folded, lines, printable};
use crate::domain::inventory::Device;
use crate::domain::plan::words::{self, disruption};
use crate::domain::plan::{Outcome, Verdict};
use crate::domain::reason::Reason;

pub(super) fn summary(view: &View<'_>, layout: &str, groups: &[Group<'_>]) -> String {
    let outcome = view.plan.outcome();
    let head = match outcome {
        Outcome::Nothing => "nothing to do",
        Outcome::Changes => "there are changes",
        Outcome::Blocked => Reason::Blocked.word(),
        Outcome::Infeasible => "impossible",
    };
    let head = format!("Layout {}: {head}", printable(layout));
    let mut said = vec![Ink::Strong.paint(&head, view.colors)];
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
        folded(&format!("  {who}: {text}"), 4)
    }));
    let tally = view.plan.tally();
    if groups.len() > 1 && outcome == Outcome::Changes {
        said.push(folded(&format!("  in all: {}", words::tally(&tally)), 4));
    }
    match outcome {
        Outcome::Infeasible => said.push(folded(
            "  The layout as a whole is refused, and nothing of it would be done, as long as one GPU cannot have it.",
            2,
        )),
        Outcome::Nothing | Outcome::Changes | Outcome::Blocked => {}
    }
    let untouched = untouched(view);
    if !untouched.is_empty() {
        let line = format!(
            "  {}: not in the layout, never touched",
            devices::range(&untouched)
        );
        said.push(folded(&line, 4));
    }
    lines(said)
}

fn line(group: &Group<'_>) -> String {
    let each = if group.devices.len() > 1 {
        " on each"
    } else {
        ""
    };
    match &group.plan.verdict {
        Verdict::Unchanged => "nothing to do".to_owned(),
        Verdict::Change(change) => {
            let tally = change.tally();
            let cost = disruption(tally.disruption);
            format!("{}{each}; {cost}", words::tally(&tally))
        }
        Verdict::Blocked(blocked) => match blocked.causes.len() {
            1 => "blocked, see above".to_owned(),
            causes => format!("blocked by {causes} things, see above"),
        },
        Verdict::Infeasible(_) => "impossible, see above".to_owned(),
    }
}

/// Returns the devices that the layout does not mention.
fn untouched<'a>(view: &View<'a>) -> Vec<&'a Device> {
    let planned = |device: &&Device| {
        let mut all = view.plan.devices.iter();
        !all.any(|plan| plan.pci == device.pci)
    };
    view.inventory.devices.iter().filter(planned).collect()
}
