//! Rows and column headings of the table of nodes.

use octavo_fleet::summary::NodeState;
use octavo_store::clock::{Clock, Moment};
use octavo_store::fleet::Node;
use octavo_store::query::{Sort, SortKey};

use super::address::ListAddress;
use super::badges::{
    Badge, format_age, format_memory, format_time, millis, node_state, printable, type_name,
};
use super::bar::{Bar, describe_counts};
use super::layout::LayoutCell;

/// Row of a node.
#[derive(Debug)]
pub(super) struct NodeRow {
    pub(super) name: String,
    pub(super) stale: bool,
    pub(super) connected: bool,
    /// Whether the node has no agent and is described by its labels.
    pub(super) by_labels: bool,
    pub(super) types: Vec<TypeCount>,
    pub(super) bar: Option<Bar>,
    pub(super) words: String,
    pub(super) memory: String,
    pub(super) sharing: &'static str,
    pub(super) layout: Option<LayoutCell>,
    pub(super) partitions: String,
    pub(super) state: Badge,
    pub(super) reason: Option<String>,
    pub(super) age: String,
    pub(super) age_ms: u64,
    pub(super) confirmed: String,
}

/// Type, with its number of devices on the node.
#[derive(Debug)]
pub(super) struct TypeCount {
    pub(super) name: String,
    pub(super) count: u32,
    /// Whether the type is unknown and can be set manually.
    pub(super) is_nameless: bool,
}

/// Heading of a column.
#[derive(Debug)]
pub(super) struct ColumnHeading {
    pub(super) word: &'static str,
    pub(super) key: &'static str,
    pub(super) class: &'static str,
    /// Link that sorts by this column, if it is sortable.
    pub(super) href: Option<String>,
    pub(super) sorted: Option<&'static str>,
}

/// Columns: heading, sort key, whether the first click sorts in descending order, CSS class.
const COLUMNS: [(&str, Option<SortKey>, bool, &str); 8] = [
    ("Node", Some(SortKey::Name), false, ""),
    ("Type", Some(SortKey::Type), false, ""),
    ("Devices", Some(SortKey::Devices), true, ""),
    ("Memory", Some(SortKey::Memory), true, "num"),
    ("Sharing", Some(SortKey::Sharing), false, ""),
    ("Partitions", None, false, "num"),
    ("State", Some(SortKey::State), true, ""),
    ("Last seen", Some(SortKey::Age), true, "num"),
];

impl NodeRow {
    /// Builds the row of `node` at `now`.
    pub(super) fn of(node: &Node, clock: &Clock, now: Moment) -> Self {
        let state = node.state(now);
        let counts = node.counts(now);
        let types = node.summary.types.iter().map(|one| TypeCount {
            name: type_name(one.type_name.as_ref()),
            count: one.counts.total,
            is_nameless: one.type_name.is_none(),
        });
        let partitions = counts.partitions;
        let since = node.freshness.age(now);
        let has_devices = counts.total > 0;
        Self {
            name: node.name.to_string(),
            stale: state == NodeState::Stale,
            connected: node.connected,
            by_labels: !node.has_agent(),
            types: types.collect(),
            bar: has_devices.then(|| Bar::from_counts(counts, 11)),
            words: describe_counts(counts),
            // Zero means that no driver reported it: every device has memory.
            memory: match node.summary.memory.get() {
                0 => "-".to_owned(),
                _ => format_memory(node.summary.memory),
            },
            sharing: node.summary.sharing.as_str(),
            layout: node.summary.layout.as_ref().map(LayoutCell::of),
            partitions: match partitions.total {
                0 => "-".to_owned(),
                count => format!("{} of {count} free", partitions.free),
            },
            state: node_state(state),
            reason: node.short_reason(now).as_deref().map(printable),
            age: format_age(since),
            age_ms: millis(since),
            confirmed: format_time(clock.wall(node.freshness.confirmed())),
        }
    }
}

