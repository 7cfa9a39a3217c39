//! One node: the fleet's information about it, then its devices as `octavo inspect` shows them on the node itself.

use octavo_documents::api::{LayoutRow, NodeDetail, NodeRow};
use octavo_model::inventory::Inventory;
use octavo_model::reason::Reason;

use super::format;
use crate::inspect::{self, Columns};
use crate::settings::Colors;
use crate::settings::fleet::{FleetFormat, OutputOptions};
use crate::style::Style;
use crate::text::{lines, printable, wrap};

pub(super) fn text(
    detail: &NodeDetail,
    inventory: &Inventory,
    printed: OutputOptions,
    colors: Colors,
) -> String {
    let columns = if printed.format == FleetFormat::Wide {
        Columns::All
    } else {
        Columns::Default
    };
    let devices = inspect::format_inventory(inventory, columns, printed.headers, colors);
    if !printed.with_headers() {
        return devices;
    }
    format!("{}\n{devices}", facts(detail, colors))
}

fn facts(detail: &NodeDetail, colors: Colors) -> String {
    let row = &detail.row;
    let age = format::age(row.age_seconds);
    let mut said = vec![
        format!(
            "Node: {}",
            Style::Strong.paint(&printable(&row.name), colors)
        ),
        format!(
            "State: {}",
            format::ink(&row.state).paint(&printable(&row.state), colors)
        ),
    ];
    if format::is_stale(row) {
        let warning = wrap(
            &format!(
                "STALE: last heard of {age} ago. All below was so then; nobody knows how it is now."
            ),
            2,
        );
        said.push(Style::Warning.paint(&warning, colors));
    }
    said.push(agent(row, &age));
    said.push(format!(
        "Last change: {}",
        printable(&format::second(&detail.last_changed))
    ));
    if let Some(layout) = &row.layout {
        said.extend(standing(layout, colors));
    }
    if let Some(sharing) = &detail.sharing_status {
        let (mode, state) = (printable(&sharing.mode), printable(&sharing.state));
        let why = sharing.message.as_deref().map(printable);
        let why = why.map_or_else(String::new, |why| format!(": {why}"));
        let line = format!("Given out to pods: {mode}, {state}{why}");
        said.push(wrap(&line, 2));
    }
    lines(said)
}

/// Formats the source of the information.
fn agent(row: &NodeRow, age: &str) -> String {
    if !format::has_agent(row) {
        let types = printable(&format::types(row));
        let reason = row.reason.as_deref().map(printable).unwrap_or_default();
        return wrap(
            &format!("Agent: none. {types}, confirmed by the cluster {age} ago. {reason}"),
            2,
        );
    }
    let agent = if row.connected { "connected" } else { "away" };
    let version = printable(&row.agent_version);
    format!("Agent: {version} {agent}, confirmed {age} ago")
}

/// Formats the layout, and every device that does not have it.
fn standing(layout: &LayoutRow, colors: Colors) -> Vec<String> {
    let paint = |state: &str| format::layout_ink(state).paint(&printable(state), colors);
    let mut head = match &layout.name {
        Some(name) => format!("Layout: {}", Style::Strong.paint(&printable(name), colors)),
        None => "Layout: none".to_owned(),
    };
    if let Some(state) = &layout.state {
        head = format!("{head}, {}", paint(state));
    }
    if layout.by_hand {
        head = format!("{head}, chosen by hand");
    }
    let mut said = vec![head];
    for device in layout
        .devices
        .iter()
        .filter(|one| !Reason::Applied.is(&one.state))
    {
        let mut line = format!("  {}: {}", printable(&device.name), paint(&device.state));
        if let Some(at) = &device.progress {
            let back = if at.back { ", going back" } else { "" };
            let doing = printable(&at.doing);
            line = format!("{line}, {} of {} steps{back}: {doing}", at.done, at.steps);
        }
        if !device.message.is_empty() {
            line = format!("{line}: {}", printable(&device.message));
        }
        said.push(wrap(&line, 4));
    }
    // A device's message is shown with the device.
    if let Some(message) = &layout.message
        && (layout.devices.iter()).all(|device| device.message.is_empty())
    {
        said.push(wrap(&format!("  {}", printable(message)), 4));
    }
    if let Some(drain) = &layout.drain {
        said.push(wrap(&format!("  {}", printable(drain)), 4));
    }
    said
}

#[cfg(test)]
mod tests {
    use octavo_documents::api::{DeviceLayoutJson, ProgressJson};

    use super::*;

    #[test]
    fn layout_lists_devices_that_do_not_have_it() {
        let device = |name: &str, state: &str, message: &str| DeviceLayoutJson {
            pci: "0000:07:00.0".to_owned(),
            name: name.to_owned(),
            state: state.to_owned(),
            message: message.to_owned(),
            progress: None,
        };
        let mut applying = device("GPU 2", "applying", "");
        applying.progress = Some(ProgressJson {
            doing: "create 3g.40gb".to_owned(),
            done: 1,
            steps: 4,
            back: false,
        });
        let layout = LayoutRow {
            name: Some("serving".to_owned()),
            by_hand: true,
            state: Some("blocked".to_owned()),
            message: Some("GPU 1: blocked: in use by pid 7".to_owned()),
            devices: vec![
                device("GPU 0", "applied", ""),
                device("GPU 1", "blocked", "in use by pid 7"),
                applying,
            ],
            ..LayoutRow::default()
        };
        assert_eq!(
            standing(&layout, Colors::Off),
            [
                "Layout: serving, blocked, chosen by hand",
                "  GPU 1: blocked: in use by pid 7",
                "  GPU 2: applying, 1 of 4 steps: create 3g.40gb",
            ]
        );
        let unknown = LayoutRow {
            name: Some("nosuch".to_owned()),
            message: Some("there is no layout nosuch".to_owned()),
            drain: Some("drain (affected) evicts pods".to_owned()),
            ..LayoutRow::default()
        };
        assert_eq!(
            standing(&unknown, Colors::Off),
            [
                "Layout: nosuch",
                "  there is no layout nosuch",
                "  drain (affected) evicts pods"
            ]
        );
    }
}
