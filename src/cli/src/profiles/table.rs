//! Profiles as rows, one profile in detail, and the findings of each.

use octavo_fleet::hardware_profile::document::{
    FindingRow, ProfileDetail, ProfileRow, SchedulingSummary,
};
use octavo_fleet::hardware_profile::{FindingSeverity, Identifier, MatchingNodes};
use octavo_model::id::TypeName;

use crate::fleet::format;
use crate::settings::Colors;
use crate::settings::fleet::OutputOptions;
use crate::style::Style;
use crate::text::{self, Cell, NONE, columns, printable, wrap};

const COLUMNS: [&str; 7] =
    ["NAME", "DISPLAY NAME", "TYPE", "MEMORY", "NODES", "AVAILABLE", "FINDINGS"];
/// Further columns of the wide table.
const WIDE_COLUMNS: [&str; 5] = ["NAMESPACE", "KIND", "ARCHITECTURE", "REQUESTS", "NODE SELECTION"];

/// Formats one row per profile. AVAILABLE is the number of further workloads with its default counts that fit now.
pub(super) fn list(rows: &[ProfileRow], printed: OutputOptions, colors: Colors) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let wide: &[&str] = if printed.is_wide() { &WIDE_COLUMNS } else { &[] };
    text::table(&[&COLUMNS, wide], rows.iter().map(cells), printed.headers, colors)
}

fn cells(row: &ProfileRow) -> Vec<Cell> {
    vec![
        Cell::plain(&row.name),
        Cell::plain(&row.display_name),
        Cell::plain(&of_types(row)),
        Cell::optional(row.memory_mib.map(format::memory)),
        Cell::optional(row.reach.as_ref().map(|reach| reach.nodes)),
        available(row.available),
        most_severe(row),
        Cell::plain(&row.namespace),
        Cell::plain(row.object_kind.as_str()),
        Cell::optional(row.architecture.as_deref()),
        Cell::plain(&asks(row)),
        Cell::plain(&goes(&row.scheduling)),
    ]
}

pub(super) fn of_types(row: &ProfileRow) -> String {
    if row.types.is_empty() {
        return NONE.to_owned();
    }
    let types: Vec<&str> = row.types.iter().map(TypeName::as_str).collect();
    types.join(",")
}

fn available(count: Option<u64>) -> Cell {
    match count {
        None => Cell::plain(NONE),
        Some(0) => Cell::new("0", Style::Warning),
        Some(count) => Cell::new(&count, Style::Good),
    }
}

/// Formats the number of findings of the highest severity.
fn most_severe(row: &ProfileRow) -> Cell {
    let count = |severity: FindingSeverity| {
        row.findings.iter().filter(|one| one.severity == severity).count()
    };
    for (severity, style) in [
        (FindingSeverity::Error, Style::Bad),
        (FindingSeverity::Warning, Style::Warning),
        (FindingSeverity::Note, Style::Faint),
    ] {
        let word = severity.as_str();
        match count(severity) {
            0 => {}
            1 => return Cell::new(&format!("1 {word}"), style),
            many => return Cell::new(&format!("{many} {word}s"), style),
        }
    }
    Cell::plain("none")
}

fn asks(row: &ProfileRow) -> String {
    let of = |one: &Identifier| format!("{} {}", one.default, one.resource);
    let all: Vec<String> = row.identifiers.iter().map(of).collect();
    if all.is_empty() { NONE.to_owned() } else { all.join(", ") }
}

fn goes(scheduling: &SchedulingSummary) -> String {
    let labels: Vec<String> =
        scheduling.node_selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
    match (&scheduling.local_queue, labels.is_empty()) {
        (Some(queue), _) => format!("queue {queue}"),
        (None, true) => "any node".to_owned(),
        (None, false) => labels.join(","),
    }
}

/// Formats one profile with all details.
pub(super) fn whole(detail: &ProfileDetail, colors: Colors) -> String {
    let row = &detail.row;
    let mut facts = vec![
        ("Profile", format!("{}/{} ({})", row.namespace, row.name, row.object_kind.as_str())),
        ("Display name", row.display_name.clone()),
        ("Type", of_types(row)),
    ];
    facts.extend(row.memory_mib.map(|memory| ("Memory", format::memory(memory))));
    facts.extend(row.architecture.clone().map(|name| ("Architecture", name)));
    let capability = row.compute_capability.clone();
    facts.extend(capability.map(|number| ("Compute capability", number)));
    let bandwidth = row.memory_bandwidth_gbs;
    facts.extend(bandwidth.map(|speed| ("Memory bandwidth", format!("{speed} GB/s"))));
    facts.push(("Requests", asks(row)));
    facts.push(("Node selection", goes(&row.scheduling)));
    facts.extend(row.reach.as_ref().map(|reach| ("Matching nodes", reaches(reach))));
    facts.extend(row.available.map(|count| ("Available", count.to_string())));
    facts.extend(detail.created_by.clone().map(|who| ("Created by", who)));
    facts.extend(detail.reason.clone().map(|why| ("Reason", why)));
    if !row.enabled {
        facts.push(("Disabled", "users cannot select it".to_owned()));
    }
    let rows: Vec<Vec<Cell>> = facts
        .iter()
        .map(|(name, value)| vec![Cell::new(name, Style::Strong), Cell::plain(value)])
        .collect();
    let mut text = columns(&rows, colors);
    if !row.findings.is_empty() {
        text.push('\n');
        text.push_str(&format_findings(&row.findings, colors));
    }
    text
}

fn reaches(reach: &MatchingNodes) -> String {
    let nodes = match reach.nodes {
        0 => return format!("none of the {} selected nodes", reach.selected),
        1 => "1 node".to_owned(),
        many => format!("{many} nodes"),
    };
    let closed = match reach.unavailable_nodes {
        0 => String::new(),
        closed => format!(" ({closed} currently unavailable)"),
    };
    let types = reach.types.iter().map(|one| {
        let name = one.type_name.as_ref().map_or("unknown", TypeName::as_str);
        format!("{}x {name}", one.devices)
    });
    let types: Vec<String> = types.collect();
    if types.is_empty() {
        return format!("{nodes}{closed}");
    }
    format!("{nodes}{closed} with {}", types.join(", "))
}

/// Formats the findings of each profile that has any.
pub(super) fn findings(rows: &[ProfileRow], colors: Colors) -> String {
    let pages: Vec<String> = rows
        .iter()
        .map(|row| {
            let name = format!("{}/{}", row.namespace, row.name);
            let name = Style::Strong.paint(&printable(&name), colors);
            format!("{name}\n{}", format_findings(&row.findings, colors))
        })
        .collect();
    pages.join("\n")
}

/// Formats findings, each with its recommended action.
fn format_findings(findings: &[FindingRow], colors: Colors) -> String {
    let mut text = String::new();
    for one in findings {
        let style = match one.severity.known() {
            Some(FindingSeverity::Error) => Style::Bad,
            Some(FindingSeverity::Warning) => Style::Warning,
            Some(FindingSeverity::Note) | None => Style::Faint,
        };
        let severity = one.severity.as_str();
        let line = wrap(&format!("  {severity}: {}", one.message), 4);
        let start = format!("  {severity}");
        let rest = line.strip_prefix(&start).unwrap_or(&line);
        text.push_str("  ");
        text.push_str(&style.paint(&printable(severity), colors));
        text.push_str(rest);
        text.push('\n');
        text.push_str(&wrap(&format!("    {}", one.remedy), 4));
        text.push('\n');
    }
    text
}
