//! The table of nodes.

use std::collections::BTreeMap;

use octavo_fleet::api::NodeRow;
use octavo_fleet::summary::{DeviceCounts, DeviceUse, NodeGroup};
use octavo_model::id::TypeName;

use super::format;
use crate::settings::Colors;
use crate::settings::fleet::OutputOptions;
use crate::style::Style;
use crate::text::{self, Cell, count_noun};

const COLUMNS: [&str; 9] =
    ["NAME", "TYPES", "DEVICES", "FREE", "PARTS", "MEMORY", "SHARING", "STATE", "AGE"];
/// Further columns of the wide table.
const WIDE_COLUMNS: [&str; 11] = [
    "LAYOUT",
    "LAYOUT STATE",
    "IN USE",
    "PARTITIONED",
    "UNAVAILABLE",
    "PASSTHROUGH",
    "UNKNOWN",
    "CONNECTED",
    "CONFIRMED",
    "AGENT",
    "SOURCE",
];

/// Formats one row per node, in the given order. PARTS is the free and total number of partitions; AGE is the time
/// since the agent confirmed the state.
pub(crate) fn table(rows: &[NodeRow], printed: OutputOptions, colors: Colors) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let wide: &[&str] = if printed.is_wide() { &WIDE_COLUMNS } else { &[] };
    let rows = rows.iter().map(|row| cells(row, printed.is_wide()));
    text::table(&[&COLUMNS, wide], rows, printed.headers, colors)
}

/// Formats a table for the nodes of each type, in the given order, below a line with their totals.
pub(crate) fn by_type(rows: &[NodeRow], printed: OutputOptions, colors: Colors) -> String {
    let mut groups: BTreeMap<NodeGroup, Vec<NodeRow>> = BTreeMap::new();
    for row in rows {
        // A name that is not a valid type name counts as unknown.
        let types = row.types.iter().map(|one| one.type_name.as_deref());
        let types: Vec<Option<TypeName>> = types.map(|name| name?.parse().ok()).collect();
        let group = NodeGroup::from_types(types.iter().map(Option::as_ref));
        groups.entry(group).or_default().push(row.clone());
    }
    let parts = groups.iter().map(|(group, rows)| {
        let table = table(rows, printed, colors);
        if !printed.with_headers() {
            return table;
        }
        let counts = rows.iter().map(|row| row.devices);
        let counts = counts.fold(DeviceCounts::default(), DeviceCounts::plus);
        let head = format!(
            "{}: {}, {}, {} free",
            group.title(),
            count_noun(rows.len(), "node", "nodes"),
            count_noun(usize::try_from(counts.total).unwrap_or(usize::MAX), "device", "devices"),
            format::devices(counts, DeviceUse::Free)
        );
        let without = rows.iter().filter(|row| !format::has_agent(row)).count();
        let head = match without {
            0 => head,
            without => format!(
                "{head}, {}",
                count_noun(without, "node without agent", "nodes without agent")
            ),
        };
        // The use of some devices is not reported.
        let head = match counts.unknown {
            0 => head,
            unknown => format!("{head}, {unknown} unknown"),
        };
        format!("{}\n{table}", Style::Strong.paint(&head, colors))
    });
    let between = if printed.with_headers() { "\n" } else { "" };
    parts.collect::<Vec<_>>().join(between)
}

fn cells(row: &NodeRow, wide: bool) -> Vec<Cell> {
    let devices = row.devices;
    let layout = row.layout.as_deref();
    vec![
        Cell::plain(&row.name),
        Cell::plain(&if wide { format::types(row) } else { format::few_types(row) }),
        Cell::plain(&devices.total),
        Cell::plain(&format::devices(devices, DeviceUse::Free)),
        Cell::plain(&format::parts(devices.partitions)),
        Cell::plain(&format::memory(row.memory_mib)),
        Cell::plain(&row.sharing),
        format::state(row),
        Cell::plain(&format::age(row.age_seconds)),
        Cell::optional(layout.and_then(|one| one.name.as_deref())),
        format::layout_state(layout),
        Cell::plain(&format::devices(devices, DeviceUse::InUse)),
        Cell::plain(&format::devices(devices, DeviceUse::Partitioned)),
        Cell::plain(&devices.unavailable),
        Cell::plain(&devices.passthrough),
        Cell::plain(&devices.unknown),
        Cell::plain(if row.connected { "yes" } else { "no" }),
        Cell::plain(&format::second(&row.last_confirmed)),
        Cell::optional(Some(&row.agent_version).filter(|version| !version.is_empty())),
        Cell::plain(&row.source),
    ]
}

#[cfg(test)]
pub(crate) mod tests {
    use octavo_fleet::api::{NodeType, TypeIdentification};
    use octavo_fleet::summary::LayoutSummary;
    use octavo_fleet::summary::PartitionCounts;
    use octavo_fleet::summary::Sharing;
    use octavo_fleet::type_source::TypeSource;

    use super::*;
    use crate::settings::Headers;
    use crate::settings::fleet::FleetFormat;

