//! `octavo availability`: a summary line per type, then the figures, then why the rest is unavailable.

use octavo_fleet::availability::{
    AvailabilityList, AvailabilityRow, CountBasis, Shape, WaitBasis, WaitReport,
};
use octavo_fleet::summary::DeviceUse;

use super::format;
use crate::settings::Colors;
use crate::settings::fleet::OutputOptions;
use crate::style::Style;
use crate::text::{self, Cell, NONE, lines, printable};

const COLUMNS: [&str; 9] =
    ["TYPE", "RESOURCE", "UNIT", "FREE", "USED", "UNAVAILABLE", "CAPACITY", "PENDING", "NODES"];
/// Further columns of the wide table.
const WIDE_COLUMNS: [&str; 6] =
    ["PASSTHROUGH", "UNKNOWN", "ALLOCATABLE", "MEMORY", "WAIT", "SOURCE"];
/// Each row is an alternative, because the same devices count in every row.
const REPARTITIONED_COLUMNS: [&str; 4] =
    ["TYPE", "UNIT", "MORE IN UNUSED SLICES", "MORE IF REPARTITIONED"];
const UNAVAILABLE_COLUMNS: [&str; 6] =
    ["TYPE", "RESOURCE", "UNAVAILABLE", "NODES", "REASON", "REMEDY"];
const WAIT_COLUMNS: [&str; 5] = ["TYPE", "RESOURCE", "BASIS", "OBSERVED SINCE", "MEANING"];

/// Formats availability as text; without headers, only the rows of figures.
pub(super) fn text(list: &AvailabilityList, printed: OutputOptions, colors: Colors) -> String {
    let is_wide = printed.is_wide();
    // Types without devices and without pending pods are shown only in the wide table.
    let shown: Vec<&AvailabilityRow> =
        list.items.iter().filter(|row| is_wide || row.nodes > 0 || row.pending.pods > 0).collect();
    if shown.is_empty() {
        return String::new();
    }
    let wide: &[&str] = if is_wide { &WIDE_COLUMNS } else { &[] };
    let figures = shown.iter().map(|row| figures(row));
    let figures = text::table(&[&COLUMNS, wide], figures, printed.headers, colors);
    if !printed.with_headers() {
        return figures;
    }
    let mut parts = vec![summary(&shown), figures];
    if is_wide {
        let reasons: Vec<Vec<Cell>> = shown.iter().flat_map(|row| reasons(row)).collect();
        let evidence: Vec<Vec<Cell>> = shown.iter().filter_map(|row| evidence(row)).collect();
        let alternatives: Vec<Vec<Cell>> =
            shown.iter().filter_map(|row| repartitioned(row)).collect();
        let details = [
            (&REPARTITIONED_COLUMNS[..], alternatives),
            (&UNAVAILABLE_COLUMNS[..], reasons),
            (&WAIT_COLUMNS[..], evidence),
        ];
        let details = details.into_iter().filter(|(_, rows)| !rows.is_empty());
        parts.extend(
            details.map(|(names, rows)| text::table(&[names], rows, printed.headers, colors)),
        );
    }
    parts.join("\n")
}

/// Returns notes that apply to all figures.
pub(super) fn notes(list: &AvailabilityList) -> Vec<String> {
    let mut notes: Vec<String> = list.starting.iter().map(format::starting).collect();
    if let Some(error) = &list.error {
        notes.push(format!("the cluster is not watched: {}", printable(error)));
    }
    if list.stale {
        let age = format::age(list.age_seconds);
        notes.push(format!("the data is {age} old"));
    }
    if list.basis != CountBasis::Cluster {
        notes.push(
            "based on agents only: devices without a process count as free, and allocations to \
             pods are unknown"
                .to_owned(),
        );
    }
    if list.left_out > 0 {
        let count = list.left_out;
        notes.push(format!(
            "{count} rows are omitted, because there are too many types or \
                            resources"
        ));
    }
    if list.items.is_empty() {
        notes.push("no matching devices in the fleet".to_owned());
    }
    notes
}

/// Formats `NVIDIA H200 141GB - 4 available`: units of each shape, one line per type.
fn summary(rows: &[&AvailabilityRow]) -> String {
    let mut titles: Vec<(&str, Vec<String>)> = Vec::new();
    for row in rows {
        let free = if row.unit == Shape::Device {
            free_of(row)
        } else {
            format!("{} x {}", free_of(row), printable(&row.unit.to_string()))
        };
        match titles.last_mut() {
            Some((title, all)) if *title == row.title => all.push(free),
            Some(_) | None => titles.push((&row.title, vec![free])),
        }
    }
    let all = titles.iter();
    lines(all.map(|(title, free)| {
        // Units without a free one only distract from the others.
        let some: Vec<&str> =
            free.iter().map(String::as_str).filter(|units| !is_none(units)).collect();
        let first = free.first().map_or("0", String::as_str);
        let text = if some.is_empty() { first.to_owned() } else { some.join(", ") };
        format!("{} - {text} available", printable(title))
    }))
}

fn is_none(units: &str) -> bool {
    units == "0" || units.starts_with("0 x ")
}

