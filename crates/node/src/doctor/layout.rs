//! Check that the node is in its desired layout, according to its agent or to state files of an earlier agent.

use octavo_model::reason::Reason;

use super::facts::{Facts, LayoutDevice, LayoutProgress};
use super::nvidia::NVIDIA;
use super::{Check, Finding, Subject, format_list};
use crate::node::LAYOUT_LABEL;

/// Node label with the progress that the agent reports.
const LAYOUT_STATE: &str = "octavo.dev/layout-state";

const REMEDY: &str = "`octavo plan LAYOUT` shows who is in the way; docs/troubleshooting.md has each of these words, with what to do";

pub(super) fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    vec![layout(facts)]
}

fn layout(facts: &Facts<'_>) -> Finding {
    let check = Check::Layout;
    let folder = &facts.roots.state;
    let is_known = matches!(facts.layout, Ok(Some(_)));
    if !is_known && let Some(said) = finding_from_labels(facts) {
        return said;
    }
    if !is_known && !NVIDIA.status(facts).is_working() {
        return check.not_applicable(
            "no NVIDIA driver is known to be loaded, and a layout says something of no other devices",
        );
    }
    match &facts.layout {
        Err(why) => check.unknown(Subject::Node, why.clone()),
        Ok(None) => check.not_applicable(format!(
            "no agent or command changed devices here: there is nothing of theirs in {folder}"
        )),
        Ok(Some(layout)) if layout.is_agent => finding_from_agent(layout),
        Ok(Some(layout)) => finding_from_state_files(folder, layout),
    }
}

/// Finding from the Node labels if no agent can be queried.
fn finding_from_labels(facts: &Facts<'_>) -> Option<Finding> {
    let check = Check::Layout;
    let labels = facts.labels.as_ref().ok()?.as_ref()?;
    let state = labels.get(LAYOUT_STATE)?;
    let name = labels
        .get(LAYOUT_LABEL)
        .unwrap_or("of the agent's settings");
    let said = format!("layout {name}: {} has {LAYOUT_STATE}={state}", labels.place);
    Some(match Reason::parse(state) {
        Some(Reason::Applied | Reason::Pending) => check.ok(Subject::Node, said),
        Some(Reason::Failed) => check.failing(Subject::Node, said, REMEDY),
        Some(_) | None => check.warning(Subject::Node, said, REMEDY),
    })
}

fn finding_from_agent(layout: &LayoutProgress) -> Finding {
    let check = Check::Layout;
    let Some(name) = &layout.name else {
        let evidence = "the agent says that no layout is chosen for this node";
        return match &layout.notice {
            None => check.not_applicable(evidence),
            Some(notice) => check.warning(Subject::Node, format!("{evidence}: {notice}"), REMEDY),
        };
    };
    let said = layout_summary(name, layout);
    match (layout.state.as_deref().map(Reason::parse), &layout.notice) {
        (Some(Some(Reason::Applied)), None) => check.ok(Subject::Node, said),
        (Some(Some(Reason::Pending | Reason::Applying | Reason::Yielded)), None) => {
            check.ok(Subject::Node, format!("{said}; it will be so by itself"))
        }
        (Some(Some(Reason::Failed | Reason::RolledBack | Reason::Infeasible)), _)
        // The layout is not valid for this node.
        | (None, Some(_)) => check.failing(Subject::Node, said, REMEDY),
        (Some(_), _) => check.warning(Subject::Node, said, REMEDY),
        (None, None) => check.unknown(
            Subject::Node,
            format!("layout {name}: the agent has not looked yet"),
        ),
    }
}

/// Finding from the state files that an agent or a command left, without a running agent.
fn finding_from_state_files(folder: &str, layout: &LayoutProgress) -> Finding {
    let check = Check::Layout;
    if !layout.journal.is_empty() {
        let evidence = format!(
            "no agent that changes devices answers ({folder}); {}",
            layout.journal.join("; ")
        );
        let remedy = "start the agent with a layout, or apply one with `octavo apply`: an interrupted change is finished or brought back \
            first; `octavo apply --forget` discards what cannot be finished";
        return check.warning(Subject::Node, evidence, remedy);
    }
    let Some(name) = &layout.name else {
        return check.not_applicable(format!("nothing was changed here yet ({folder})"));
    };
    let said = format!(
        "no agent answers; at the last change ({folder}/history.jsonl) it was {}",
        layout_summary(name, layout)
    );
    let applied = |device: &LayoutDevice| device.state == Reason::Applied.as_str();
    if layout.devices.iter().all(applied) {
        return check.ok(Subject::Node, said);
    }
    check.warning(Subject::Node, said, REMEDY)
}

fn layout_summary(name: &str, layout: &LayoutProgress) -> String {
    let others = layout.devices.iter();
    let others = others.filter(|device| device.state != Reason::Applied.as_str());
    let others = others.map(|device| {
        let LayoutDevice {
            name,
            state,
            message,
        } = device;
        match message.as_str() {
            "" => format!("{name} {state}"),
            message => format!("{name} {state}: {message}"),
        }
    });
    let others: Vec<String> = others.collect();
    let state = layout.state.as_deref();
    let mut said = match (state, &layout.notice) {
        (Some(state), _) => format!("layout {name} is {state}"),
        (None, Some(_)) => format!("layout {name}"),
        (None, None) if others.is_empty() => {
            format!("layout {name} is {}", Reason::Applied.as_str())
        }
        (None, None) => format!("layout {name} is not in force"),
    };
    let others = (!others.is_empty()).then(|| format_list(&others));
    for more in [layout.notice.clone(), others].into_iter().flatten() {
        said = format!("{said}: {more}");
    }
    said
}
