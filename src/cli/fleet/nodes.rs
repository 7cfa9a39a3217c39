//! The table of nodes.

use super::words;
use crate::cli::paint::Ink;
use crate::cli::text::{Cell, columns};
use crate::config::octavo::Colors;
use crate::config::octavo::fleet::{FleetFormat, Printed};
use crate::wire::api::NodeRow;

const FEW: [&str; 9] = [
    "NAME", "TYPES", "DEVICES", "FREE", "PARTS", "MEMORY", "SHARING", "STATE", "AGE",
];
const MORE: [&str; 9] = [
    "LAYOUT",
    "LAYOUT STATE",
    "IN USE",
    "PARTITIONED",
    "UNAVAILABLE",
    "UNKNOWN",
    "CONNECTED",
    "CONFIRMED",
    "AGENT",
];

/// One row a node, in the order given. PARTS is free of all; AGE is how long ago the agent confirmed it.
pub(in crate::cli) fn table(rows: &[NodeRow], printed: Printed, colors: Colors) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let wide = printed.format == FleetFormat::Wide;
    let header = || {
        let more: &[&str] = if wide { &MORE } else { &[] };
        let names = FEW.iter().chain(more);
        names.map(|name| Cell::new(name, Ink::Strong)).collect()
    };
    let first = printed.with_headers().then(header);
    let rows = rows.iter().map(|row| cells(row, wide));
    let all: Vec<Vec<Cell>> = first.into_iter().chain(rows).collect();
    columns(&all, colors)
}

fn cells(row: &NodeRow, wide: bool) -> Vec<Cell> {
    let devices = row.devices;
    let mut cells = vec![
        Cell::plain(&row.name),
        Cell::plain(&if wide {
            words::types(row)
        } else {
            words::few_types(row)
        }),
        number(devices.total),
        words::free(devices),
        Cell::plain(&words::parts(devices.partitions)),
        Cell::plain(&words::memory(row.memory_mib)),
        Cell::plain(&row.sharing),
        words::state(row),
        Cell::plain(&words::age(row.age_seconds)),
    ];
    if wide {
        let layout = row.layout.as_deref();
        cells.extend([
            Cell::plain(
                layout
                    .and_then(|one| one.name.as_deref())
                    .unwrap_or(words::NONE),
            ),
            words::layout_state(layout),
            number(devices.in_use),
            number(devices.partitioned),
            number(devices.unavailable),
            number(devices.unknown),
            Cell::plain(if row.connected { "yes" } else { "no" }),
            Cell::plain(&words::second(&row.last_confirmed)),
            Cell::plain(&row.agent_version),
        ]);
    }
    cells
}

pub(super) fn number(number: u32) -> Cell {
    Cell::plain(&number.to_string())
}

#[cfg(test)]
pub(in crate::cli) mod tests {
    use super::*;
    use crate::config::octavo::Headers;
    use crate::wire::api::{CountsJson, LayoutRow, NodeType, PartitionsJson};

    /// A node with eight devices of one type, two of them free, four partitioned with five free parts of twelve.
    pub(in crate::cli) fn row(name: &str, state: &str) -> NodeRow {
        let devices = CountsJson {
            total: 8,
            free: 2,
            in_use: 1,
            partitioned: 4,
            unavailable: 1,
            unknown: 0,
            partitions: PartitionsJson {
                total: 12,
                free: 5,
                in_use: 7,
            },
        };
        NodeRow {
            name: name.to_owned(),
            state: state.to_owned(),
            reason: None,
            connected: true,
            last_confirmed: "2026-11-21T10:00:00Z".to_owned(),
            age_seconds: 3,
            sharing: "mixed".to_owned(),
            devices,
            memory_mib: 655_360,
            types: vec![NodeType {
                type_name: Some("nvidia-a100-80gb".to_owned()),
                type_source: Some("catalogue".to_owned()),
                memory_mib: Some(81_920),
                devices,
            }],
            layout: None,
            agent_version: "0.1.0".to_owned(),
        }
    }

    fn printed(format: FleetFormat, headers: Headers) -> Printed {
        Printed { format, headers }
    }

    #[test]
    fn a_row_says_what_there_is_what_is_free_and_how_it_is() {
        let mut unknown = row("b", "stale");
        unknown.types[0].type_name = None;
        unknown.connected = false;
        unknown.age_seconds = 600;
        let rows = [row("gpu-node-1", "ok"), unknown];
        assert_eq!(
            table(
                &rows,
                printed(FleetFormat::Table, Headers::Shown),
                Colors::Off
            ),
            "\
NAME        TYPES                DEVICES  FREE  PARTS  MEMORY  SHARING  STATE  AGE
gpu-node-1  8x nvidia-a100-80gb  8        2     5/12   640Gi   mixed    ok     3s
b           8x unknown           8        2     5/12   640Gi   mixed    stale  10m
"
        );
    }

    #[test]
    fn wide_adds_columns_and_no_headers_leaves_rows() {
        let mut away = row("a", "ok");
        away.connected = false;
        away.layout = Some(Box::new(LayoutRow {
            name: Some("serving".to_owned()),
            state: Some("blocked".to_owned()),
            ..LayoutRow::default()
        }));
        assert_eq!(
            table(
                &[away],
                printed(FleetFormat::Wide, Headers::Hidden),
                Colors::Off
            ),
            "a  8x nvidia-a100-80gb  8  2  5/12  640Gi  mixed  ok, agent away  3s  serving  blocked  1  4  1  0  no  2026-11-21T10:00:00Z  0.1.0\n"
        );
    }

    #[test]
    fn of_many_types_two_are_named_and_wide_has_all() {
        let mut mixed = row("a", "ok");
        mixed.types = vec![mixed.types[0].clone(); 4];
        let said = |format| {
            table(
                &[mixed.clone()],
                printed(format, Headers::Hidden),
                Colors::Off,
            )
        };
        let two = "8x nvidia-a100-80gb, 8x nvidia-a100-80gb";
        let few = said(FleetFormat::Table);
        assert!(few.contains(&format!("{two}, and 2 more  ")), "{few}");
        assert!(said(FleetFormat::Wide).contains(&format!("{two}, {two}  ")));
    }

    #[test]
    fn a_name_cannot_steer_the_terminal() {
        let rows = [row("a\u{1b}[2J", "ok")];
        let text = table(
            &rows,
            printed(FleetFormat::Table, Headers::Hidden),
            Colors::Off,
        );
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}