    /// A node with eight devices of one type, two of them free, four partitioned with five free parts of twelve.
    pub(crate) fn row(name: &str, state: &str) -> NodeRow {
        let devices = DeviceCounts {
            total: 8,
            free: 2,
            in_use: 1,
            partitioned: 4,
            unavailable: 1,
            passthrough: 0,
            unknown: 0,
            partitions: PartitionCounts { total: 12, free: 5, in_use: 7 },
        };
        NodeRow {
            name: name.to_owned(),
            state: serde_json::from_value(state.into()).unwrap(),
            reason: None,
            source: TypeSource::Agent.into(),
            connected: true,
            last_confirmed: "2026-11-21T10:00:00Z".to_owned(),
            age_seconds: 3,
            sharing: Sharing::Mixed.into(),
            devices,
            memory_mib: 655_360,
            types: vec![NodeType {
                type_name: Some("nvidia-a100-80gb".to_owned()),
                type_source: Some(TypeIdentification::Catalog.into()),
                memory_mib: Some(81_920),
                devices,
            }],
            layout: None,
            agent_version: "0.1.0".to_owned(),
        }
    }

    fn printed(format: FleetFormat, headers: Headers) -> OutputOptions {
        OutputOptions { format, headers }
    }

    #[test]
    fn row_has_total_free_and_state() {
        let mut unknown = row("b", "stale");
        unknown.types[0].type_name = None;
        unknown.connected = false;
        unknown.age_seconds = 600;
        let rows = [row("gpu-node-1", "ok"), unknown];
        assert_eq!(
            table(&rows, printed(FleetFormat::Table, Headers::Shown), Colors::Off),
            "\
NAME        TYPES                DEVICES  FREE  PARTS  MEMORY   SHARING  STATE  AGE
gpu-node-1  8x nvidia-a100-80gb  8        2     5/12   640 GiB  mixed    ok     3s
b           8x unknown           8        2     5/12   640 GiB  mixed    stale  10m
"
        );
    }

    #[test]
    fn nodes_are_grouped_by_type_with_mixed_and_unknown_separate() {
        let mut mixed = row("c", "ok");
        mixed.types.push(mixed.types[0].clone());
        mixed.types[1].type_name = Some("nvidia-v100-16gb".to_owned());
        let mut unknown = row("b", "ok");
        unknown.types[0].type_name = None;
        let rows = [mixed, unknown, row("e", "ok"), row("d", "ok")];
        let text = |headers| by_type(&rows, printed(FleetFormat::Table, headers), Colors::Off);
        assert_eq!(
            text(Headers::Shown),
            "\
nvidia-a100-80gb: 2 nodes, 16 devices, 4 free
NAME  TYPES                DEVICES  FREE  PARTS  MEMORY   SHARING  STATE  AGE
e     8x nvidia-a100-80gb  8        2     5/12   640 GiB  mixed    ok     3s
d     8x nvidia-a100-80gb  8        2     5/12   640 GiB  mixed    ok     3s

Mixed: 1 node, 8 devices, 2 free
NAME  TYPES                                     DEVICES  FREE  PARTS  MEMORY   SHARING  STATE  AGE
c     8x nvidia-a100-80gb, 8x nvidia-v100-16gb  8        2     5/12   640 GiB  mixed    ok     3s

type unknown: 1 node, 8 devices, 2 free
NAME  TYPES       DEVICES  FREE  PARTS  MEMORY   SHARING  STATE  AGE
b     8x unknown  8        2     5/12   640 GiB  mixed    ok     3s
"
        );
        let bare = text(Headers::Hidden);
        assert_eq!(bare.lines().count(), 4);
        assert!(bare.starts_with("e  8x nvidia-a100-80gb") && !bare.contains("\n\n"));
    }

    #[test]
    fn wide_adds_columns_and_no_headers_leaves_rows() {
        let mut away = row("a", "ok");
        away.connected = false;
        away.layout = Some(Box::new(LayoutSummary {
            name: Some("serving".to_owned()),
            state: Some(octavo_model::reason::Reason::Blocked.into()),
            ..LayoutSummary::default()
        }));
        assert_eq!(
            table(&[away], printed(FleetFormat::Wide, Headers::Hidden), Colors::Off),
            "a  8x nvidia-a100-80gb  8  2  5/12  640 GiB  mixed  ok, agent disconnected  3s  serving  blocked  1  4  1  0  0  no  2026-11-21T10:00:00Z  0.1.0  agent\n"
        );
    }

    #[test]
    fn many_types_are_truncated_unless_wide() {
        let mut mixed = row("a", "ok");
        mixed.types = vec![mixed.types[0].clone(); 4];
        let shown = |format| table(&[mixed.clone()], printed(format, Headers::Hidden), Colors::Off);
        let two = "8x nvidia-a100-80gb, 8x nvidia-a100-80gb";
        let few = shown(FleetFormat::Table);
        assert!(few.contains(&format!("{two}, and 2 more  ")), "{few}");
        assert!(shown(FleetFormat::Wide).contains(&format!("{two}, {two}  ")));
    }

    #[test]
    fn control_characters_in_names_are_escaped() {
        let rows = [row("a\u{1b}[2J", "ok")];
        let text = table(&rows, printed(FleetFormat::Table, Headers::Hidden), Colors::Off);
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}
