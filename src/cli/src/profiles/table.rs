//! Profiles as rows, one profile in detail, and the findings of each.

use octavo_documents::hardware_profiles::document::{
    FindingJson, ProfileDetail, ProfileRow, ReachJson, SchedulingJson,
};

use crate::fleet::format;
use crate::settings::Colors;
use crate::settings::fleet::{FleetFormat, OutputOptions};
use crate::style::Style;
use crate::text::{Cell, columns, printable, wrap};

const COLUMNS: [&str; 7] = [
    "NAME",
    "DISPLAY NAME",
    "TYPE",
    "MEMORY",
    "NODES",
    "AVAILABLE",
    "FINDINGS",
];
const WIDE_COLUMNS: [&str; 5] = ["NAMESPACE", "KIND", "ARCHITECTURE", "ASKS FOR", "GOES TO"];
const NOTHING: &str = "-";

/// Formats one row per profile. AVAILABLE is the number of further workloads with its default counts that fit now.
pub(super) fn list(rows: &[ProfileRow], printed: OutputOptions, colors: Colors) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let wide = printed.format == FleetFormat::Wide;
    let more: &[&str] = if wide { &WIDE_COLUMNS } else { &[] };
    let names = COLUMNS.iter().chain(more);
    let header = printed
        .with_headers()
        .then(|| names.map(|name| Cell::new(name, Style::Strong)).collect());
    let rows = rows.iter().map(|row| cells(row, wide));
    let all: Vec<Vec<Cell>> = header.into_iter().chain(rows).collect();
    columns(&all, colors)
}

fn cells(row: &ProfileRow, wide: bool) -> Vec<Cell> {
    let mut cells = vec![
        Cell::plain(&row.name),
        Cell::plain(&row.display_name),
        Cell::plain(&of_types(row)),
        Cell::plain(
            &row.memory_mib
                .map_or_else(|| NOTHING.to_owned(), format::memory),
        ),
        Cell::plain(
            &row.reach
                .as_ref()
                .map_or_else(|| NOTHING.to_owned(), |reach| reach.nodes.to_string()),
        ),
        available(row.available),
        gravest(row),
    ];
    if wide {
        cells.extend([
            Cell::plain(&row.namespace),
            Cell::plain(&row.object_kind),
            Cell::plain(row.architecture.as_deref().unwrap_or(NOTHING)),
            Cell::plain(&asks(row)),
            Cell::plain(&goes(&row.scheduling)),
        ]);
    }
    cells
}

pub(super) fn of_types(row: &ProfileRow) -> String {
    if row.types.is_empty() {
        return NOTHING.to_owned();
    }
    row.types.join(",")
}

fn available(count: Option<u64>) -> Cell {
    match count {
        None => Cell::plain(NOTHING),
        Some(0) => Cell::new("0", Style::Warning),
        Some(count) => Cell::new(&count.to_string(), Style::Good),
    }
}

/// Formats the number of findings of the highest severity.
fn gravest(row: &ProfileRow) -> Cell {
    let count = |gravity: &str| {
        row.findings
            .iter()
            .filter(|one| one.gravity == gravity)
            .count()
    };
    for (gravity, ink) in [
        ("error", Style::Bad),
        ("warning", Style::Warning),
        ("note", Style::Faint),
    ] {
        match count(gravity) {
            0 => {}
            1 => return Cell::new(&format!("1 {gravity}"), ink),
            many => return Cell::new(&format!("{many} {gravity}s"), ink),
        }
    }
    Cell::plain("none")
}

fn asks(row: &ProfileRow) -> String {
    let of = |one: &octavo_documents::hardware_profiles::document::IdentifierJson| {
        format!("{} {}", one.default, one.identifier)
    };
    let all: Vec<String> = row.identifiers.iter().map(of).collect();
    if all.is_empty() {
        NOTHING.to_owned()
    } else {
        all.join(", ")
    }
}

fn goes(scheduling: &SchedulingJson) -> String {
    let labels: Vec<String> = scheduling
        .node_selector
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
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
        (
            "Profile",
            format!("{}/{} ({})", row.namespace, row.name, row.object_kind),
        ),
        ("Shown as", row.display_name.clone()),
        ("Type", of_types(row)),
    ];
    facts.extend(
        row.memory_mib
            .map(|memory| ("Memory", format::memory(memory))),
    );
    facts.extend(row.architecture.clone().map(|name| ("Architecture", name)));
    let capability = row.compute_capability.clone();
    facts.extend(capability.map(|number| ("Compute capability", number)));
    let bandwidth = row.memory_bandwidth_gbs;
    facts.extend(bandwidth.map(|speed| ("Memory bandwidth", format!("{speed} GB/s"))));
    facts.push(("Asks for", asks(row)));
    facts.push(("Goes to", goes(&row.scheduling)));
    facts.extend(row.reach.as_ref().map(|reach| ("Reaches", reaches(reach))));
    facts.extend(row.available.map(|count| ("Available", count.to_string())));
    facts.extend(detail.created_by.clone().map(|who| ("Made by", who)));
    facts.extend(detail.reason.clone().map(|why| ("Because", why)));
    if !row.enabled {
        facts.push(("Disabled", "nobody can pick it".to_owned()));
    }
    let rows: Vec<Vec<Cell>> = facts
        .iter()
        .map(|(name, value)| vec![Cell::new(name, Style::Strong), Cell::plain(value)])
        .collect();
    let mut text = columns(&rows, colors);
    if !row.findings.is_empty() {
        text.push('\n');
        text.push_str(&told(&row.findings, colors));
    }
    text
}

fn reaches(reach: &ReachJson) -> String {
    let nodes = match reach.nodes {
        0 => return format!("nothing, of {} nodes that it selects", reach.selected),
        1 => "1 node".to_owned(),
        many => format!("{many} nodes"),
    };
    let closed = match reach.closed {
        0 => String::new(),
        closed => format!(" ({closed} of them closed now)"),
    };
    let types = reach.types.iter().map(|one| {
        let name = one.type_name.as_deref().unwrap_or("unknown");
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
            format!("{name}\n{}", told(&row.findings, colors))
        })
        .collect();
    pages.join("\n")
}

/// Formats findings, each with its recommended action.
fn told(findings: &[FindingJson], colors: Colors) -> String {
    let mut text = String::new();
    for one in findings {
        let ink = match one.gravity.as_str() {
            "error" => Style::Bad,
            "warning" => Style::Warning,
            _ => Style::Faint,
        };
        let line = wrap(&format!("  {}: {}", one.gravity, one.message), 4);
        let start = format!("  {}", one.gravity);
        let rest = line.strip_prefix(&start).unwrap_or(&line);
        text.push_str("  ");
        text.push_str(&ink.paint(&printable(&one.gravity), colors));
        text.push_str(rest);
        text.push('\n');
        text.push_str(&wrap(&format!("    {}", one.remedy), 4));
        text.push('\n');
    }
    text
}
