//! Plans, policies, nodes and revisions as text.

use std::time::Duration;

use jiff::Timestamp;
use octavo_fleet::node_plan::NodePlanRow;
use octavo_model::reported::Reported;
use octavo_model::text::format_age_short;
use octavo_policy::document::{PolicyDetail, PolicyList, PolicyPlanDocument};
use octavo_policy::{
    Content, MemberState, NodeCounts, PolicyMember, PolicyState, PolicyStatus,
};

use crate::settings::Colors;
use crate::settings::fleet::OutputOptions;
use crate::style::Style;
use crate::text::{self, Cell, NONE, columns, count_noun, first_names};

const COLUMNS: [&str; 8] =
    ["NAME", "LAYOUT", "NODES", "APPLIED", "UPDATING", "FAILED", "STATE", "WAITS FOR"];
const MEMBER_COLUMNS: [&str; 6] = ["NODE", "STATE", "SINCE", "LAYOUT", "IN USE", "MESSAGE"];
const PLAN_COLUMNS: [&str; 7] =
    ["WAVE", "NODE", "LAYOUT NOW", "IN USE", "DESTROYED", "CREATED", "PROBLEM"];
const REVISION_COLUMNS: [&str; 6] = ["REVISION", "CURRENT", "TIME", "LAYOUT", "LABELS", "TAINTS"];
/// Width of a bar in characters.
const BAR_WIDTH: u32 = 24;
/// Maximum number of names in a line.
const MAX_NAMES: usize = 8;

/// Formats one row per policy.
pub(super) fn list(list: &PolicyList, printed: OutputOptions, colors: Colors) -> String {
    if list.items.is_empty() {
        return String::new();
    }
    let rows = list.items.iter().map(|row| {
        let nodes = row.nodes;
        vec![
            Cell::plain(&row.name),
            Cell::optional(row.layout.as_deref()),
            Cell::plain(&nodes.selected),
            Cell::plain(&nodes.applied),
            Cell::plain(&nodes.updating),
            Cell::new(&nodes.failed, if nodes.failed > 0 { Style::Bad } else { Style::Plain }),
            state_cell(&row.state),
            Cell::optional(row.waits_for.as_deref()),
        ]
    });
    text::table(&[&COLUMNS], rows, printed.headers, colors)
}

fn state_cell(state: &Reported<PolicyState>) -> Cell {
    Cell::new(state, state.known().map_or(Style::Plain, |state| state.tone().into()))
}

/// Formats a policy: its progress, then the nodes that are not applied, or all nodes in the wide format.
pub(super) fn detail(detail: &PolicyDetail, printed: OutputOptions, colors: Colors) -> String {
    let status = &detail.status;
    let layout = detail.spec.as_ref().and_then(|spec| spec.layout.clone());
    let mut facts = vec![
        ("Policy", Cell::plain(&detail.name)),
        ("State", state_cell(&status.state.into())),
        ("Layout", Cell::optional(layout)),
        ("Revision", Cell::plain(non_empty(&status.revision))),
        ("Nodes", Cell::plain(&progress(status.nodes))),
    ];
    facts.extend(status.waits_for.iter().map(|what| ("Waits for", Cell::plain(what))));
    facts.extend(status.stop.iter().map(|stop| ("Stopped", Cell::new(&stop.message, Style::Bad))));
    let refused = status.condition("Accepted").filter(|accepted| accepted.status == "False");
    let refused = refused.map(|accepted| &accepted.message).or(detail.spec_error.as_ref());
    facts.extend(refused.map(|why| ("Refused", Cell::new(why, Style::Bad))));
    let mut text = formatted(facts, colors);
    let is_listed = |member: &&PolicyMember| {
        printed.is_wide() || member.state != MemberState::Applied
    };
    let members: Vec<&PolicyMember> = detail.members.iter().filter(is_listed).collect();
    if !members.is_empty() {
        let rows = members.into_iter().map(member_cells);
        text.push('\n');
        text.push_str(&text::table(&[&MEMBER_COLUMNS], rows, printed.headers, colors));
    }
    if detail.more_members > 0 {
        text.push_str(&format!("{} more\n", count_noun(detail.more_members, "node", "nodes")));
    }
    text
}

