//! Rows of the list of nodes, optionally grouped by type.

use octavo_fleet::summary::NodeGroup;
use octavo_model::quantity::Mebibytes;
use octavo_store::clock::{Clock, Moment};
use octavo_store::fleet::Fleet;
use octavo_store::query::{self, GroupedNodes, MAX_LIMIT, Query};

use super::address::ListAddress;
use super::badges::{count_noun, format_memory};
use super::bar::{Bar, describe_counts};
use super::rows::NodeRow;

/// Parameter that groups nodes, and its only value.
pub(super) const GROUP: &str = "group";
pub(super) const BY_TYPE: &str = "type";

/// Minimum number of rows per group, regardless of the number of groups.
const MIN_ROWS_PER_GROUP: usize = 10;

/// Nodes under one heading, or without one.
#[derive(Debug)]
pub(super) struct NodeSection {
    pub(super) head: Option<GroupHead>,
    pub(super) rows: Vec<NodeRow>,
}

/// Heading of a group.
#[derive(Debug)]
pub(super) struct GroupHead {
    /// HTML ID.
    pub(super) id: String,
    pub(super) title: String,
    pub(super) nodes: String,
    pub(super) bar: Option<Bar>,
    pub(super) words: String,
    pub(super) memory: String,
    /// Number of nodes that are not shown, and the link to them.
    pub(super) more: Option<(String, String)>,
}

/// Returns whether `address` requests grouping, or an error message for an invalid value.
pub(super) fn is_grouped(address: &ListAddress) -> Result<bool, String> {
    match address.get(GROUP) {
        "" => Ok(false),
        BY_TYPE => Ok(true),
        other => {
            let start: String = other.chars().take(64).collect();
            Err(format!("invalid value {start:?} for parameter {GROUP}: must be {BY_TYPE}"))
        }
    }
}

/// Builds all groups of the matching nodes, with about `rows` rows in total.
pub(super) fn sections(
    (fleet, clock): (&Fleet, &Clock),
    (address, query): (&ListAddress, &Query),
    rows: usize,
    now: Moment,
) -> Vec<NodeSection> {
    // The number of groups determines the number of rows in each.
    let none = Query { limit: 0, ..query.clone() };
    let groups = query::group_nodes(fleet, &none, 0, now).len();
    let each = rows.checked_div(groups).unwrap_or(rows);
    let query = Query { limit: each.max(MIN_ROWS_PER_GROUP), ..query.clone() };
    let groups = query::group_nodes(fleet, &query, MAX_LIMIT, now).into_iter();
    let parts = groups.map(|one| NodeSection {
        rows: { one.items.iter() }.map(|node| NodeRow::of(node, clock, now)).collect(),
        head: Some(head(&one, address)),
    });
    parts.collect()
}

fn head(one: &GroupedNodes, address: &ListAddress) -> GroupHead {
    let more = one.total.saturating_sub(one.items.len());
    let alone = address.without(GROUP);
    // There is no filter for nodes with several types, so their link leads to the ungrouped list.
    let there = match &one.group {
        NodeGroup::Type(name) => alone.with("type", name.as_str()),
        NodeGroup::Unknown => alone.with("type", "unknown"),
        NodeGroup::Mixed | NodeGroup::NoAccelerator => alone.with("sort", "type"),
    };
    GroupHead {
        id: match &one.group {
            NodeGroup::Type(name) => format!("of-{name}"),
            NodeGroup::Mixed => "mixed".to_owned(),
            NodeGroup::Unknown => "unknown".to_owned(),
            NodeGroup::NoAccelerator => "nothing".to_owned(),
        },
        title: one.group.title().to_owned(),
        nodes: count_noun(one.total, "node", "nodes"),
        bar: (one.counts.total > 0).then(|| Bar::from_counts(one.counts, 11)),
        words: describe_counts(one.counts),
        memory: match one.memory_mib {
            0 => "-".to_owned(),
            all => format_memory(Mebibytes::new(all)),
        },
        more: (more > 0).then(|| (format!("{more} more"), there)),
    }
}
