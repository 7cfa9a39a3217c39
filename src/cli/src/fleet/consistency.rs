//! Property: the tables agree with the counts that the aggregator serves.

use std::collections::BTreeMap;

use octavo_fleet::api::{NodeRow, NodeType, TypeRow};
use octavo_fleet::summary::{DeviceCounts, DeviceUse, NodeState, Occupancy, PartitionCounts};
use proptest::prelude::*;

use super::nodes::tests::row;
use super::{nodes, types};
use crate::settings::fleet::{FleetFormat, OutputOptions};
use crate::settings::{Colors, Headers};

const PRINTED: OutputOptions = OutputOptions { format: FleetFormat::Wide, headers: Headers::Shown };

fn counts() -> impl Strategy<Value = DeviceCounts> {
    let one = prop::sample::select(vec![
        Occupancy::Free,
        Occupancy::InUse,
        Occupancy::Partitioned(PartitionCounts { total: 3, free: 2, in_use: 1 }),
        Occupancy::Unavailable,
        Occupancy::Passthrough,
        Occupancy::Unknown,
    ]);
    let all = prop::collection::vec(one, 0..9);
    all.prop_map(|all| all.into_iter().fold(DeviceCounts::default(), DeviceCounts::with))
}

fn node(devices: DeviceCounts, state: NodeState) -> NodeRow {
    let mut row = row("n", "ok");
    // As it was sent: absent counts are read as 0.
    let json = serde_json::to_value(devices).unwrap();
    row.devices = serde_json::from_value(json).unwrap();
    row.types = vec![NodeType { devices: row.devices, ..row.types[0].clone() }];
    row.state = state.into();
    row
}

/// Cells of the second line by the headings of the first one.
fn cells(table: &str) -> BTreeMap<String, String> {
    let split = |line: &str| -> Vec<String> {
        let parts = line.split("  ").map(str::trim);
        parts.filter(|part| !part.is_empty()).map(str::to_owned).collect()
    };
    let mut lines = table.lines().map(split);
    let (headings, cells) = (lines.next().unwrap(), lines.next().unwrap());
    assert_eq!(headings.len(), cells.len(), "{table}");
    headings.into_iter().zip(cells).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn tables_show_each_count_under_its_word_and_never_0_for_unknown(
        devices in counts(),
        state in prop::sample::select(NodeState::ALL.to_vec()),
    ) {
        let row = node(devices, state);
        let of_type = TypeRow { of_all: row.types[0].clone(), nodes: 1, nodes_without_agent: 0 };
        let tables = [
            nodes::table(std::slice::from_ref(&row), PRINTED, Colors::Off),
            types::tables(&[of_type], None, PRINTED, Colors::Off),
        ];
        for table in tables {
            let cells = cells(&table);
            let mut sum = 0;
            for of in DeviceUse::ALL {
                let cell = &cells[&of.title().to_uppercase()];
                if let Some(count) = devices.known_count(of) {
                    prop_assert_eq!(cell, &count.to_string(), "{}: {}", of, table);
                    sum += count;
                } else {
                    prop_assert_eq!(cell, "?", "{}: {}", of, table);
                    prop_assert!(devices.unknown > 0);
                }
            }
            prop_assert_eq!(sum, devices.total, "{}", table);
            if let Some(shown) = cells.get("STATE") {
                prop_assert_eq!(shown, state.as_str());
            }
        }
        let grouped = nodes::by_type(std::slice::from_ref(&row), PRINTED, Colors::Off);
        let head = grouped.lines().next().unwrap();
        let free = devices.known_count(DeviceUse::Free);
        let free = free.map_or_else(|| "?".to_owned(), |free| free.to_string());
        let free = format!(", {free} free");
        prop_assert!(head.contains(&free), "{}", head);
    }
}
