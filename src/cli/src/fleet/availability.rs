//! `octavo availability`: a summary line per type, then the figures, then why the rest is unavailable.

use octavo_documents::availability::{AvailabilityList, AvailabilityRow, WaitJson};

use super::format;
use crate::settings::Colors;
use crate::settings::fleet::{FleetFormat, OutputOptions};
use crate::style::Style;
use crate::text::{Cell, columns, lines, printable};

const COLUMNS: [&str; 9] = [
    "TYPE", "RESOURCE", "UNIT", "FREE", "TAKEN", "UNUSABLE", "CAPACITY", "PENDING", "NODES",
];
const WIDE_COLUMNS: [&str; 5] = ["ALLOCATABLE", "COULD BECOME", "MEMORY", "WAIT", "SAID BY"];
const UNAVAILABLE_COLUMNS: [&str; 6] = [
    "TYPE",
    "RESOURCE",
    "UNUSABLE",
    "NODES",
    "REASON",
    "WHAT TO DO",
];
const WAIT_COLUMNS: [&str; 5] = [
    "TYPE",
    "RESOURCE",
    "WAIT BY",
    "WATCHED SINCE",
    "WHICH MEANS",
];

/// Formats availability as text; without headers, only the rows of figures.
pub(super) fn text(list: &AvailabilityList, printed: OutputOptions, colors: Colors) -> String {
    let is_wide = match printed.format {
        FleetFormat::Wide => true,
        FleetFormat::Table | FleetFormat::Json | FleetFormat::Yaml | FleetFormat::Name => false,
    };
    // Types without devices and without pending pods are shown only in the wide table.
    let shown: Vec<&AvailabilityRow> = list
        .items
        .iter()
        .filter(|row| is_wide || row.nodes > 0 || row.pending.pods > 0)
        .collect();
    let rows = shown.iter().map(|row| figures(row, is_wide));
    if !printed.with_headers() || shown.is_empty() {
        return columns(&rows.collect::<Vec<_>>(), colors);
    }
    let mut names = COLUMNS.to_vec();
    if is_wide {
        names.extend(WIDE_COLUMNS);
    }
    let table: Vec<Vec<Cell>> = [header(&names)].into_iter().chain(rows).collect();
    let mut parts = vec![summary(&shown), columns(&table, colors)];
    let reasons: Vec<Vec<Cell>> = shown.iter().flat_map(|row| reasons(row)).collect();
    if is_wide && !reasons.is_empty() {
        let table: Vec<Vec<Cell>> = [header(&UNAVAILABLE_COLUMNS)]
            .into_iter()
            .chain(reasons)
            .collect();
        parts.push(columns(&table, colors));
    }
    let evidence: Vec<Vec<Cell>> = shown.iter().filter_map(|row| evidence(row)).collect();
    if is_wide && !evidence.is_empty() {
        let table: Vec<Vec<Cell>> = [header(&WAIT_COLUMNS)]
            .into_iter()
            .chain(evidence)
            .collect();
        parts.push(columns(&table, colors));
    }
    parts.join("\n")
}

/// Returns notes that apply to all figures.
pub(super) fn notes(list: &AvailabilityList) -> Vec<String> {
    let mut notes: Vec<String> = list.starting.iter().map(format::starting).collect();
    if let Some(trouble) = &list.trouble {
        notes.push(format!(
            "the cluster is not followed: {}",
            printable(trouble)
        ));
    }
    if list.stale {
        let age = format::age(list.age_seconds);
        notes.push(format!("this was so {age} ago; it may be otherwise now"));
    }
    if list.basis != CLUSTER {
        notes.push(
            "counted by what agents see: free is what has no process, and what pods were promised is not known"
                .to_owned(),
        );
    }
    if list.left_out > 0 {
        let count = list.left_out;
        notes.push(format!(
            "{count} rows are left out: there are too many types or resources"
        ));
    }
    if list.items.is_empty() {
        notes.push("there is nothing of that kind in the fleet".to_owned());
    }
    notes
}

/// Basis of a count from Nodes and pods.
const CLUSTER: &str = "cluster";

/// Formats `NVIDIA H200 141GB - 4 available`: units of each shape, one line per type.
fn summary(rows: &[&AvailabilityRow]) -> String {
    let mut titles: Vec<(&str, Vec<String>)> = Vec::new();
    for row in rows {
        let free = match row.unit.as_str() {
            DEVICE => free_of(row),
            unit => format!("{} x {}", free_of(row), printable(unit)),
        };
        match titles.last_mut() {
            Some((title, all)) if *title == row.title => all.push(free),
            Some(_) | None => titles.push((&row.title, vec![free])),
        }
    }
    let all = titles.iter();
    lines(all.map(|(title, free)| format!("{} - {} available", printable(title), free.join(", "))))
}

