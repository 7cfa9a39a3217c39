//! Two tables: what the fleet has of each type, and on which nodes.

use super::nodes::number;
use super::words;
use crate::cli::paint::Ink;
use crate::cli::text::{Cell, columns};
use crate::config::octavo::Colors;
use crate::config::octavo::fleet::Printed;
use crate::wire::api::{NodeRow, NodeType, TypeRow};

const OF_TYPE: [&str; 10] = [
    "TYPE",
    "MEMORY",
    "TOTAL",
    "FREE",
    "IN USE",
    "PARTITIONED",
    "PARTS FREE",
    "UNAVAILABLE",
    "UNKNOWN",
    "NODES",
];
const OF_NODE: [&str; 8] = [
    "TYPE",
    "NODE",
    "TOTAL",
    "FREE",
    "IN USE",
    "PARTITIONED",
    "PARTS FREE",
    "STATE",
];

/// Both tables; without headers the first one's rows alone, and without nodes the first one alone.
pub(super) fn tables(
    types: &[TypeRow],
    nodes: Option<&[NodeRow]>,
    printed: Printed,
    colors: Colors,
) -> String {
    let rows = types.iter().map(of_type);
    if !printed.with_headers() || types.is_empty() {
        return columns(&rows.collect::<Vec<_>>(), colors);
    }
    let first: Vec<Vec<Cell>> = [header(&OF_TYPE)].into_iter().chain(rows).collect();
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
    let second: Vec<Vec<Cell>> = [header(&OF_NODE)].into_iter().chain(places).collect();
    format!("{}\n{}", columns(&first, colors), columns(&second, colors))
}

fn header(names: &[&str]) -> Vec<Cell> {
    let names = names.iter();
    names.map(|name| Cell::new(name, Ink::Strong)).collect()
}

fn of_type(row: &TypeRow) -> Vec<Cell> {
    let devices = row.of_all.devices;
    vec![
        name(&row.of_all),
        Cell::plain(&words::memory(row.of_all.memory_mib.unwrap_or(0))),
        number(devices.total),
        number(devices.free),
        number(devices.in_use),
        number(devices.partitioned),
        Cell::plain(&words::parts(devices.partitions)),
        number(devices.unavailable),
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
        number(devices.free),
        number(devices.in_use),
        number(devices.partitioned),
        Cell::plain(&words::parts(devices.partitions)),
        words::state(node),
    ]
}

fn name(of: &NodeType) -> Cell {
    let ink = if of.type_name.is_some() {
        Ink::Plain
    } else {
        Ink::Notice
    };
    Cell::new(words::type_name(of), ink)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::fleet::nodes::tests::row;
    use crate::config::octavo::Headers;
    use crate::config::octavo::fleet::FleetFormat;

    #[test]
    fn each_type_is_counted_and_then_found_on_its_nodes() {
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
                Printed { format, headers },
                Colors::Off,
            )
        };
        assert_eq!(
            text(Headers::Shown),
            "\
TYPE              MEMORY  TOTAL  FREE  IN USE  PARTITIONED  PARTS FREE  UNAVAILABLE  UNKNOWN  NODES
nvidia-a100-80gb  80Gi    8      2     1       4            5/12        1            0        1

TYPE              NODE  TOTAL  FREE  IN USE  PARTITIONED  PARTS FREE  STATE
nvidia-a100-80gb  n1    8      2     1       4            5/12        ok
"
        );
        assert_eq!(
            text(Headers::Hidden),
            "nvidia-a100-80gb  80Gi  8  2  1  4  5/12  1  0  1\n"
        );
    }
}
