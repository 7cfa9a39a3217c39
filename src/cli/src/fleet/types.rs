//! Two tables: the fleet's devices of each type, and the nodes that have them.

use octavo_documents::api::{NodeRow, NodeType, TypeRow};

use super::format;
use super::nodes::number;
use crate::settings::Colors;
use crate::settings::fleet::OutputOptions;
use crate::style::Style;
use crate::text::{Cell, columns};

const TYPE_COLUMNS: [&str; 11] = [
    "TYPE",
    "MEMORY",
    "TOTAL",
    "FREE",
    "IN USE",
    "PARTITIONED",
    "PARTS FREE",
    "UNAVAILABLE",
    "SET ASIDE",
    "UNKNOWN",
    "NODES",
];
const NODE_COLUMNS: [&str; 8] = [
    "TYPE",
    "NODE",
    "TOTAL",
    "FREE",
    "IN USE",
    "PARTITIONED",
    "PARTS FREE",
    "STATE",
];

/// Formats both tables; without headers only the first one's rows, and without nodes only the first one.
pub(super) fn tables(
    types: &[TypeRow],
    nodes: Option<&[NodeRow]>,
    printed: OutputOptions,
    colors: Colors,
) -> String {
    let rows = types.iter().map(of_type);
    if !printed.with_headers() || types.is_empty() {
        return columns(&rows.collect::<Vec<_>>(), colors);
    }
    let first: Vec<Vec<Cell>> = [header(&TYPE_COLUMNS)].into_iter().chain(rows).collect();
    let Some(nodes) = nodes else {
        return columns(&first, colors);
    };
    let places = types.iter().flat_map(|of| {
        let name = &of.of_all.type_name;
        nodes.iter().flat_map(move |node| {
            let here = node
                .types
                .iter()
                .filter(move |here| here.type_name == *name);
            here.map(move |here| of_node(here, node))
        })
    });
    let second: Vec<Vec<Cell>> = [header(&NODE_COLUMNS)].into_iter().chain(places).collect();
    format!("{}\n{}", columns(&first, colors), columns(&second, colors))
}

fn header(names: &[&str]) -> Vec<Cell> {
    let names = names.iter();
    names.map(|name| Cell::new(name, Style::Strong)).collect()
}

fn of_type(row: &TypeRow) -> Vec<Cell> {
    let devices = row.of_all.devices;
    vec![
        name(&row.of_all),
        Cell::plain(&format::memory(row.of_all.memory_mib.unwrap_or(0))),
        number(devices.total),
        format::free(devices),
        format::in_use(devices),
        number(devices.partitioned),
        Cell::plain(&format::parts(devices.partitions)),
        number(devices.unavailable),
        number(devices.set_aside),
        number(devices.unknown),
        number(row.nodes),
    ]
}

fn of_node(here: &NodeType, node: &NodeRow) -> Vec<Cell> {
    let devices = here.devices;
    vec![
        name(here),
        Cell::plain(&node.name),
        number(devices.total),
        format::free(devices),
        format::in_use(devices),
        number(devices.partitioned),
        Cell::plain(&format::parts(devices.partitions)),
        format::state(node),
    ]
}

fn name(of: &NodeType) -> Cell {
    let ink = if of.type_name.is_some() {
        Style::Plain
    } else {
        Style::Warning
    };
    Cell::new(format::type_name(of), ink)
}

#[cfg(test)]
mod tests {
    use octavo_documents::api::CountsJson;

    use super::*;
    use crate::fleet::nodes::tests::row;
    use crate::settings::Headers;
    use crate::settings::fleet::FleetFormat;

    #[test]
    fn types_are_listed_with_counts_then_nodes() {
        let node = row("n1", "ok");
        let types = [TypeRow {
            of_all: node.types[0].clone(),
            nodes: 1,
            nodes_without_agent: 0,
        }];
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
TYPE              MEMORY  TOTAL  FREE  IN USE  PARTITIONED  PARTS FREE  UNAVAILABLE  SET ASIDE  UNKNOWN  NODES
nvidia-a100-80gb  80Gi    8      2     1       4            5/12        1            0          0        1

TYPE              NODE  TOTAL  FREE  IN USE  PARTITIONED  PARTS FREE  STATE
nvidia-a100-80gb  n1    8      2     1       4            5/12        ok
"
        );
        assert_eq!(
            text(Headers::Hidden),
            "nvidia-a100-80gb  80Gi  8  2  1  4  5/12  1  0  0  1\n"
        );
    }

    #[test]
    fn devices_whose_use_is_not_reported_are_not_counted_as_none_free() {
        let mut node = row("n1", "ok");
        node.types[0].devices = CountsJson {
            total: 8,
            free: 0,
            in_use: 0,
            partitioned: 0,
            unavailable: 0,
            set_aside: 0,
            unknown: 8,
            partitions: node.devices.partitions,
        };
        let types = [TypeRow {
            of_all: node.types[0].clone(),
            nodes: 1,
            nodes_without_agent: 0,
        }];
        let printed = OutputOptions {
            format: FleetFormat::Table,
            headers: Headers::Shown,
        };
        let text = tables(
            &types,
            Some(std::slice::from_ref(&node)),
            printed,
            Colors::Off,
        );
        let rows: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(rows[1][2..5], ["8", "?", "?"]);
        assert_eq!(rows[4][2..5], ["8", "?", "?"]);
    }
}
