//! Page of a hardware profile: its resources, the nodes it reaches, and findings.

use askama::Template;
use octavo_fleet::hardware_profile::document::ProfileRow;
use octavo_fleet::hardware_profile::{Identifier, ProfileAnnotations};
use octavo_model::text::shell_word;

use super::{Badge, Estimate, FindingRow, Frame, key, memory_of, reach_summary, types, verdict};

use crate::badges::printable;

#[derive(Template)]
#[template(path = "profile.html")]
pub(super) struct ProfilePage {
    frame: Frame,
    name: String,
    namespace: String,
    key: String,
    shown: String,
    badge: Badge,
    notice: Option<String>,
    description: Option<String>,
    facts: Vec<(&'static str, String)>,
    findings: Vec<FindingRow>,
    counts: Vec<Identifier>,
    goes_to: Vec<String>,
    reached: Vec<ReachRow>,
    /// `None` for a profile without an accelerator.
    estimate: Option<Estimate>,
    origin: String,
    path: String,
}

/// Row of reachable nodes: those of one type, those with several types, or those without a known accelerator.
#[derive(Debug, PartialEq, Eq)]
struct ReachRow {
    type_name: String,
    nodes: u32,
    devices: u64,
    available: u64,
}

/// Builds the page of a profile, for a reader who reached this server at `origin`.
pub(super) fn page(
    frame: Frame,
    row: &ProfileRow,
    annotations: &ProfileAnnotations,
    notice: Option<String>,
    (origin, estimate): (&str, Option<Estimate>),
) -> ProfilePage {
    ProfilePage {
        frame,
        name: shell_word(&printable(&row.name)),
        namespace: shell_word(&printable(&row.namespace)),
        key: printable(&key(row)),
        shown: printable(&row.display_name),
        badge: verdict(row),
        notice: notice.map(|text| printable(&text)),
        description: row.description.as_deref().map(printable),
        facts: facts(row, annotations),
        findings: row.findings.iter().map(FindingRow::of).collect(),
        counts: row.identifiers.clone(),
        goes_to: scheduling_lines(row),
        reached: reached(row),
        estimate,
        origin: origin.to_owned(),
        path: super::href(row),
    }
}

/// Rows that add up to the totals of reachable nodes and of workloads that fit.
fn reached(row: &ProfileRow) -> Vec<ReachRow> {
    let Some(reach) = &row.reach else {
        return Vec::new();
    };
    let alone = reach.types.iter().map(|one| ReachRow {
        type_name: match &one.type_name {
            Some(name) => printable(name.as_str()),
            None => "type unknown".to_owned(),
        },
        nodes: one.nodes.saturating_sub(one.mixed_nodes),
        devices: one.devices.saturating_sub(one.mixed_devices),
        available: one.free,
    });
    let mut rows: Vec<ReachRow> = alone.filter(|one| one.nodes > 0).collect();
    if reach.mixed > 0 {
        let devices = reach.types.iter().map(|one| one.mixed_devices);
        rows.push(ReachRow {
            type_name: "nodes with several types".to_owned(),
            nodes: reach.mixed,
            devices: devices.fold(0, u64::saturating_add),
            available: reach.mixed_free,
        });
    }
    let nodes = rows.iter().map(|one| one.nodes);
    let available = rows.iter().map(|one| one.available);
    let other = ReachRow {
        type_name: "no accelerator".to_owned(),
        nodes: reach.nodes.saturating_sub(nodes.fold(0, u32::saturating_add)),
        devices: 0,
        available: row
            .available
            .unwrap_or(0)
            .saturating_sub(available.fold(0, u64::saturating_add)),
    };
    if other.nodes > 0 {
        rows.push(other);
    }
    rows
}

fn facts(row: &ProfileRow, annotations: &ProfileAnnotations) -> Vec<(&'static str, String)> {
    let enabled = if row.enabled { "yes" } else { "no" };
    let all = [
        ("Type", Some(types(row))),
        ("Device memory", row.memory_mib.map(memory_of)),
        ("Architecture", row.architecture.as_deref().map(printable)),
        ("Compute capability", row.compute_capability.as_deref().map(printable)),
        ("Memory bandwidth", row.memory_bandwidth_gbs.map(|rate| format!("{rate} GB/s"))),
        ("Matching nodes", Some(reach_summary(row))),
        ("Available", row.available.map(|free| format!("room for {free} more workloads"))),
        ("Enabled", Some(enabled.to_owned())),
        ("Kind", Some(row.object_kind.as_str().to_owned())),
        ("Created by", annotations.by.as_deref().map(printable)),
        ("Reason", annotations.reason.as_deref().map(printable)),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// Scheduling of the profile's workloads, one line per constraint.
fn scheduling_lines(row: &ProfileRow) -> Vec<String> {
    let to = &row.scheduling;
    let mut lines: Vec<String> = { to.node_selector.iter() }
        .map(|(key, value)| format!("Node selector: {key}={value}"))
        .collect();
    lines.extend(to.tolerates.iter().map(|key| match key.as_str() {
        "" => "Tolerates all taints".to_owned(),
        key => format!("Tolerates the taint {key}"),
    }));
    lines.extend(
        { to.local_queue.iter() }
            .map(|name| format!("Local queue {name}: its flavors select the nodes")),
    );
    if lines.is_empty() {
        lines.push("No scheduling constraints".to_owned());
    }
    lines.iter().map(|line| printable(line)).collect()
}