const DEVICE: &str = "device";

/// Formats the number of free units; `?` if their use is not reported.
fn free_of(row: &AvailabilityRow) -> String {
    format::observed(row.free, row.unknown_units())
}

fn header(names: &[&str]) -> Vec<Cell> {
    let names = names.iter();
    names.map(|name| Cell::new(name, Style::Strong)).collect()
}

fn figures(row: &AvailabilityRow, is_wide: bool) -> Vec<Cell> {
    let free = if row.free > 0 {
        Style::Good
    } else {
        Style::Plain
    };
    let unknown = row.unknown_units();
    let unusable = row.unusable_units().saturating_sub(unknown);
    let waits = if row.pending.units > 0 {
        format!("{} ({})", row.pending.units, pods(row.pending.pods))
    } else {
        format::NONE.to_owned()
    };
    let mut cells = vec![
        Cell::plain(&row.type_name),
        Cell::plain(&row.resource),
        Cell::plain(&row.unit),
        Cell::new(&free_of(row), free),
        Cell::plain(&format::observed(row.used_units(), unknown)),
        Cell::new(&unusable.to_string(), notice(unusable > 0)),
        count(row.capacity),
        Cell::new(&waits, notice(row.pending.units > 0)),
        Cell::plain(&row.nodes.to_string()),
    ];
    if is_wide {
        cells.extend([
            count(row.allocatable),
            count(row.could_become),
            Cell::plain(
                &row.memory_mib
                    .map_or_else(|| format::NONE.to_owned(), format::memory),
            ),
            Cell::plain(&wait(&row.wait)),
            Cell::plain(&row.sources.join(", ")),
        ]);
    }
    cells
}

fn count(count: u64) -> Cell {
    Cell::plain(&count.to_string())
}

fn notice(is_so: bool) -> Style {
    if is_so { Style::Warning } else { Style::Plain }
}

fn pods(count: u64) -> String {
    match count {
        1 => "1 pod".to_owned(),
        several => format!("{several} pods"),
    }
}

/// Formats the wait: `none`, an interval of deadlines, the time by which one is free with its probability, or unknown.
fn wait(wait: &WaitJson) -> String {
    match (&wait.from, &wait.to) {
        (Some(from), Some(to)) if wait.basis == DEADLINES => format!("{from} to {to}"),
        (Some(from), Some(to)) => format!("even odds by {from}, 9 in 10 by {to}"),
        (Some(from), None) => format!("even odds by {from}"),
        (None, _) if wait.basis == FREE => "none".to_owned(),
        (None, _) => wait.basis.clone(),
    }
}

/// Returns the basis of the wait's estimate.
fn evidence(row: &AvailabilityRow) -> Option<Vec<Cell>> {
    let reason = row.wait.reason.as_ref()?;
    Some(vec![
        Cell::plain(&row.type_name),
        Cell::plain(&row.resource),
        Cell::plain(&row.wait.basis),
        Cell::plain(row.wait.since.as_deref().unwrap_or(format::NONE)),
        Cell::plain(reason),
    ])
}

/// Basis of a wait when a unit is free.
const FREE: &str = "free";
/// Basis of a wait that derives from pods' deadlines only.
const DEADLINES: &str = "deadlines";

