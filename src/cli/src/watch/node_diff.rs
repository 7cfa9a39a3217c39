//! Description of the difference between two rows of a node.

use octavo_fleet::api::{Event, NodeRow};
use octavo_fleet::summary::{DeviceUse, LayoutSummary};

use crate::fleet::format;
use crate::settings::Colors;
use crate::text::printable;

/// Formats the change as a line; `None` if the rows do not show it.
pub(crate) fn words(before: Option<&NodeRow>, event: &Event, colors: Colors) -> Option<String> {
    match event {
        Event::Synced { .. } => None,
        Event::Removed { name } => Some(format!("{}: removed", printable(name))),
        Event::Node { node } => {
            let changes = match before {
                None => vec![described(node, colors)],
                Some(before) => differences(before, node, colors),
            };
            let text = changes.join(", ");
            (!text.is_empty()).then(|| format!("{}: {text}", printable(&node.name)))
        }
    }
}

fn state(row: &NodeRow, colors: Colors) -> String {
    let state = format::style(&row.state).paint(&printable(&row.state.to_string()), colors);
    match &row.reason {
        Some(reason) => format!("{state} ({})", printable(reason)),
        None => state,
    }
}

fn described(node: &NodeRow, colors: Colors) -> String {
    let mut text = state(node, colors);
    if !node.types.is_empty() {
        text = format!("{text}, {}", printable(&format::types(node)));
        let free = format::devices(node.devices, DeviceUse::Free);
        text = format!("{text}, {free} of {} free", node.devices.total);
    }
    let parts = node.devices.partitions;
    if parts.total > 0 {
        text = format!("{text}, {} of {} partitions free", parts.free, parts.total);
    }
    if let Some(layout) = layout(None, node.layout.as_deref(), colors) {
        text = format!("{text}, {}", layout.replacen("none -> ", "", 1));
    }
    text
}

/// Formats the layout and its state, if either changed.
fn layout(
    before: Option<&LayoutSummary>,
    after: Option<&LayoutSummary>,
    colors: Colors,
) -> Option<String> {
    let name = |row: Option<&LayoutSummary>| {
        let name = row.and_then(|row| row.name.as_deref());
        name.map_or_else(|| "none".to_owned(), printable)
    };
    let old_state = before.and_then(|row| row.state.as_ref());
    let state = after.and_then(|row| row.state.as_ref());
    let (was, is) = (name(before), name(after));
    if was == is && old_state == state {
        return None;
    }
    let change = if was == is { format!("layout {is}") } else { format!("layout {was} -> {is}") };
    let Some(state) = state else {
        return Some(change);
    };
    let painted = format::layout_style(state).paint(&printable(state.as_str()), colors);
    let why = after.and_then(|row| row.message.as_deref());
    Some(match why {
        Some(why) => format!("{change} {painted} ({})", printable(why)),
        None => format!("{change} {painted}"),
    })
}

fn differences(before: &NodeRow, after: &NodeRow, colors: Colors) -> Vec<String> {
    let mut changes = Vec::new();
    if before.state != after.state {
        changes.push(format!(
            "{} -> {}",
            printable(&before.state.to_string()),
            state(after, colors)
        ));
    }
    let texts = [
        ("devices", format::types(before), format::types(after)),
        ("sharing", before.sharing.to_string(), after.sharing.to_string()),
        ("agent version", before.agent_version.clone(), after.agent_version.clone()),
    ];
    for (what, before, after) in texts {
        if before != after {
            changes.push(format!("{what} {} -> {}", printable(&before), printable(&after)));
        }
    }
    let (old, new) = (before.devices, after.devices);
    let counts =
        DeviceUse::ALL.map(|of| (of.title(), format::devices(old, of), format::devices(new, of)));
    let (parts, now) = (old.partitions, new.partitions);
    let partitions = [
        ("partitions", parts.total.to_string(), now.total.to_string()),
        ("partitions free", parts.free.to_string(), now.free.to_string()),
    ];
    let format_changes = |counts: &[(&str, String, String)]| -> Vec<String> {
        let unequal = counts.iter().filter(|(_, before, after)| before != after);
        unequal.map(|(what, before, after)| format!("{what} {before} -> {after}")).collect()
    };
    changes.extend(format_changes(&counts));
    // Devices whose state becomes unknown have not lost partitions, and do not gain any when it is known again.
    if new.unknown > old.unknown && now.total < parts.total {
        changes.push("partitions unknown".to_owned());
    } else if new.unknown < old.unknown && now.total > parts.total {
        changes.push(format!("{} of {} partitions free", now.free, now.total));
    } else {
        changes.extend(format_changes(&partitions));
    }
    changes.extend(layout(before.layout.as_deref(), after.layout.as_deref(), colors));
    match (before.connected, after.connected) {
        (true, false) => changes.push("agent disconnected".to_owned()),
        (false, true) => changes.push("agent reconnected".to_owned()),
        (true, true) | (false, false) => {}
    }
    changes
}

#[cfg(test)]
mod tests {
    use octavo_model::reported::Reported;

    use super::*;
    use crate::fleet::nodes::tests::row;

    fn words_of(before: Option<&NodeRow>, node: NodeRow) -> Option<String> {
        words(before, &Event::Node { node }, Colors::Off)
    }

    #[test]
    fn new_node_is_described() {
        assert_eq!(
            words_of(None, row("a", "ok")).unwrap(),
            "a: ok, 8x nvidia-a100-80gb, 2 of 8 free, 5 of 12 partitions free"
        );
    }

    #[test]
    fn changed_node_lists_only_differences() {
        let before = row("a", "ok");
        let mut after = row("a", "degraded");
        after.devices.free = 1;
        after.devices.unavailable = 2;
        after.connected = false;
        assert_eq!(
            words_of(Some(&before), after).unwrap(),
            "a: ok -> degraded, free 2 -> 1, unavailable 1 -> 2, agent disconnected"
        );
        let mut hangs = row("a", "nvml-stalled");
        hangs.devices.unknown += 4;
        hangs.devices.partitions.total = 0;
        hangs.devices.partitions.free = 0;
        let text = words_of(Some(&before), hangs.clone()).unwrap();
        assert!(text.ends_with(", partitions unknown"), "{text}");
        let text = words_of(Some(&hangs), before.clone()).unwrap();
        assert!(text.ends_with(", 5 of 12 partitions free"), "{text}");
        let stands = |name: &str, state: &str, message: Option<&str>| {
            let mut node = row("a", "ok");
            node.layout = Some(Box::new(LayoutSummary {
                name: Some(name.to_owned()),
                state: Some(Reported::parse(state)),
                message: message.map(str::to_owned),
                ..LayoutSummary::default()
            }));
            node
        };
        let applied = stands("serving", "applied", None);
        let text = words_of(Some(&before), applied.clone()).unwrap();
        assert_eq!(text, "a: layout none -> serving applied");
        let blocked = stands("serving", "blocked", Some("GPU 1: in use"));
        let text = words_of(Some(&applied), blocked).unwrap();
        assert_eq!(text, "a: layout serving blocked (GPU 1: in use)");
        let text = words_of(None, applied.clone()).unwrap();
        assert!(text.ends_with(", layout serving applied"), "{text}");
        assert_eq!(words_of(Some(&applied), applied.clone()), None);
        let mut confirmed = row("a", "ok");
        confirmed.age_seconds = 0;
        assert_eq!(words_of(Some(&before), confirmed), None);
    }
}
