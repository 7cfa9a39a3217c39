//! One node: the fleet's information about it, then its devices as `octavo inspect` shows them on the node itself.

use octavo_fleet::api::{NodeDetail, NodeRow};
use octavo_fleet::summary::LayoutSummary;
use octavo_model::reason::Reason;
use octavo_model::reported::Reported;

use super::format;
use crate::inspect::{self, Columns};
use crate::settings::Colors;
use crate::settings::fleet::OutputOptions;
use crate::style::Style;
use crate::text::{lines, printable, wrap};

pub(super) fn text(detail: &NodeDetail, printed: OutputOptions, colors: Colors) -> String {
    let columns = if printed.is_wide() { Columns::All } else { Columns::Default };
    let devices = inspect::format_inventory(&detail.inventory, columns, printed.headers, colors);
    if !printed.with_headers() {
        return devices;
    }
    format!("{}\n{devices}", facts(detail, colors))
}

fn facts(detail: &NodeDetail, colors: Colors) -> String {
    let row = &detail.row;
    let age = format::age(row.age_seconds);
    let mut output = vec![
        format!("Node: {}", Style::Strong.paint(&printable(&row.name), colors)),
        format!(
            "State: {}",
            format::style(&row.state).paint(&printable(&row.state.to_string()), colors)
        ),
    ];
    if format::is_stale(row) {
        let warning =
            wrap(&format!("STALE: the last report is {age} old; the current state is unknown."), 2);
        output.push(Style::Warning.paint(&warning, colors));
    }
    output.push(agent(row, &age));
    output.push(format!("Last change: {}", printable(&format::second(&detail.last_changed))));
    if let Some(layout) = &row.layout {
        output.extend(layout_lines(layout, colors));
    }
    if let Some(sharing) = &detail.sharing_status {
        let (mode, state) = (printable(sharing.mode.as_str()), printable(sharing.state.as_str()));
        let why = sharing.message.as_deref().map(printable);
        let why = why.map_or_else(String::new, |why| format!(": {why}"));
        let line = format!("Device plugin: {mode}, {state}{why}");
        output.push(wrap(&line, 2));
    }
    lines(output)
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
    let agent = if row.connected { "connected" } else { "disconnected" };
    let version = printable(&row.agent_version);
    format!("Agent: {version} {agent}, confirmed {age} ago")
}

/// Formats the layout, and every device that does not have it.
fn layout_lines(layout: &LayoutSummary, colors: Colors) -> Vec<String> {
    let paint = |state: &Reported<Reason>| {
        format::layout_style(state).paint(&printable(state.as_str()), colors)
    };
    let mut head = match &layout.name {
        Some(name) => format!("Layout: {}", Style::Strong.paint(&printable(name), colors)),
        None => "Layout: none".to_owned(),
    };
    if let Some(state) = &layout.state {
        head = format!("{head}, {}", paint(state));
    }
    if layout.is_manual {
        head = format!("{head}, selected manually");
    }
    let mut output = vec![head];
    for device in layout.devices.iter().filter(|one| one.state != Reason::Applied) {
        let mut line = format!("  {}: {}", printable(&device.name), paint(&device.state));
        if let Some(at) = &device.progress {
            let back = if at.back { ", rolling back" } else { "" };
            let doing = printable(&at.current_step);
            line = format!("{line}, {} of {} steps{back}: {doing}", at.done, at.steps);
        }
        if !device.message.is_empty() {
            line = format!("{line}: {}", printable(&device.message));
        }
        output.push(wrap(&line, 4));
    }
    // A device's message is shown with the device.
    if let Some(message) = &layout.message
        && (layout.devices.iter()).all(|device| device.message.is_empty())
    {
        output.push(wrap(&format!("  {}", printable(message)), 4));
    }
    if let Some(drain) = &layout.drain {
        output.push(wrap(&format!("  {}", printable(drain)), 4));
    }
    output
}

#[cfg(test)]
mod tests {
    use octavo_planner::reconcile::{ChangeProgress, DeviceLayoutStatus};

    use super::*;

    #[test]
    fn layout_lists_devices_that_do_not_have_it() {
        let device = |name: &str, state: &str, message: &str| DeviceLayoutStatus {
            message: message.to_owned(),
            ..DeviceLayoutStatus::new(
                "0000:07:00.0".parse().unwrap(),
                name.to_owned(),
                Reported::parse(state),
            )
        };
        let mut applying = device("GPU 2", "applying", "");
        applying.progress = Some(ChangeProgress {
            current_step: "create 3g.40gb".to_owned(),
            done: 1,
            steps: 4,
            back: false,
        });
        let layout = LayoutSummary {
            name: Some("serving".to_owned()),
            is_manual: true,
            state: Some(Reason::Blocked.into()),
            message: Some("GPU 1: blocked: in use by pid 7".to_owned()),
            devices: vec![
                device("GPU 0", "applied", ""),
                device("GPU 1", "blocked", "in use by pid 7"),
                applying,
            ],
            ..LayoutSummary::default()
        };
        assert_eq!(
            layout_lines(&layout, Colors::Off),
            [
                "Layout: serving, blocked, selected manually",
                "  GPU 1: blocked: in use by pid 7",
                "  GPU 2: applying, 1 of 4 steps: create 3g.40gb",
            ]
        );
        let unknown = LayoutSummary {
            name: Some("nosuch".to_owned()),
            message: Some("no layout nosuch".to_owned()),
            drain: Some("drain (affected) is evicting pods".to_owned()),
            ..LayoutSummary::default()
        };
        assert_eq!(
            layout_lines(&unknown, Colors::Off),
            ["Layout: nosuch", "  no layout nosuch", "  drain (affected) is evicting pods"]
        );
    }
}
