//! One node: the fleet's information about it, then its devices as `octavo inspect` shows them on the node itself.

use octavo_fleet::api::{NodeDetail, NodeRow};
use octavo_fleet::summary::LayoutSummary;
use octavo_model::reason::Reason;
use octavo_model::reported::Reported;
use octavo_model::text::join;
use octavo_node::sharing::usage::Usage;

use super::format;
use crate::inspect::{self, Columns};
use crate::settings::Colors;
use crate::settings::fleet::OutputOptions;
use crate::style::Style;
use crate::text::{lines, printable, wrap};

/// Maximum number of listed allocations.
const MAX_ALLOCATIONS: usize = 16;

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
    if let Some(usage) = &detail.usage {
        output.extend(allocations(usage));
    }
    lines(output)
}

/// Lists the devices and partitions that are allocated to pods: the pictures below show only processes, and a pod need not
/// have one.
fn allocations(usage: &Usage) -> Vec<String> {
    let allocated = usage
        .allocations()
        .map(|(unit, pods)| wrap(&printable(&format!("  {unit}: {}", join(&pods, ", "))), 4));
    let allocated: Vec<String> = allocated.collect();
    let more = allocated.len().saturating_sub(MAX_ALLOCATIONS);
    let more = (more > 0).then(|| format!("  and {more} more, in `octavo top`"));
    let head = (!allocated.is_empty()).then(|| "Allocated to pods:".to_owned());
    let listed = allocated.into_iter().take(MAX_ALLOCATIONS);
    head.into_iter().chain(listed).chain(more).collect()
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
        let name = format!("  {}: ", printable(&device.name));
        let state = printable(device.state.as_str());
        let mut line = format!("{name}{state}");
        if let Some(at) = &device.progress {
            let back = if at.back { ", rolling back" } else { "" };
            let doing = printable(&at.current_step);
            line = format!("{line}, {} of {} steps{back}: {doing}", at.done, at.steps);
        }
        if !device.message.is_empty() {
            line = format!("{line}: {}", printable(&device.message));
        }
        // Colored last, because `wrap` removes control characters.
        let line = wrap(&line, 4);
        let rest = line.strip_prefix(&name).and_then(|rest| rest.strip_prefix(&state));
        output.push(match rest {
            Some(rest) => format!("{name}{}{rest}", paint(&device.state)),
            None => line,
        });
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
    use octavo_model::resource::ShareId;
    use octavo_node::sharing::usage::{DeviceUsage, Tenant, UnitUsage};
    use octavo_planner::reconcile::{ChangeProgress, DeviceLayoutStatus};
    use serde_json::json;

    use super::*;

    #[test]
    fn allocations_name_pods_once_and_are_limited() {
        let tenant = |pod: &str, ids: Vec<ShareId>| Tenant {
            namespace: Some("team".to_owned()),
            pod: Some(pod.to_owned()),
            ids,
            ..Tenant::default()
        };
        let share = |text: &str| vec![ShareId::whole(text)];
        let unit = |instance: u32, tenants: Vec<Tenant>| {
            serde_json::from_value(json!({
                "uuid": "MIG-1", "gpuInstance": instance, "profile": "1g.10gb", "tenants": tenants,
            }))
            .unwrap()
        };
        let device = |units: Vec<UnitUsage>| DeviceUsage {
            pci: "0000:07:00.0".parse().unwrap(),
            name: "GPU 0".to_owned(),
            memory: None,
            utilization: None,
            power_watts: None,
            temperature_celsius: None,
            units,
        };
        let usage =
            |units: Vec<UnitUsage>| Usage { devices: vec![device(units)], ..Usage::default() };
        let two = vec![tenant("a", share("x")), tenant("a", share("y")), tenant("b", Vec::new())];
        let listed = allocations(&usage(vec![unit(7, two), unit(8, Vec::new())]));
        assert_eq!(listed, ["Allocated to pods:", "  GPU 0 gi 7 (1g.10gb): team/a"]);
        assert_eq!(allocations(&usage(vec![unit(7, Vec::new())])), [""; 0]);
        let many = (0..20).map(|at| unit(at, vec![tenant("a", share("x"))])).collect();
        let listed = allocations(&usage(many));
        assert_eq!(listed.len(), 18);
        assert_eq!(listed.last().unwrap(), "  and 4 more, in `octavo top`");
    }

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
        let colored = layout_lines(&layout, Colors::On);
        assert_eq!(colored[1], "  GPU 1: \u{1b}[33mblocked\u{1b}[0m: in use by pid 7");
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