/// Returns how many units the free devices would have if they were all repartitioned for this unit.
fn repartitioned(row: &AvailabilityRow) -> Option<Vec<Cell>> {
    (row.could_become > 0).then(|| {
        vec![
            Cell::plain(&row.type_name),
            Cell::plain(&row.unit),
            Cell::plain(&row.could_add),
            Cell::plain(&row.could_become),
        ]
    })
}

/// Formats the number of free units; `?` if their use is not reported.
fn free_of(row: &AvailabilityRow) -> String {
    format::observed(row.free_units())
}

fn figures(row: &AvailabilityRow) -> Vec<Cell> {
    let free = if row.free_units() > Some(0) { Style::Good } else { Style::Plain };
    let unusable = row.units_with_use(DeviceUse::Unavailable);
    let waits = if row.pending.units > 0 {
        format!("{} ({})", row.pending.units, pods(row.pending.pods))
    } else {
        NONE.to_owned()
    };
    vec![
        Cell::plain(&row.type_name),
        Cell::plain(&row.resource),
        Cell::plain(&row.unit),
        Cell::new(&free_of(row), free),
        Cell::plain(&format::observed(row.used_units())),
        Cell::new(&unusable, notice(unusable > 0)),
        Cell::plain(&row.capacity),
        Cell::new(&waits, notice(row.pending.units > 0)),
        Cell::plain(&row.nodes),
        Cell::plain(&row.units_with_use(DeviceUse::Passthrough)),
        Cell::plain(&row.units_with_use(DeviceUse::Unknown)),
        Cell::plain(&row.allocatable),
        Cell::optional(row.memory.map(|memory| format::memory(memory.get()))),
        Cell::plain(&wait(&row.wait)),
        Cell::plain(&sources(row)),
    ]
}

