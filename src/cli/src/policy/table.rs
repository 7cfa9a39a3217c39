//! Plans, policies, nodes and revisions as tables.

use std::time::Duration;

use jiff::Timestamp;
use octavo_fleet::node_plan::NodePlanRow;
use octavo_model::text::format_age_short;
use octavo_policy::document::{PolicyDetail, PolicyList, PolicyPlanDocument};
use octavo_policy::messages::{self, Fact};
use octavo_policy::{MemberState, PolicyMember, PolicyStatus};

use crate::settings::Colors;
use crate::settings::fleet::OutputOptions;
use crate::style::Style;
use crate::text::{self, Cell, NONE, columns, count_noun};

const COLUMNS: [&str; 8] =
    ["NAME", "LAYOUT", "NODES", "APPLIED", "UPDATING", "FAILED", "STATE", "WAITS FOR"];
const MEMBER_COLUMNS: [&str; 6] = ["NODE", "STATE", "SINCE", "LAYOUT", "IN USE", "MESSAGE"];
const PLAN_COLUMNS: [&str; 7] =
    ["WAVE", "NODE", "LAYOUT NOW", "IN USE", "DESTROYED", "CREATED", "PROBLEM"];
const REVISION_COLUMNS: [&str; 4] = ["REVISION", "CURRENT", "TIME", "CONTENT"];

/// Formats one row per policy.
pub(super) fn list(list: &PolicyList, printed: OutputOptions, colors: Colors) -> String {
    if list.items.is_empty() {
        return String::new();
    }
    let rows = list.items.iter().map(|row| {
        let nodes = row.nodes;
        let style = row.state.known().map_or(Style::Plain, |state| state.tone().into());
        vec![
            Cell::plain(&row.name),
            Cell::optional(row.layout.as_deref()),
            Cell::plain(&nodes.selected),
            Cell::plain(&nodes.applied),
            Cell::plain(&nodes.updating),
            Cell::plain(&nodes.failed),
            Cell::new(&row.state, style),
            Cell::optional(row.waits_for.as_deref()),
        ]
    });
    text::table(&[&COLUMNS], rows, printed.headers, colors)
}

/// Formats a policy: its progress, then the nodes that are not applied, or all nodes in the wide format.
pub(super) fn detail(detail: &PolicyDetail, printed: OutputOptions, colors: Colors) -> String {
    let members = detail.members.iter();
    let members = members.filter(|one| printed.is_wide() || one.state != MemberState::Applied);
    let rows: Vec<Vec<Cell>> = members.map(cells).collect();
    let mut output = facts(&messages::progress(detail), colors);
    if !rows.is_empty() {
        output.push('\n');
        output.push_str(&text::table(&[&MEMBER_COLUMNS], rows, printed.headers, colors));
    }
    if detail.more_members > 0 {
        output.push_str(&count_noun(detail.more_members, "more node", "more nodes"));
        output.push('\n');
    }
    output
}

fn cells(member: &PolicyMember) -> Vec<Cell> {
    let style = member.state.known().map_or(Style::Plain, |state| state.tone().into());
    let age = |since: Timestamp| {
        let age = Timestamp::now().duration_since(since);
        format_age_short(Duration::try_from(age).unwrap_or_default())
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

/// Formats a plan: its effect in numbers, then the nodes by wave, the waiting ones last.
pub(super) fn plan(plan: &PolicyPlanDocument, printed: OutputOptions, colors: Colors) -> String {
    let waves = plan.rollout.waves.iter().enumerate();
    let waves = waves.flat_map(|(index, wave)| {
        let number = index.saturating_add(1).to_string();
        wave.iter().map(move |node| (number.clone(), node))
    });
    let waiting = plan.rollout.waiting.iter().map(|node| (NONE.to_owned(), node));
    let rows = waves.chain(waiting).map(|(wave, node)| {
        let effect = plan.nodes.iter().find(|row| row.node == node.name);
        let count = |of: fn(&NodePlanRow) -> usize| Cell::optional(effect.map(of));
        vec![
            Cell::plain(&wave),
            Cell::plain(&node.name),
            Cell::optional(node.layout.as_deref()),
            Cell::optional(node.in_use),
            count(|row| row.destroyed),
            count(|row| row.created),
            Cell::optional(effect.and_then(|row| row.problems.first())),
        ]
    });
    let rows: Vec<Vec<Cell>> = rows.collect();
    let output = facts(&messages::plan(plan), colors);
    if rows.is_empty() {
        return output;
    }
    format!("{output}\n{}", text::table(&[&PLAN_COLUMNS], rows, printed.headers, colors))
}

/// Formats the retained revisions, newest first.
pub(super) fn history(status: &PolicyStatus, printed: OutputOptions, colors: Colors) -> String {
    let rows = status.revisions.iter().map(|one| {
        let is_current = one.revision == status.revision;
        vec![
            Cell::plain(&one.revision),
            Cell::plain(if is_current { "yes" } else { "no" }),
            Cell::plain(&one.time.strftime("%Y-%m-%dT%H:%M:%SZ")),
            Cell::plain(&one.content.text()),
        ]
    });
    text::table(&[&REVISION_COLUMNS], rows, printed.headers, colors)
}

fn facts(facts: &[Fact], colors: Colors) -> String {
    let row = |fact: &Fact| {
        vec![Cell::new(fact.name, Style::Strong), Cell::new(&fact.text, fact.tone.into())]
    };
    columns(&facts.iter().map(row).collect::<Vec<_>>(), colors)
}