fn reasons(row: &AvailabilityRow) -> Vec<Vec<Cell>> {
    let all = row.unusable.iter();
    all.map(|one| {
        vec![
            Cell::plain(&row.type_name),
            Cell::plain(&row.resource),
            count(one.count),
            Cell::plain(&one.nodes.to_string()),
            Cell::new(&one.reason, Style::Warning),
            Cell::plain(&one.message),
        ]
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use octavo_documents::availability::{PendingJson, UnusableJson};

    use super::*;
    use crate::settings::Headers;

    fn row(resource: &str, unit: &str, free: u64) -> AvailabilityRow {
        AvailabilityRow {
            type_name: "nvidia-h200-141gb".to_owned(),
            title: "NVIDIA H200 141GB".to_owned(),
            resource: resource.to_owned(),
            unit: unit.to_owned(),
            exclusive: true,
            memory_mib: Some(143_771),
            nodes: 2,
            capacity: 8,
            allocatable: 8,
            requested: Some(8 - free - 1),
            in_use: None,
            free,
            unusable: vec![UnusableJson {
                reason: "cordoned".to_owned(),
                message: "the node is cordoned".to_owned(),
                count: 1,
                nodes: 1,
            }],
            pending: PendingJson { pods: 1, units: 2 },
            could_become: 0,
            wait: WaitJson {
                basis: "unknown".to_owned(),
                reason: Some("no pod that holds one says when it ends".to_owned()),
                ..WaitJson::default()
            },
            sources: vec!["agent".to_owned()],
        }
    }

    fn list(items: Vec<AvailabilityRow>) -> AvailabilityList {
        AvailabilityList {
            api_version: "octavo.dev/v1".to_owned(),
            kind: "AvailabilityList".to_owned(),
            revision: 1,
            basis: CLUSTER.to_owned(),
            as_of: "2026-01-01T00:00:00Z".to_owned(),
            age_seconds: 3,
            stale: false,
            trouble: None,
            starting: None,
            left_out: 0,
            items,
        }
    }

    fn shown(list: &AvailabilityList, format: FleetFormat, headers: Headers) -> String {
        text(list, OutputOptions { format, headers }, Colors::Off)
    }

    #[test]
    fn summary_line_precedes_figures() {
        let list = list(vec![
            row("nvidia.com/gpu", "device", 4),
            row("nvidia.com/mig-1g.18gb", "1g.18gb", 3),
        ]);
        assert_eq!(
            shown(&list, FleetFormat::Table, Headers::Shown),
            "\
NVIDIA H200 141GB - 4, 3 x 1g.18gb available

TYPE               RESOURCE                UNIT     FREE  TAKEN  UNUSABLE  CAPACITY  PENDING    NODES
nvidia-h200-141gb  nvidia.com/gpu          device   4     3      1         8         2 (1 pod)  2
nvidia-h200-141gb  nvidia.com/mig-1g.18gb  1g.18gb  3     4      1         8         2 (1 pod)  2
"
        );
        assert_eq!(notes(&list), Vec::<String>::new());
    }

    #[test]
    fn devices_whose_use_is_not_reported_are_unknown_and_not_unusable() {
        let mut silent = row("amd.com/gpu", "device", 0);
        silent.requested = None;
        silent.in_use = Some(0);
        silent.unusable[0] = UnusableJson {
            reason: "use-unknown".to_owned(),
            message: "the driver does not report whether they are in use".to_owned(),
            count: 8,
            nodes: 1,
        };
        let text = shown(&list(vec![silent]), FleetFormat::Table, Headers::Shown);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "NVIDIA H200 141GB - ? available");
        let figures: Vec<&str> = lines[3].split_whitespace().collect();
        assert_eq!(figures[3..7], ["?", "?", "0", "8"]);
    }

    #[test]
    fn wide_table_lists_unavailable_reasons() {
        let list = list(vec![row("nvidia.com/gpu", "device", 4)]);
        let wide = shown(&list, FleetFormat::Wide, Headers::Shown);
        assert!(
            wide.ends_with(
                "\
TYPE               RESOURCE        UNUSABLE  NODES  REASON    WHAT TO DO
nvidia-h200-141gb  nvidia.com/gpu  1         1      cordoned  the node is cordoned

TYPE               RESOURCE        WAIT BY  WATCHED SINCE  WHICH MEANS
nvidia-h200-141gb  nvidia.com/gpu  unknown  -              no pod that holds one says when it ends
"
            ),
            "{wide}"
        );
        let bare = shown(&list, FleetFormat::Table, Headers::Hidden);
        assert_eq!(
            bare,
            "nvidia-h200-141gb  nvidia.com/gpu  device  4  3  1  8  2 (1 pod)  2\n"
        );
    }

    #[test]
    fn ac_008_wait_is_a_deadline_interval_or_a_quantile() {
        let [from, to] = ["2026-01-01T10:00:00Z", "2026-01-01T12:00:00Z"].map(str::to_owned);
        let mut told = WaitJson {
            basis: "history".to_owned(),
            from: Some(from),
            to: Some(to),
            ..WaitJson::default()
        };
        let likely = "even odds by 2026-01-01T10:00:00Z, 9 in 10 by 2026-01-01T12:00:00Z";
        assert_eq!(wait(&told), likely);
        told.basis = DEADLINES.to_owned();
        assert_eq!(wait(&told), "2026-01-01T10:00:00Z to 2026-01-01T12:00:00Z");
        told.basis = "history".to_owned();
        told.to = None;
        assert_eq!(wait(&told), "even odds by 2026-01-01T10:00:00Z");
        told.from = None;
        assert_eq!(wait(&told), "history");
        told.basis = FREE.to_owned();
        assert_eq!(wait(&told), "none");
    }

    #[test]
    fn stale_or_unwatched_data_has_a_note() {
        let mut list = list(Vec::new());
        list.stale = true;
        list.age_seconds = 90;
        list.basis = "agents".to_owned();
        list.trouble = Some("the API server does not answer".to_owned());
        let notes = notes(&list).join("\n");
        for said in [
            "the cluster is not followed: the API server does not answer",
            "this was so",
            "counted by what agents see",
            "there is nothing of that kind",
        ] {
            assert!(notes.contains(said), "{notes}");
        }
    }
}
