//! The nodes of the list, together or by what is in them.

use super::address::Asked;
use super::bar::{Bar, in_words};
use super::rows::Row;
use super::words::{counted, memory};
use crate::aggregator::clock::{Clock, Moment};
use crate::aggregator::fleet::Fleet;
use crate::aggregator::query::{self, Grouped, MAX_LIMIT, Query};
use crate::domain::fleet::Group;
use crate::domain::quantity::Mebibytes;

/// The parameter that says by what nodes are taken together, and its one value.
pub(super) const GROUP: &str = "group";
pub(super) const BY_TYPE: &str = "type";

/// However many groups there are, each shows so many rows, if it has them.
const ROWS_OF_GROUP: usize = 10;

/// Nodes that are shown under one head, or without any.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) head: Option<GroupHead>,
    pub(super) rows: Vec<Row>,
}

/// What is said of a group.
#[derive(Debug)]
pub(super) struct GroupHead {
    /// For ids of the page.
    pub(super) id: String,
    pub(super) title: String,
    pub(super) nodes: String,
    pub(super) bar: Option<Bar>,
    pub(super) words: String,
    pub(super) memory: String,
    /// Nodes that are not listed, and where they are.
    pub(super) more: Option<(String, String)>,
}

/// Whether `asked` asks for groups; what is wrong with it where nobody can tell.
pub(super) fn is_asked(asked: &Asked) -> Result<bool, String> {
    match asked.get(GROUP) {
        "" => Ok(false),
        BY_TYPE => Ok(true),
        other => {
            let start: String = other.chars().take(64).collect();
            Err(format!(
                "the parameter {GROUP} cannot be {start:?}; it can be {BY_TYPE}"
            ))
        }
    }
}

/// All groups of what is asked for, with about `rows` rows in all.
pub(super) fn parts(
    (fleet, clock): (&Fleet, &Clock),
    (asked, query): (&Asked, &Query),
    rows: usize,
    now: Moment,
) -> Vec<Part> {
    // How many rows each may have is known when it is known how many there are.
    let none = Query {
        limit: 0,
        ..query.clone()
    };
    let groups = query::grouped(fleet, &none, 0, now).len();
    let each = rows.checked_div(groups).unwrap_or(rows);
    let query = Query {
        limit: each.max(ROWS_OF_GROUP),
        ..query.clone()
    };
    let groups = query::grouped(fleet, &query, MAX_LIMIT, now).into_iter();
    let parts = groups.map(|one| Part {
        rows: { one.items.iter() }
            .map(|node| Row::of(node, clock, now))
            .collect(),
        head: Some(head(&one, asked)),
    });
    parts.collect()
}

fn head(one: &Grouped, asked: &Asked) -> GroupHead {
    let more = one.total.saturating_sub(one.items.len());
    let alone = asked.without(GROUP);
    // Nodes with several types have no filter of their own: they are in the list that is not grouped.
    let there = match &one.group {
        Group::Of(name) => alone.with("type", name.as_str()),
        Group::Unknown => alone.with("type", "unknown"),
        Group::Mixed | Group::Nothing => alone.with("sort", "type"),
    };
    GroupHead {
        id: match &one.group {
            Group::Of(name) => format!("of-{name}"),
            Group::Mixed => "mixed".to_owned(),
            Group::Unknown => "unknown".to_owned(),
            Group::Nothing => "nothing".to_owned(),
        },
        title: one.group.title().to_owned(),
        nodes: counted(one.total, "node", "nodes"),
        bar: (one.counts.total() > 0).then(|| Bar::of(one.counts, 11)),
        words: in_words(one.counts),
        memory: match one.memory_mib {
            0 => "-".to_owned(),
            all => memory(Mebibytes::new(all)),
        },
        more: (more > 0).then(|| (format!("{more} more"), there)),
    }
}
