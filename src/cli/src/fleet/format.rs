//! Common format of a fleet's states, ages and amounts.

use std::time::Duration;

use octavo_fleet::api::{NodeRow, NodeType};
use octavo_fleet::startup::StartupProgress;
use octavo_fleet::summary::{DeviceCounts, DeviceUse, LayoutSummary, NodeState, PartitionCounts};
use octavo_fleet::type_labels::UNKNOWN;
use octavo_fleet::type_source::TypeSource;
use octavo_model::quantity::Mebibytes;
use octavo_model::reason::Reason;
use octavo_model::reported::Reported;
use octavo_model::text::{format_age_short, format_memory};
use octavo_planner::reconcile::ApplyState;

use crate::style::Style;
use crate::text::{Cell, NONE};

/// Returns the type's name, or the word for unrecognized devices.
pub(crate) fn type_name(of: &NodeType) -> &str {
    of.type_name.as_deref().unwrap_or(UNKNOWN)
}

/// Formats a note on a fleet whose nodes have not all reported yet.
pub(crate) fn starting(starting: &StartupProgress) -> String {
    format!("{starting}; the output is incomplete")
}

/// Formats types as `8x nvidia-h100-80gb`, separated by commas.
pub(crate) fn types(row: &NodeRow) -> String {
    let types = row.types.iter();
    let all: Vec<String> =
        types.map(|of| format!("{}x {}", of.devices.total, type_name(of))).collect();
    if all.is_empty() { NONE.to_owned() } else { all.join(", ") }
}

/// Formats at most the first two of many types, and the number of the others, so that a table of nodes fits on a
/// screen.
pub(crate) fn few_types(row: &NodeRow) -> String {
    const SHOWN: usize = 2;
    let hidden = row.types.len().saturating_sub(SHOWN);
    if hidden < 2 {
        return types(row);
    }
    let mut few = row.clone();
    few.types.truncate(SHOWN);
    format!("{}, and {hidden} more", types(&few))
}

/// Placeholder for a count that cannot be observed.
pub(crate) const UNOBSERVED: &str = "?";

/// Formats a count; `?` if it is unknown.
pub(crate) fn observed(count: Option<u64>) -> String {
    count.map_or_else(|| UNOBSERVED.to_owned(), |count| count.to_string())
}

/// Formats the number of devices with this use.
pub(crate) fn devices(counts: DeviceCounts, of: DeviceUse) -> String {
    observed(counts.known_count(of).map(u64::from))
}

/// Formats free and total partitions as `3/12`.
pub(crate) fn parts(of: PartitionCounts) -> String {
    if of.total == 0 { NONE.to_owned() } else { format!("{}/{}", of.free, of.total) }
}

/// Formats memory; `-` if there is none.
pub(crate) fn memory(mib: u64) -> String {
    match mib {
        0 => NONE.to_owned(),
        mib => format_memory(Mebibytes::new(mib)),
    }
}

/// Formats an age in seconds.
pub(crate) fn age(seconds: u64) -> String {
    format_age_short(Duration::from_secs(seconds))
}

/// Removes the fraction of a second from a time; returns other text unchanged.
pub(super) fn second(time: &str) -> String {
    match time.split_once('.') {
        Some((whole, parts)) if parts.ends_with('Z') => format!("{whole}Z"),
        _ => time.to_owned(),
    }
}

/// Returns whether a row is stale.
pub(crate) fn is_stale(row: &NodeRow) -> bool {
    row.state == NodeState::Stale
}

/// Returns whether an agent reports the node, or did.
pub(crate) fn has_agent(row: &NodeRow) -> bool {
    row.source == TypeSource::Agent
}

/// Formats the state, and whether the node's agent is disconnected.
pub(crate) fn state(row: &NodeRow) -> Cell {
    let text = if row.connected || is_stale(row) || !has_agent(row) {
        row.state.to_string()
    } else {
        format!("{}, agent disconnected", row.state)
    };
    Cell::new(&text, style(&row.state))
}

/// Formats the state of the node's layout, with the steps of a change in progress.
pub(crate) fn layout_state(layout: Option<&LayoutSummary>) -> Cell {
    let Some(state) = layout.and_then(|one| one.state.as_ref()) else {
        return Cell::plain(NONE);
    };
    let text = match layout.and_then(|one| one.progress) {
        Some(at) => format!("{state} {}/{}", at.done, at.steps),
        None => state.to_string(),
    };
    Cell::new(&text, layout_style(state))
}

/// Returns the color of a layout's state.
pub(crate) fn layout_style(state: &Reported<Reason>) -> Style {
    ApplyState::tone(state).into()
}

/// Returns the color of a node's state.
pub(crate) fn style(state: &Reported<NodeState>) -> Style {
    state.known().map_or(Style::Warning, |state| state.tone().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_has_no_fraction_of_a_second() {
        assert_eq!(second("2026-11-21T11:00:18.749172156Z"), "2026-11-21T11:00:18Z");
        assert_eq!(second("2026-11-21T11:00:18Z"), "2026-11-21T11:00:18Z");
        assert_eq!(second("soon."), "soon.");
    }
}