fn sources(row: &AvailabilityRow) -> String {
    let all: Vec<String> = row.sources.iter().map(ToString::to_string).collect();
    all.join(", ")
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
fn wait(wait: &WaitReport) -> String {
    match (&wait.from, &wait.to) {
        (Some(from), Some(to)) if wait.basis == WaitBasis::Deadlines => format!("{from} to {to}"),
        (Some(from), Some(to)) => format!("50% by {from}, 90% by {to}"),
        (Some(from), None) => format!("50% by {from}"),
        (None, _) if wait.basis == WaitBasis::Free => "none".to_owned(),
        (None, _) => wait.basis.to_string(),
    }
}

/// Returns the basis of the wait's estimate.
fn evidence(row: &AvailabilityRow) -> Option<Vec<Cell>> {
    let reason = row.wait.reason.as_ref()?;
    Some(vec![
        Cell::plain(&row.type_name),
        Cell::plain(&row.resource),
        Cell::plain(&row.wait.basis),
        Cell::optional(row.wait.since.as_deref()),
        Cell::plain(reason),
    ])
}

fn reasons(row: &AvailabilityRow) -> Vec<Vec<Cell>> {
    let all = row.unusable.iter();
    all.map(|one| {
        vec![
            Cell::plain(&row.type_name),
            Cell::plain(&row.resource),
            Cell::plain(&one.count),
            Cell::plain(&one.nodes),
            Cell::new(&one.reason, Style::Warning),
            Cell::plain(&one.message),
        ]
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use octavo_fleet::availability::{Pending, UnavailableReason, UnusableUnits};
    use octavo_fleet::type_source::TypeSource;
    use octavo_model::quantity::Mebibytes;
    use octavo_model::reported::Reported;

    use super::*;
    use crate::settings::Headers;
    use crate::settings::fleet::FleetFormat;

    fn row(resource: &str, unit: &str, free: u64) -> AvailabilityRow {
        AvailabilityRow {
            type_name: "nvidia-h200-141gb".to_owned(),
            title: "NVIDIA H200 141GB".to_owned(),
            resource: resource.to_owned(),
            unit: unit.parse().map_or_else(|_| Reported::Unknown(unit.to_owned()), Reported::Known),
            exclusive: true,
            memory: Some(Mebibytes::new(143_771)),
            nodes: 2,
            capacity: 8,
            allocatable: 8,
            requested: Some(8 - free - 1),
            in_use: None,
            free: Some(free),
            unusable: vec![UnusableUnits {
                reason: UnavailableReason::Cordoned.into(),
                message: "the node is cordoned".to_owned(),
                count: 1,
                nodes: 1,
            }],
            pending: Pending { pods: 1, units: 2 },
            could_add: 0,
            could_become: 0,
            wait: WaitReport {
                reason: Some("none of the pods that use them has a deadline".to_owned()),
                basis: WaitBasis::Unknown.into(),
                ..WaitReport::default()
            },
            sources: vec![TypeSource::Agent.into()],
        }
    }

    fn list(items: Vec<AvailabilityRow>) -> AvailabilityList {
        AvailabilityList {
            api_version: "octavo.dev/v1".to_owned(),
            kind: "AvailabilityList".to_owned(),
            revision: 1,
            basis: CountBasis::Cluster.into(),
            as_of: "2026-01-01T00:00:00Z".to_owned(),
            age_seconds: 3,
            stale: false,
            error: None,
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

TYPE               RESOURCE                UNIT     FREE  USED  UNAVAILABLE  CAPACITY  PENDING    NODES
nvidia-h200-141gb  nvidia.com/gpu          device   4     3     1            8         2 (1 pod)  2
nvidia-h200-141gb  nvidia.com/mig-1g.18gb  1g.18gb  3     4     1            8         2 (1 pod)  2
"
        );
        assert_eq!(notes(&list), Vec::<String>::new());
    }

    #[test]
    fn units_without_a_free_one_are_not_in_the_summary() {
        let mut small = row("nvidia.com/mig-1g.18gb", "1g.18gb", 3);
        (small.could_add, small.could_become) = (5, 14);
        let mut some = list(vec![row("nvidia.com/gpu", "device", 0), small]);
        let text = shown(&some, FleetFormat::Wide, Headers::Shown);
        assert!(text.starts_with("NVIDIA H200 141GB - 3 x 1g.18gb available\n"), "{text}");
        let alternatives = "TYPE               UNIT     MORE IN UNUSED SLICES  MORE IF REPARTITIONED\n\
                            nvidia-h200-141gb  1g.18gb  5                      14\n\n";
        assert!(text.contains(alternatives), "{text}");
        some.items.iter_mut().for_each(|row| row.free = Some(0));
        let text = shown(&some, FleetFormat::Table, Headers::Shown);
        assert!(text.starts_with("NVIDIA H200 141GB - 0 available\n"), "{text}");
    }

    #[test]
    fn devices_with_unreported_use_are_unknown_and_not_unusable() {
        let mut silent = row("amd.com/gpu", "device", 0);
        silent.requested = None;
        silent.in_use = Some(0);
        silent.unusable[0] = UnusableUnits {
            reason: UnavailableReason::UseUnknown.into(),
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
    fn passthrough_units_are_not_unavailable() {
        let mut passed = row("nvidia.com/gpu", "device", 0);
        passed.requested = Some(0);
        passed.unusable[0] = UnusableUnits {
            reason: UnavailableReason::Passthrough.into(),
            message: UnavailableReason::Passthrough.description().to_owned(),
            count: 8,
            nodes: 1,
        };
        let table = shown(&list(vec![passed]), FleetFormat::Wide, Headers::Hidden);
        let cells: Vec<&str> = table.split("  ").map(str::trim).collect();
        // FREE, USED, UNAVAILABLE, CAPACITY; PASSTHROUGH, UNKNOWN.
        assert_eq!((&cells[3..7], &cells[9..11]), (&["0", "0", "0", "8"][..], &["8", "0"][..]));
    }

    #[test]
    fn wide_table_lists_unavailable_reasons() {
        let list = list(vec![row("nvidia.com/gpu", "device", 4)]);
        let wide = shown(&list, FleetFormat::Wide, Headers::Shown);
        assert!(
            wide.ends_with(
                "\
TYPE               RESOURCE        UNAVAILABLE  NODES  REASON    REMEDY
nvidia-h200-141gb  nvidia.com/gpu  1            1      cordoned  the node is cordoned

TYPE               RESOURCE        BASIS    OBSERVED SINCE  MEANING
nvidia-h200-141gb  nvidia.com/gpu  unknown  -               none of the pods that use them has a deadline
"
            ),
            "{wide}"
        );
        let bare = shown(&list, FleetFormat::Table, Headers::Hidden);
        assert_eq!(bare, "nvidia-h200-141gb  nvidia.com/gpu  device  4  3  1  8  2 (1 pod)  2\n");
    }

    #[test]
    fn ac_008_wait_is_a_deadline_interval_or_a_quantile() {
        let [from, to] = ["2026-01-01T10:00:00Z", "2026-01-01T12:00:00Z"].map(str::to_owned);
        let mut report = WaitReport {
            basis: WaitBasis::History.into(),
            from: Some(from),
            to: Some(to),
            ..WaitReport::default()
        };
        let likely = "50% by 2026-01-01T10:00:00Z, 90% by 2026-01-01T12:00:00Z";
        assert_eq!(wait(&report), likely);
        report.basis = WaitBasis::Deadlines.into();
        assert_eq!(wait(&report), "2026-01-01T10:00:00Z to 2026-01-01T12:00:00Z");
        report.basis = WaitBasis::History.into();
        report.to = None;
        assert_eq!(wait(&report), "50% by 2026-01-01T10:00:00Z");
        report.from = None;
        assert_eq!(wait(&report), "history");
        report.basis = WaitBasis::Free.into();
        assert_eq!(wait(&report), "none");
    }

    #[test]
    fn stale_or_unwatched_data_has_a_note() {
        let mut list = list(Vec::new());
        list.stale = true;
        list.age_seconds = 90;
        list.basis = CountBasis::Agents.into();
        list.error = Some("the API server does not answer".to_owned());
        let notes = notes(&list).join("\n");
        for expected in [
            "the cluster is not watched: the API server does not answer",
            "the data is",
            "based on agents only",
            "no matching devices in the fleet",
        ] {
            assert!(notes.contains(expected), "{notes}");
        }
    }
}