/// Builds the headings of a table in this order.
pub(super) fn headings(address: &ListAddress, sort: Sort) -> Vec<ColumnHeading> {
    let head = |(word, key, greatest_first, class): (_, Option<SortKey>, bool, _)| {
        let here = key == Some(sort.key);
        let descending = if here { !sort.descending } else { greatest_first };
        ColumnHeading {
            word,
            key: key.map_or("", SortKey::as_str),
            class,
            href: key.map(|key| address.with("sort", &sort_parameter(key, descending))),
            sorted: here.then_some(if sort.descending { "descending" } else { "ascending" }),
        }
    };
    COLUMNS.into_iter().map(head).collect()
}

/// Value of the parameter `sort`.
pub(super) fn sort_parameter(key: SortKey, descending: bool) -> String {
    let sign = if descending { "-" } else { "" };
    format!("{sign}{}", key.as_str())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use octavo_fleet::summary::{
        DeviceHealth, DeviceSummary, DeviceUse, NodeSummary, Occupancy, PartitionCounts, Sharing,
        UsageRank,
    };
    use octavo_model::inventory::NvmlState;
    use octavo_store::fleet::{Freshness, ReportingAgent, StatusSummary};
    use octavo_stream::protocol::{Parts, Run};

    use super::*;

    const ALL: [(Occupancy, NodeState); 6] = [
        (Occupancy::Free, NodeState::Ok),
        (Occupancy::InUse, NodeState::Ok),
        (
            Occupancy::Partitioned(PartitionCounts { total: 3, free: 2, in_use: 1 }),
            NodeState::Attention,
        ),
        (Occupancy::Unavailable, NodeState::Degraded),
        (Occupancy::Passthrough, NodeState::Passthrough),
        (Occupancy::Unknown, NodeState::Ok),
    ];

    fn row(devices: &[(Occupancy, NodeState)], age: Duration) -> NodeRow {
        let device = |(occupancy, state): &(Occupancy, NodeState)| DeviceSummary {
            facts: DeviceSummary::new(&octavo_model::examples::gpu(), &NvmlState::Loading).facts,
            type_name: None,
            is_manual_type: false,
            memory: None,
            health: DeviceHealth::OK,
            node_state: *state,
            occupancy: *occupancy,
            sharing: Some(Sharing::Exclusive),
            worst_issue: None,
        };
        let devices: Vec<DeviceSummary> = devices.iter().map(device).collect();
        let summary = StatusSummary {
            labels: Arc::default(),
            summary: NodeSummary::new(&devices, &NvmlState::Loading, None),
            devices,
            usage: UsageRank::default(),
            samples: Arc::default(),
        };
        let agent = ReportingAgent {
            name: "n".parse().unwrap(),
            run: Run { epoch: 1, boot_id: String::new() },
            agent_version: String::new(),
        };
        let fresh = Freshness::new(Moment::default(), Duration::from_mins(1));
        let node = Node::new(agent, Parts::default(), summary, fresh);
        let now = Moment::from_millis(millis(age));
        NodeRow::of(&node, &Clock::start(), now)
    }

    /// Every pair of devices: the words of a row are the counts of its devices.
    #[test]
    fn row_agrees_with_its_devices() {
        for first in ALL {
            for second in ALL {
                let shown = row(&[first, second], Duration::ZERO);
                for (occupancy, _) in ALL {
                    let of = occupancy.device_use();
                    let count = [first, second].iter().filter(|one| one.0 == occupancy).count();
                    let words = format!("{count} {}", of.title());
                    let mut parts = shown.words.split(", ");
                    assert_eq!(parts.any(|part| part == words), count > 0, "{}", shown.words);
                }
                let worst = first.1.max(second.1);
                assert_eq!(shown.state, node_state(worst));
                let segments = shown.bar.map_or(0, |bar| bar.segments.len());
                assert_eq!(segments, 2);
                // Nothing is known about the use of the devices of a stale node.
                let stale = row(&[first, second], Duration::from_mins(10));
                assert_eq!(stale.words, format!("2 {}", DeviceUse::Unknown.title()));
                assert_eq!(stale.state, node_state(NodeState::Stale));
            }
        }
    }
}
