//! Nodes and types as served by the API.

use octavo_files::config_files::AvailableLayouts;
use octavo_fleet::access::VisibleTypes;
use octavo_fleet::api::{
    LayoutName, LayoutNames, NodeDetail, NodeRow, NodeType, TypeList, TypeRow,
};
use octavo_fleet::changes::document::{ChangeList, ChangeRow};
use octavo_model::API_VERSION;
use octavo_store::clock::{Clock, Moment};
use octavo_store::fleet::{Fleet, Node, TypeTotals};
use octavo_stream::status::NodeStatus;

/// Converts a node to a list item as of `now`.
pub fn row(node: &Node, clock: &Clock, now: Moment) -> NodeRow {
    let layout = node.summary.layout.as_ref();
    NodeRow {
        name: node.name.as_str().to_owned(),
        state: node.state(now).into(),
        reason: node.short_reason(now),
        source: node.source.into(),
        connected: node.connected,
        last_confirmed: clock.wall(node.freshness.confirmed()).to_string(),
        age_seconds: node.freshness.age(now).as_secs(),
        sharing: node.summary.sharing.into(),
        devices: node.counts(now),
        memory_mib: node.summary.memory.get(),
        types: node.types(now).map(|one| NodeType::from(one.into_owned())).collect(),
        layout: layout.cloned().map(Box::new),
        agent_version: node.agent_version.clone(),
    }
}

/// Converts a node with its devices as of `now`. `status` is decoded from its parts.
pub fn detail(node: &Node, status: NodeStatus, clock: &Clock, now: Moment) -> NodeDetail {
    let labels = node.labels.iter();
    let mut row = row(node, clock, now);
    row.reason = node.reason(now).map(str::to_owned);
    if let (Some(shown), Some(reported)) = (&mut row.layout, &status.layout) {
        shown.devices.clone_from(&reported.devices);
    }
    NodeDetail {
        api_version: API_VERSION.to_owned(),
        kind: "Node".to_owned(),
        row,
        boot_id: node.run.boot_id.clone(),
        last_changed: clock.wall(node.changed).to_string(),
        labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        sharing_status: status.sharing.clone().map(Box::new),
        usage: status.usage.clone().map(Box::new),
        inventory: status.inventory,
    }
}

/// Converts the recorded changes of `node`.
pub fn changes(node: &Node, clock: &Clock) -> ChangeList {
    let time = |time| clock.wall(Moment::after_start(time)).to_string();
    let items = node.changes.newest().map(|entry| ChangeRow {
        time: time(entry.last),
        first_time: time(entry.first),
        count: entry.count,
        change: entry.change.clone(),
    });
    ChangeList {
        api_version: API_VERSION.to_owned(),
        kind: "ChangeList".to_owned(),
        node: node.name.as_str().to_owned(),
        since: node.has_agent().then(|| time(node.changes.since())),
        dropped: node.changes.dropped(),
        items: items.collect(),
    }
}

/// Converts the layouts that can be planned on `node`.
pub fn layouts(node: &Node, names: AvailableLayouts, notice: Option<String>) -> LayoutNames {
    let item =
        |source: &'static str| move |name: String| LayoutName { name, source: source.to_owned() };
    let file = names.file.into_iter().map(item("file"));
    let made = names.made.into_iter().map(item("made"));
    LayoutNames {
        api_version: API_VERSION.to_owned(),
        kind: "LayoutNames".to_owned(),
        node: node.name.as_str().to_owned(),
        notice,
        items: file.chain(made).collect(),
    }
}

/// Converts the types in `all` that the reader is allowed to see.
pub fn types(fleet: &Fleet, all: &[TypeTotals], seen: &VisibleTypes) -> TypeList {
    let row = |one: &TypeTotals| TypeRow {
        of_all: one.counts.clone().into(),
        nodes: one.nodes,
        nodes_without_agent: one.without_agent,
    };
    TypeList {
        api_version: API_VERSION.to_owned(),
        kind: "TypeList".to_owned(),
        cluster: None,
        revision: fleet.revision,
        starting: None,
        items: {
            let types = all.iter().filter(|one| seen.contains(one.counts.type_name.as_ref()));
            types.map(row).collect()
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use octavo_fleet::summary::NodeState;
    use octavo_model::inventory::Condition::PciOnly;
    use octavo_model::inventory::{Device, Vendor};
    use octavo_model::reported::Reported;
    use octavo_node::label_set::LabelSet;
    use octavo_store::fleet::{Freshness, ReportingAgent, StatusSummary};
    use octavo_stream::protocol::{Parts, Run};
    use proptest::prelude::*;

    use super::*;
    use crate::inventories;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        #[test]
        fn device_counts_add_up_for_any_inventory(inventory in inventories::inventory()) {
            let origin = ReportingAgent {
                name: "n".parse().unwrap(),
                run: Run { epoch: 1, boot_id: "b".to_owned() },
                agent_version: "1".to_owned(),
            };
            let freshness = Freshness::new(Moment::default(), Duration::from_secs(1));
            let labels = Arc::new(LabelSet::default());
            let node = Node::new(origin, Parts::default(), StatusSummary::new(&inventory, labels, None), freshness);
            let clock = Clock::start();
            // Neuron devices that the driver reports but the PCI bus does not count too.
            let may_be_one = |one: &&Device| {
                let of_bus = matches!(one.condition, PciOnly { .. });
                one.vendor == Vendor::Aws && of_bus && !one.condition.is_passthrough()
            };
            let functions = inventory.devices.iter().filter(may_be_one).count();
            let chips = inventory.neuron.as_ref().map_or(0, |neuron| neuron.devices.len());
            let there = inventory.devices.len() + chips.saturating_sub(functions);
            let there = u32::try_from(there).unwrap();

            let fresh = row(&node, &clock, Moment::default());
            let of_types: u32 = fresh.types.iter().map(|one| one.devices.total).sum();
            prop_assert_eq!((fresh.devices.total, of_types), (there, there));

            let stale = row(&node, &clock, Moment::from_millis(1001));
            prop_assert_eq!(&stale.state, &Reported::Known(NodeState::Stale));
            prop_assert_eq!((stale.devices.unknown, stale.devices.total), (there, there));
            for one in &stale.types {
                prop_assert_eq!(one.devices.unknown, one.devices.total);
            }
        }
    }
}