/// Formats a bar with the counts: `[######......] 6 of 12 applied, 2 updating`.
fn progress(nodes: NodeCounts) -> String {
    let filled = nodes.applied.saturating_mul(BAR_WIDTH).checked_div(nodes.selected);
    let filled = usize::try_from(filled.unwrap_or_default().min(BAR_WIDTH)).unwrap_or_default();
    let rest = usize::try_from(BAR_WIDTH).unwrap_or_default().saturating_sub(filled);
    let others = [
        (nodes.updating, "updating"),
        (nodes.failed, "failed"),
        (nodes.overridden, "overridden"),
        (nodes.conflicting, "conflicting"),
        (nodes.unavailable, "unavailable"),
    ];
    let others = others.iter().filter(|(count, _)| *count > 0);
    let others: String = others.map(|(count, word)| format!(", {count} {word}")).collect();
    format!(
        "[{}{}] {} of {} applied{others}",
        "#".repeat(filled),
        ".".repeat(rest),
        nodes.applied,
        nodes.selected
    )
}

fn member_cells(member: &PolicyMember) -> Vec<Cell> {
    let style = match member.state.known() {
        Some(MemberState::Applied) => Style::Good,
        Some(MemberState::Failed) => Style::Bad,
        Some(MemberState::Blocked | MemberState::Conflicting | MemberState::Overridden) => {
            Style::Warning
        }
        Some(MemberState::Updating | MemberState::Waiting) | None => Style::Plain,
    };
    vec![
        Cell::plain(&member.name),
        Cell::new(&member.state, style),
        Cell::optional(member.since.map(age)),
        Cell::optional(member.layout.as_deref()),
        Cell::optional(member.in_use),
        Cell::optional(member.message.as_deref()),
    ]
}

fn age(since: Timestamp) -> String {
    let age = Timestamp::now().duration_since(since);
    format_age_short(Duration::try_from(age).unwrap_or_default())
}

/// Formats a plan: its effect in numbers, then the nodes by wave.
pub(super) fn plan(plan: &PolicyPlanDocument, printed: OutputOptions, colors: Colors) -> String {
    let (rollout, totals, capacity) = (&plan.rollout, &plan.totals, &plan.capacity);
    let changing: usize = rollout.waves.iter().map(Vec::len).sum();
    let new = if plan.exists { "" } else { " (new)" };
    let mut facts = vec![
        ("Policy", Cell::plain(&format!("{}{new}", plan.name))),
        ("Layout", Cell::optional(plan.layout.as_deref())),
    ];
    let refused = rollout.refused.iter();
    facts.extend(refused.map(|why| ("Refused", Cell::new(why, Style::Bad))));
    facts.extend(plan.infeasible.iter().map(|one| {
        let nodes = count_noun(one.nodes, "node", "nodes");
        let text = format!("{} ({nodes}): {}", one.types.join(", "), one.reason);
        ("Infeasible", Cell::new(&text, Style::Bad))
    }));
    let selected = count_noun(rollout.selected, "node", "nodes");
    let text = format!("{selected} selected, {} unchanged", rollout.unchanged);
    facts.push(("Nodes", Cell::plain(&text)));
    for (title, names) in [
        ("Overridden", &rollout.overridden),
        ("Conflicting", &rollout.conflicting),
        ("Unavailable", &rollout.unavailable),
    ] {
        if !names.is_empty() {
            facts.push((title, Cell::new(&first_names(names, MAX_NAMES), Style::Warning)));
        }
    }
    if changing > 0 {
        let waves = count_noun(rollout.waves.len(), "wave", "waves");
        let nodes = count_noun(changing, "node", "nodes");
        let most = rollout.max_unavailable;
        let text = format!("{nodes} in {waves}, at most {most} unavailable");
        facts.push(("Roll-out", Cell::plain(&text)));
        let text = format!(
            "at least {} of {} nodes and {} of {} devices available",
            capacity.min_nodes, capacity.nodes, capacity.min_devices, capacity.devices
        );
        facts.push(("Capacity", Cell::plain(&text)));
    }
    if totals.nodes > 0 {
        let blocked = match totals.blocked {
            0 => String::new(),
            blocked => format!(", {blocked} blocked"),
        };
        let devices = count_noun(totals.changed_devices, "device", "devices");
        let instances = count_noun(totals.destroyed, "instance", "instances");
        let created = totals.created;
        let text = format!("{devices}: {instances} destroyed, {created} created{blocked}");
        facts.push(("Changes", Cell::plain(&text)));
    }
    if let Some(duration) = plan.duration.filter(|_| changing > 0) {
        let [least, most] = [duration.min_seconds, duration.max_seconds]
            .map(|seconds| format_age_short(Duration::from_secs(seconds)));
        let text = format!("{least} to {most}, and the time outside of windows");
        facts.push(("Duration", Cell::plain(&text)));
    }
    format!("{}{}", formatted(facts, colors), nodes(plan, printed, colors))
}

