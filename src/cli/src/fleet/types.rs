//! Two tables: the fleet's devices of each type, and the nodes that have them.

use octavo_fleet::api::{NodeRow, NodeType, TypeRow};
use octavo_fleet::summary::DeviceUse;

use super::format;
use crate::settings::Colors;
use crate::settings::fleet::OutputOptions;
use crate::style::Style;
use crate::text::{self, Cell};

const TYPE_COLUMNS: [&str; 11] = [
    "TYPE",
    "MEMORY",
    "TOTAL",
    "FREE",
    "IN USE",
    "PARTITIONED",
    "PARTS FREE",
    "UNAVAILABLE",
    "PASSTHROUGH",
    "UNKNOWN",
    "NODES",
];
const NODE_COLUMNS: [&str; 8] =
    ["TYPE", "NODE", "TOTAL", "FREE", "IN USE", "PARTITIONED", "PARTS FREE", "STATE"];

/// Formats both tables; without headers only the first one's rows, and without nodes only the first one.
pub(super) fn tables(
    types: &[TypeRow],
    nodes: Option<&[NodeRow]>,
    printed: OutputOptions,
    colors: Colors,
) -> String {
    if types.is_empty() {
        return String::new();
    }
    let first = text::table(&[&TYPE_COLUMNS], types.iter().map(of_type), printed.headers, colors);
    let Some(nodes) = nodes.filter(|_| printed.with_headers()) else {
        return first;
    };
    let rows = types.iter().flat_map(|of| {
        let name = &of.of_all.type_name;
        nodes.iter().flat_map(move |node| {
            let here = node.types.iter().filter(move |here| here.type_name == *name);
            here.map(move |here| of_node(here, node))
        })
    });
    format!("{first}\n{}", text::table(&[&NODE_COLUMNS], rows, printed.headers, colors))
}

fn of_type(row: &TypeRow) -> Vec<Cell> {
    let devices = row.of_all.devices;
    vec![
        name(&row.of_all),
        Cell::plain(&format::memory(row.of_all.memory_mib.unwrap_or(0))),
        Cell::plain(&devices.total),
        Cell::plain(&format::devices(devices, DeviceUse::Free)),
        Cell::plain(&format::devices(devices, DeviceUse::InUse)),
        Cell::plain(&format::devices(devices, DeviceUse::Partitioned)),
        Cell::plain(&format::parts(devices.partitions)),
        Cell::plain(&devices.unavailable),
        Cell::plain(&devices.passthrough),
        Cell::plain(&devices.unknown),
        Cell::plain(&row.nodes),
    ]
}

fn of_node(here: &NodeType, node: &NodeRow) -> Vec<Cell> {
    let devices = here.devices;
    vec![
        name(here),
        Cell::plain(&node.name),
        Cell::plain(&devices.total),
        Cell::plain(&format::devices(devices, DeviceUse::Free)),
        Cell::plain(&format::devices(devices, DeviceUse::InUse)),
        Cell::plain(&format::devices(devices, DeviceUse::Partitioned)),
        Cell::plain(&format::parts(devices.partitions)),
        format::state(node),
    ]
}

fn name(of: &NodeType) -> Cell {
    let style = if of.type_name.is_some() { Style::Plain } else { Style::Warning };
    Cell::new(format::type_name(of), style)
}

#[cfg(test)]
mod tests {
    use octavo_fleet::summary::DeviceCounts;

    use super::*;
    use crate::fleet::nodes::tests::row;
    use crate::settings::Headers;
    use crate::settings::fleet::FleetFormat;

    #[test]
    fn types_are_listed_with_counts_then_nodes() {
        let node = row("n1", "ok");
        let types = [TypeRow { of_all: node.types[0].clone(), nodes: 1, nodes_without_agent: 0 }];
        let text = |headers| {
            let format = FleetFormat::Table;
            tables(
                &types,
                Some(std::slice::from_ref(&node)),
                OutputOptions { format, headers },
                Colors::Off,
            )
        };
        assert_eq!(
            text(Headers::Shown),
            "\
TYPE              MEMORY  TOTAL  FREE  IN USE  PARTITIONED  PARTS FREE  UNAVAILABLE  PASSTHROUGH  UNKNOWN  NODES
nvidia-a100-80gb  80 GiB  8      2     1       4            5/12        1            0            0        1

TYPE              NODE  TOTAL  FREE  IN USE  PARTITIONED  PARTS FREE  STATE
nvidia-a100-80gb  n1    8      2     1       4            5/12        ok
"
        );
        assert_eq!(
            text(Headers::Hidden),
            "nvidia-a100-80gb  80 GiB  8  2  1  4  5/12  1  0  0  1\n"
        );
    }

    #[test]
    fn devices_with_unreported_use_are_not_counted_as_not_free() {
        let mut node = row("n1", "ok");
        node.types[0].devices = DeviceCounts {
            total: 8,
            free: 0,
            in_use: 0,
            partitioned: 0,
            unavailable: 0,
            passthrough: 0,
            unknown: 8,
            partitions: node.devices.partitions,
        };
        let types = [TypeRow { of_all: node.types[0].clone(), nodes: 1, nodes_without_agent: 0 }];
        let printed = OutputOptions { format: FleetFormat::Table, headers: Headers::Shown };
        let text = tables(&types, Some(std::slice::from_ref(&node)), printed, Colors::Off);
        let rows: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        // The memory consists of two words.
        assert_eq!(rows[1][3..7], ["8", "?", "?", "?"]);
        assert_eq!(rows[4][2..6], ["8", "?", "?", "?"]);
    }
}
