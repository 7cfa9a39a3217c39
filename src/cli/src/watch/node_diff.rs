//! Description of the difference between two rows of a node.

use octavo_documents::api::{Event, LayoutRow, NodeRow};

use crate::fleet::format;
use crate::settings::Colors;
use crate::text::printable;

/// Formats the change as a line; `None` if the rows do not show it.
pub(crate) fn words(before: Option<&NodeRow>, event: &Event, colors: Colors) -> Option<String> {
    match event {
        Event::Synced { .. } => None,
        Event::Removed { name } => Some(format!("{}: gone", printable(name))),
        Event::Node { node } => {
            let changes = match before {
                None => vec![described(node, colors)],
                Some(before) => differences(before, node, colors),
            };
            let said = changes.join(", ");
            (!said.is_empty()).then(|| format!("{}: {said}", printable(&node.name)))
        }
    }
}

fn state(row: &NodeRow, colors: Colors) -> String {
    let state = format::ink(&row.state).paint(&printable(&row.state), colors);
    match &row.reason {
        Some(reason) => format!("{state} ({})", printable(reason)),
        None => state,
    }
}

fn described(node: &NodeRow, colors: Colors) -> String {
    let mut text = state(node, colors);
    if !node.types.is_empty() {
        text = format!("{text}, {}", printable(&format::types(node)));
        text = format!(
            "{text}, {} of {} free",
            node.devices.free, node.devices.total
        );
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
fn layout(before: Option<&LayoutRow>, after: Option<&LayoutRow>, colors: Colors) -> Option<String> {
    let name = |row: Option<&LayoutRow>| {
        let name = row.and_then(|row| row.name.as_deref());
        name.map_or_else(|| "none".to_owned(), printable)
    };
    let state = |row: Option<&LayoutRow>| row.and_then(|row| row.state.clone());
    let (was, is) = (name(before), name(after));
    if was == is && state(before) == state(after) {
        return None;
    }
    let change = if was == is {
        format!("layout {is}")
    } else {
        format!("layout {was} -> {is}")
    };
    let Some(word) = state(after) else {
        return Some(change);
    };
    let painted = format::layout_ink(&word).paint(&printable(&word), colors);
    let why = after.and_then(|row| row.message.as_deref());
    Some(match why {
        Some(why) => format!("{change} {painted} ({})", printable(why)),
        None => format!("{change} {painted}"),
    })
}

fn differences(before: &NodeRow, after: &NodeRow, colors: Colors) -> Vec<String> {
    let mut said = Vec::new();
    if before.state != after.state {
        said.push(format!(
            "{} -> {}",
            printable(&before.state),
            state(after, colors)
        ));
    }
    let texts = [
        ("devices", format::types(before), format::types(after)),
        ("sharing", before.sharing.clone(), after.sharing.clone()),
        (
            "agent version",
            before.agent_version.clone(),
            after.agent_version.clone(),
        ),
    ];
    for (what, before, after) in texts {
        if before != after {
            said.push(format!(
                "{what} {} -> {}",
                printable(&before),
                printable(&after)
            ));
        }
    }
    let (old, new) = (before.devices, after.devices);
    let counts = [
        ("free", old.free, new.free),
        ("in use", old.in_use, new.in_use),
        ("partitioned", old.partitioned, new.partitioned),
        ("unavailable", old.unavailable, new.unavailable),
        ("set aside", old.set_aside, new.set_aside),
        ("unknown", old.unknown, new.unknown),
    ];
    let (parts, now) = (old.partitions, new.partitions);
    let partitions = [
        ("partitions", parts.total, now.total),
        ("partitions free", parts.free, now.free),
    ];
    let said_of = |counts: &[(&str, u32, u32)]| -> Vec<String> {
        let changed = counts.iter().filter(|(_, before, after)| before != after);
        changed
            .map(|(what, before, after)| format!("{what} {before} -> {after}"))
            .collect()
    };
    said.extend(said_of(&counts));
    // Devices whose state becomes unknown have not lost partitions, and do not gain any when it is known again.
    if new.unknown > old.unknown && now.total < parts.total {
        said.push("partitions unknown".to_owned());
    } else if new.unknown < old.unknown && now.total > parts.total {
        said.push(format!("{} of {} partitions free", now.free, now.total));
    } else {
        said.extend(said_of(&partitions));
    }
    said.extend(layout(
        before.layout.as_deref(),
        after.layout.as_deref(),
        colors,
    ));
    match (before.connected, after.connected) {
        (true, false) => said.push("its agent went away".to_owned()),
        (false, true) => said.push("its agent is back".to_owned()),
        (true, true) | (false, false) => {}
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::nodes::tests::row;

    fn said(before: Option<&NodeRow>, node: NodeRow) -> Option<String> {
        words(before, &Event::Node { node }, Colors::Off)
    }

    #[test]
    fn a_new_node_is_described() {
        assert_eq!(
            said(None, row("a", "ok")).unwrap(),
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
            said(Some(&before), after).unwrap(),
            "a: ok -> degraded, free 2 -> 1, unavailable 1 -> 2, its agent went away"
        );
        let mut hangs = row("a", "nvml-stalled");
        hangs.devices.unknown += 4;
        hangs.devices.partitions.total = 0;
        hangs.devices.partitions.free = 0;
        let told = said(Some(&before), hangs.clone()).unwrap();
        assert!(told.ends_with(", partitions unknown"), "{told}");
        let told = said(Some(&hangs), before.clone()).unwrap();
        assert!(told.ends_with(", 5 of 12 partitions free"), "{told}");
        let stands = |name: &str, state: &str, message: Option<&str>| {
            let mut node = row("a", "ok");
            node.layout = Some(Box::new(LayoutRow {
                name: Some(name.to_owned()),
                state: Some(state.to_owned()),
                message: message.map(str::to_owned),
                ..LayoutRow::default()
            }));
            node
        };
        let applied = stands("serving", "applied", None);
        let told = said(Some(&before), applied.clone()).unwrap();
        assert_eq!(told, "a: layout none -> serving applied");
        let blocked = stands("serving", "blocked", Some("GPU 1: in use"));
        let told = said(Some(&applied), blocked).unwrap();
        assert_eq!(told, "a: layout serving blocked (GPU 1: in use)");
        let told = said(None, applied.clone()).unwrap();
        assert!(told.ends_with(", layout serving applied"), "{told}");
        assert_eq!(said(Some(&applied), applied.clone()), None);
        let mut confirmed = row("a", "ok");
        confirmed.age_seconds = 0;
        assert_eq!(said(Some(&before), confirmed), None);
    }
}