/// Formats the nodes of the waves, then the waiting ones.
fn nodes(plan: &PolicyPlanDocument, printed: OutputOptions, colors: Colors) -> String {
    let waves = plan.rollout.waves.iter().enumerate();
    let waves = waves.flat_map(|(index, wave)| {
        let number = index.saturating_add(1).to_string();
        wave.iter().map(move |node| (number.clone(), node))
    });
    let waiting = plan.rollout.waiting.iter().map(|node| (NONE.to_owned(), node));
    let rows = waves.chain(waiting).map(|(wave, node)| {
        let effect = plan.nodes.iter().find(|row| row.node == node.name);
        let problem = effect.and_then(|row| row.problems.first());
        let changes = |of: fn(&NodePlanRow) -> usize| Cell::optional(effect.map(of));
        vec![
            Cell::plain(&wave),
            Cell::plain(&node.name),
            Cell::optional(node.layout.as_deref()),
            Cell::optional(node.in_use),
            changes(|row| row.destroyed),
            changes(|row| row.created),
            Cell::optional(problem),
        ]
    });
    let rows: Vec<Vec<Cell>> = rows.collect();
    if rows.is_empty() {
        return String::new();
    }
    format!("\n{}", text::table(&[&PLAN_COLUMNS], rows, printed.headers, colors))
}

/// Formats the retained revisions, newest first.
pub(super) fn history(status: &PolicyStatus, printed: OutputOptions, colors: Colors) -> String {
    let rows = status.revisions.iter().map(|one| {
        let Content { layout, node_labels, taints } = &one.content;
        let labels: Vec<String> =
            node_labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let taints: Vec<String> = taints.iter().map(ToString::to_string).collect();
        let is_current = one.revision == status.revision;
        vec![
            Cell::plain(&one.revision),
            Cell::plain(if is_current { "yes" } else { "no" }),
            Cell::plain(&one.time.strftime("%Y-%m-%dT%H:%M:%SZ")),
            Cell::optional(layout.as_deref()),
            Cell::plain(non_empty(&labels.join(","))),
            Cell::plain(non_empty(&taints.join(","))),
        ]
    });
    text::table(&[&REVISION_COLUMNS], rows, printed.headers, colors)
}

fn non_empty(text: &str) -> &str {
    if text.is_empty() { NONE } else { text }
}

fn formatted(facts: Vec<(&str, Cell)>, colors: Colors) -> String {
    let rows = facts.into_iter().map(|(name, cell)| vec![Cell::new(name, Style::Strong), cell]);
    columns(&rows.collect::<Vec<_>>(), colors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p5_bar_shows_the_applied_share_and_the_other_counts() {
        let nodes = NodeCounts { selected: 12, applied: 6, updating: 2, ..NodeCounts::default() };
        assert_eq!(progress(nodes), "[############............] 6 of 12 applied, 2 updating");
        assert_eq!(progress(NodeCounts::default()), "[........................] 0 of 0 applied");
    }
}
