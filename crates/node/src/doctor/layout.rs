//! Check that the node is in its desired layout, according to its agent or to state files of an earlier agent.

use octavo_model::reason::Reason;
use octavo_model::reported::Reported;

use super::drivers::NVIDIA;
use super::facts::{Facts, LayoutDevice, LayoutProgress};
use super::{Check, Finding, format_list};
use crate::node_object::LAYOUT_LABEL;

/// Node label with the progress that the agent reports.
const LAYOUT_STATE: &str = "octavo.dev/layout-state";

const REMEDY: &str = "run `octavo plan LAYOUT` to show blockers; \
                      docs/operations/troubleshooting.md describes each state with its remedy";

pub(super) fn finding(facts: &Facts<'_>) -> Finding {
    let check = Check::Layout;
    let directory = &facts.roots.state;
    let is_known = matches!(facts.layout, Ok(Some(_)));
    if !is_known && let Some(finding) = finding_from_labels(facts) {
        return finding;
    }
    if !is_known && !NVIDIA.status(facts).is_working() {
        return check.not_applicable(
            "no NVIDIA driver is known to be loaded, and layouts apply only to NVIDIA devices",
        );
    }
    match &facts.layout {
        Err(why) => check.unknown(why.clone()),
        Ok(None) => check.not_applicable(format!(
            "no agent or command has changed devices here: {directory} has no state files"
        )),
        Ok(Some(layout)) if layout.is_agent => finding_from_agent(layout),
        Ok(Some(layout)) => finding_from_state_files(directory, layout),
    }
}

/// Finding from the Node labels if no agent can be queried.
fn finding_from_labels(facts: &Facts<'_>) -> Option<Finding> {
    let check = Check::Layout;
    let labels = facts.labels.as_ref().ok()?.as_ref()?;
    let state = labels.get(LAYOUT_STATE)?;
    let name = labels.get(LAYOUT_LABEL).unwrap_or("from the agent's settings");
    let evidence = format!("layout {name}: {} has {LAYOUT_STATE}={state}", labels.place);
    Some(match Reason::parse(state) {
        Some(Reason::Applied | Reason::Pending) => check.ok(evidence),
        Some(Reason::Failed) => check.failing(evidence, REMEDY),
        Some(_) | None => check.warning(evidence, REMEDY),
    })
}

fn finding_from_agent(layout: &LayoutProgress) -> Finding {
    let check = Check::Layout;
    let Some(name) = &layout.name else {
        let evidence = "no layout is selected for this node";
        return match &layout.notice {
            None => check.not_applicable(evidence),
            Some(notice) => check.warning(format!("{evidence}: {notice}"), REMEDY),
        };
    };
    let evidence = layout_summary(name, layout);
    match (layout.state.as_ref().map(Reported::known), &layout.notice) {
        (Some(Some(Reason::Applied)), None) => check.ok(evidence),
        (Some(Some(Reason::Pending | Reason::Applying | Reason::Yielded)), None) => {
            check.ok(format!("{evidence}; no action is needed"))
        }
        (Some(Some(Reason::Failed | Reason::RolledBack | Reason::Infeasible)), _)
        // The layout is not valid for this node.
        | (None, Some(_)) => check.failing(evidence, REMEDY),
        (Some(_), _) => check.warning(evidence, REMEDY),
        (None, None) => check.unknown(
            format!("layout {name}: the agent has not evaluated it yet"),
        ),
    }
}

/// Finding from the state files that an agent or a command left, without a running agent.
fn finding_from_state_files(directory: &str, layout: &LayoutProgress) -> Finding {
    let check = Check::Layout;
    if !layout.journal.is_empty() {
        let evidence = format!(
            "no agent that changes devices responds ({directory}); {}",
            layout.journal.join("; ")
        );
        let remedy = "start the agent with a layout, or run `octavo apply`: both first complete \
                      or roll back an interrupted change. `octavo apply --forget` discards a \
                      change that cannot be completed";
        return check.warning(evidence, remedy);
    }
    let Some(name) = &layout.name else {
        return check.not_applicable(format!("no changes yet ({directory})"));
    };
    let evidence = format!(
        "no agent responds; result of the last change ({directory}/history.jsonl): {}",
        layout_summary(name, layout)
    );
    let applied = |device: &LayoutDevice| device.state == Reason::Applied;
    if layout.devices.iter().all(applied) {
        return check.ok(evidence);
    }
    check.warning(evidence, REMEDY)
}

fn layout_summary(name: &str, layout: &LayoutProgress) -> String {
    let others = layout.devices.iter();
    let others = others.filter(|device| device.state != Reason::Applied);
    let others = others.map(|device| {
        let LayoutDevice { name, state, message } = device;
        match message.as_str() {
            "" => format!("{name} {state}"),
            message => format!("{name} {state}: {message}"),
        }
    });
    let others: Vec<String> = others.collect();
    let mut summary = match (&layout.state, &layout.notice) {
        (Some(state), _) => format!("layout {name} is {state}"),
        (None, Some(_)) => format!("layout {name}"),
        (None, None) if others.is_empty() => {
            format!("layout {name} is {}", Reason::Applied.as_str())
        }
        (None, None) => format!("layout {name} is not applied"),
    };
    let others = (!others.is_empty()).then(|| format_list(&others));
    for more in [layout.notice.clone(), others].into_iter().flatten() {
        summary = format!("{summary}: {more}");
    }
    summary
}
