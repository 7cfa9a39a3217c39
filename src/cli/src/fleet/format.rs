//! Common format of a fleet's states, ages and amounts.

use octavo_documents::api::{CountsJson, LayoutRow, NodeRow, NodeType, PartitionsJson};
use octavo_documents::startup::StartingJson;
use octavo_fleet::fleet::NodeState;
use octavo_fleet::type_source::TypeSource;
use octavo_model::reason::Reason;
use octavo_planner::reconcile::ApplyState;

use crate::style::Style;
use crate::text::Cell;

/// Placeholder for a missing value.
pub(crate) const NONE: &str = "-";

const UNKNOWN_TYPE: &str = "unknown";

/// Returns the type's name, or the word for unrecognized devices.
pub(crate) fn type_name(of: &NodeType) -> &str {
    of.type_name.as_deref().unwrap_or(UNKNOWN_TYPE)
}

/// Formats a note on a fleet whose nodes have not all reported yet.
pub(crate) fn starting(starting: &StartingJson) -> String {
    let reported = match (starting.nodes, starting.expected) {
        (Some(nodes), Some(expected)) => {
            format!("{nodes} of about {expected} nodes have reported")
        }
        (Some(nodes), None) => format!("nodes that have reported so far: {nodes}"),
        (None, _) => "not all nodes have reported".to_owned(),
    };
    format!("the aggregator is starting: {reported}; what is shown is not complete")
}

/// Formats types as `8x nvidia-h100-80gb`, separated by commas.
pub(crate) fn types(row: &NodeRow) -> String {
    let types = row.types.iter();
    let all: Vec<String> = types
        .map(|of| format!("{}x {}", of.devices.total, type_name(of)))
        .collect();
    if all.is_empty() {
        NONE.to_owned()
    } else {
        all.join(", ")
    }
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

/// Formats a count of devices; `?` if it is zero and the use of some devices is not reported.
pub(crate) fn observed(count: u64, unknown: u64) -> String {
    if count == 0 && unknown > 0 {
        UNOBSERVED.to_owned()
    } else {
        count.to_string()
    }
}

/// Formats the number of free devices.
pub(crate) fn free(of: CountsJson) -> Cell {
    Cell::plain(&observed(of.free.into(), of.unknown.into()))
}

/// Formats the number of devices in use.
pub(crate) fn in_use(of: CountsJson) -> Cell {
    Cell::plain(&observed(of.in_use.into(), of.unknown.into()))
}

/// Formats free and total partitions as `3/12`.
pub(crate) fn parts(of: PartitionsJson) -> String {
    if of.total == 0 {
        NONE.to_owned()
    } else {
        format!("{}/{}", of.free, of.total)
    }
}

/// Formats memory in GiB, rounded; small amounts in MiB.
pub(crate) fn memory(mib: u64) -> String {
    if mib == 0 {
        NONE.to_owned()
    } else if mib < 10 << 10 {
        format!("{mib}Mi")
    } else {
        format!("{}Gi", mib.saturating_add(512) >> 10)
    }
}

/// Formats an age as `7s`, `12m`, `3h`, `9d`: in the largest unit with a value of at least two, as kubectl does.
pub(crate) fn age(seconds: u64) -> String {
    let (count, unit) = match seconds {
        0..120 => (seconds, 's'),
        120..7_200 => (seconds / 60, 'm'),
        7_200..172_800 => (seconds / 3_600, 'h'),
        _ => (seconds / 86_400, 'd'),
    };
    format!("{count}{unit}")
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
    row.state == NodeState::Stale.as_str()
}

/// Returns whether an agent reports the node, or did.
pub(crate) fn has_agent(row: &NodeRow) -> bool {
    row.source == TypeSource::Agent.as_str()
}

/// Formats the state, and whether the node's agent is disconnected.
pub(crate) fn state(row: &NodeRow) -> Cell {
    let text = if row.connected || is_stale(row) || !has_agent(row) {
        row.state.clone()
    } else {
        format!("{}, agent away", row.state)
    };
    Cell::new(&text, ink(&row.state))
}

/// Formats the state of the node's layout, with the steps of a change in progress.
pub(crate) fn layout_state(layout: Option<&LayoutRow>) -> Cell {
    let Some(state) = layout.and_then(|one| one.state.as_deref()) else {
        return Cell::plain(NONE);
    };
    let text = match layout.and_then(|one| one.progress) {
        Some(at) => format!("{state} {}/{}", at.done, at.steps),
        None => state.to_owned(),
    };
    Cell::new(&text, layout_ink(state))
}

/// Returns the color of a layout's state.
pub(crate) fn layout_ink(state: &str) -> Style {
    match Reason::parse(state) {
        Some(Reason::Applied) => Style::Good,
        Some(Reason::Blocked | Reason::Drifted | Reason::Yielded) => Style::Warning,
        _ if ApplyState::needs_attention(state) => Style::Bad,
        _ => Style::Plain,
    }
}

/// Returns the color of a node's state.
pub(crate) fn ink(state: &str) -> Style {
    let known = NodeState::ALL
        .into_iter()
        .find(|known| known.as_str() == state);
    match known {
        Some(NodeState::Ok) => Style::Good,
        Some(NodeState::Empty) => Style::Faint,
        Some(NodeState::NoAgent | NodeState::Attention | NodeState::Stale) | None => Style::Warning,
        Some(
            NodeState::Degraded
            | NodeState::NoDriver
            | NodeState::NvmlLost
            | NodeState::NvmlStalled,
        ) => Style::Bad,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_uses_largest_unit_with_at_least_two() {
        for (seconds, text) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (7_199, "119m"),
            (7_200, "2h"),
            (172_800, "2d"),
        ] {
            assert_eq!(age(seconds), text);
        }
    }

    #[test]
    fn a_time_is_told_to_the_second() {
        assert_eq!(
            second("2026-11-21T11:00:18.749172156Z"),
            "2026-11-21T11:00:18Z"
        );
        assert_eq!(second("2026-11-21T11:00:18Z"), "2026-11-21T11:00:18Z");
        assert_eq!(second("soon."), "soon.");
    }

    #[test]
    fn memory_of_ten_gib_or_more_is_rounded() {
        for (mib, text) in [
            (0, "-"),
            (8_192, "8192Mi"),
            (15_360, "15Gi"),
            (652_472, "637Gi"),
        ] {
            assert_eq!(memory(mib), text);
        }
    }
}
