//! Queries of the fleet's nodes: filter, order and pagination. Pure.
//!
//! A page ends with a [`ContinueToken`] that contains the last node and its sort key. The next page continues after that
//! position whatever has changed, so a node whose position did not change is neither repeated nor skipped. Used by the
//! REST API and the pages, with the same parameters.

mod error;
mod group;
pub(crate) mod parse;
mod selector;
mod token;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use octavo_fleet::summary::{NodeProblem, NodeState, Sharing};
use octavo_model::id::TypeName;
use octavo_model::reported::Reported;
use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr, VariantArray};

use super::clock::Moment;
use super::fleet::{Fleet, IndexedNode, Node, NodeClass};
pub use error::QueryError;
pub use group::{GroupedNodes, group_nodes};
pub use parse::{NO_STATE, check_names};
pub use selector::{Selector, SelectorError};
use token::Rank;
pub use token::{ContinueToken, TokenError};

/// Default number of nodes per page.
pub const DEFAULT_LIMIT: usize = 500;

/// Maximum number of nodes per page.
pub const MAX_LIMIT: usize = 1000;

/// Filters, order and page size. A node must satisfy all filters; within one filter, any value suffices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// Substring of the name, in lower case.
    pub search: Option<String>,
    /// Types of which the node has at least one device; `None` is a device of unknown type. Empty accepts all.
    pub types: Vec<Option<TypeName>>,
    /// States of the node. Empty accepts all.
    pub states: Vec<NodeState>,
    /// Words of problems of which the node has at least one. Empty accepts all.
    pub problems: Vec<String>,
    /// Sharing modes of the node. Empty accepts all.
    pub sharing: Vec<Sharing>,
    /// Layout names. Empty accepts all.
    pub layouts: Vec<String>,
    /// Layout states; `None` is a node whose layout does not affect any device. Empty accepts all.
    pub layout_states: Vec<Option<&'static str>>,
    /// Label selector.
    pub selector: Selector,
    /// Order.
    pub sort: Sort,
    /// Number of nodes per page, 1 to [`MAX_LIMIT`].
    pub limit: usize,
    /// Position where the page begins; `None` for the first page.
    pub after: Option<ContinueToken>,
}

/// Order of nodes. Ties are ordered by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Sort {
    /// Sort key.
    pub key: SortKey,
    /// Whether the order is descending.
    pub descending: bool,
}

/// Sort key.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    Serialize,
    Deserialize,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[strum(serialize_all = "lowercase")]
pub enum SortKey {
    /// Name.
    #[default]
    Name,
    /// State, by severity.
    State,
    /// Number of devices.
    Devices,
    /// Number of free devices.
    Free,
    /// Memory of all devices.
    Memory,
    /// Time since the agent's last confirmation. A node that is confirmed between two pages moves in this order.
    Age,
    /// First of its types; unknown ones last.
    Type,
    /// Sharing mode.
    Sharing,
}

/// Page of nodes.
#[derive(Debug, Clone)]
pub struct Page {
    /// Nodes in order.
    pub items: Vec<Arc<Node>>,
    /// Number of matching nodes on all pages.
    pub total: usize,
    /// Position of the next page; `None` on the last page.
    pub next: Option<ContinueToken>,
}

/// Returns the page of `fleet` that `query` requests.
pub fn find(fleet: &Fleet, query: &Query, now: Moment) -> Page {
    let mut matching: Vec<RankedNode<'_>> = Vec::new();
    let mut total: usize = 0;
    let after = query.after.as_ref().map(ContinueToken::last);
    // Position of the first node whose name is greater than that of the last page's last node.
    let after = after.map(|last| (&last.rank, fleet.nodes.count_up_to(&last.name)));
    let is_natural = query.sort.is_natural();
    Filter::new(query, now).visit(fleet, |position, node| {
        total = total.saturating_add(1);
        // Nodes are visited by name, so nodes before and after the page only need to be counted.
        let is_before = after.is_some_and(|(_, first)| position < first);
        if is_natural && (is_before || matching.len() > query.limit) {
            return;
        }
        // Agents may confirm nodes concurrently, so each sort key is read once.
        let ranked = RankedNode::new((position, node), query.sort.key, now);
        if after.is_none_or(|last| ranked.compare(last, query.sort.descending).is_ge()) {
            matching.push(ranked);
        }
    });
    let more = matching.len() > query.limit;
    order(&mut matching, query);
    let next = matching.last().filter(|_| more);
    Page {
        next: next.map(|last| ContinueToken::new(query, last.rank.owned(), last.node.name.clone())),
        items: matching.into_iter().map(|placed| Arc::clone(placed.node)).collect(),
        total,
    }
}

/// Sorts `nodes` and keeps the first `limit`.
fn order(nodes: &mut Vec<RankedNode<'_>>, query: &Query) {
    let compare = |a: &RankedNode<'_>, b: &RankedNode<'_>| {
        a.compare((&b.rank, b.position), query.sort.descending)
    };
    if !query.sort.is_natural() {
        if query.limit < nodes.len() {
            nodes.select_nth_unstable_by(query.limit, compare);
            nodes.truncate(query.limit);
        }
        nodes.sort_unstable_by(compare);
    }
    nodes.truncate(query.limit);
}

/// Node with its sort key, and its position in the order of names, which is compared faster than names.
#[derive(Debug)]
struct RankedNode<'a> {
    rank: Rank<'a>,
    position: usize,
    node: &'a Arc<Node>,
}

impl<'a> RankedNode<'a> {
    fn new((position, one): (usize, IndexedNode<'a>), key: SortKey, now: Moment) -> Self {
        let IndexedNode { node, record, class, .. } = one;
        let rank = match key {
            SortKey::Name => Rank::Text(node.name.as_str().into()),
            SortKey::State => {
                let state = one.state(now);
                let severity = NodeState::ALL.iter().position(|one| *one == state);
                Rank::number(severity.unwrap_or_default())
            }
            SortKey::Devices => Rank::Number(record.devices.into()),
            // The use of the devices of a stale node is unknown.
            SortKey::Free => Rank::Number(if one.is_stale(now) { 0 } else { record.free.into() }),
            SortKey::Memory => Rank::Number(record.memory.get()),
            // An older confirmation has a greater rank.
            SortKey::Age => {
                Rank::Number(u64::MAX.saturating_sub(node.freshness.confirmed().as_millis()))
            }
            SortKey::Type => {
                let name = class.types.first().and_then(Option::as_ref);
                name.map_or(Rank::Untyped, |name| Rank::Text(name.as_str().into()))
            }
            SortKey::Sharing => {
                let place = Sharing::ALL.iter().position(|one| *one == class.sharing);
                Rank::number(place.unwrap_or_default())
            }
        };
        Self { rank, position, node }
    }

    /// Compares the node with the node at `position` that has `rank`.
    fn compare(&self, (rank, position): (&Rank<'_>, usize), descending: bool) -> Ordering {
        let by_rank = self.rank.cmp(rank);
        let by_rank = if descending { by_rank.reverse() } else { by_rank };
        by_rank.then_with(|| self.position.cmp(&position))
    }
}

/// Filters of a query at one point in time.
struct Filter<'a> {
    query: &'a Query,
    now: Moment,
    /// Result for each label set, by its address, because nodes share label sets.
    labels: BTreeMap<usize, bool>,
}

/// Result of the filters that depend on the class of a node and on its staleness only.
#[derive(Debug, Clone, Copy)]
struct ClassMatch {
    fresh: bool,
    stale: bool,
}

impl ClassMatch {
    fn matches(self, is_stale: impl FnOnce() -> bool) -> bool {
        if self.fresh != self.stale && is_stale() { self.stale } else { self.fresh }
    }
}

impl<'a> Filter<'a> {
    fn new(query: &'a Query, now: Moment) -> Self {
        Self { query, now, labels: BTreeMap::new() }
    }

    /// Calls `act` with the position and the node of each match, in the order of names. Nodes are far apart in memory, so one is read only
    /// if the index does not decide.
    fn visit<'n>(&mut self, fleet: &'n Fleet, mut act: impl FnMut(usize, IndexedNode<'n>)) {
        let mut position: usize = 0;
        for chunk in fleet.nodes.chunks() {
            let matches: Vec<ClassMatch> = chunk.classes().map(|one| self.class(one)).collect();
            for one in chunk.nodes(self.now) {
                let class = matches.get(one.record.class());
                let is_match = class.is_some_and(|class| class.matches(|| one.is_stale(self.now)));
                if is_match && self.accepts(one) {
                    act(position, one);
                }
                position = position.saturating_add(1);
            }
        }
    }

    fn class(&self, class: &NodeClass) -> ClassMatch {
        // Every field is named, so that a new filter does not compile until it is applied here or in `accepts`.
        let Query {
            search: _,
            types,
            states,
            problems,
            sharing,
            layouts,
            layout_states,
            selector: _,
            sort: _,
            limit: _,
            after: _,
        } = self.query;
        let layout_state = class.layout_state.as_ref().map(Reported::as_str);
        let has_layout = |wanted: &String| class.layout.as_ref() == Some(wanted);
        let always = (sharing.is_empty() || sharing.contains(&class.sharing))
            && (layout_states.is_empty() || layout_states.contains(&layout_state))
            && (layouts.is_empty() || layouts.iter().any(has_layout))
            && (types.is_empty() || types.iter().any(|wanted| class.types.contains(wanted)));
        // Only nodes that need attention have problems.
        let in_state = |state: NodeState| {
            always
                && (states.is_empty() || states.contains(&state))
                && (problems.is_empty() || state.needs_attention())
        };
        ClassMatch { fresh: in_state(class.state), stale: in_state(NodeState::Stale) }
    }

    /// Evaluates the filters that are not decided by the class.
    fn accepts(&mut self, IndexedNode { node, record, .. }: IndexedNode<'_>) -> bool {
        let Query { search, problems, selector, .. } = self.query;
        let is_wanted =
            |problem: &NodeProblem| problems.iter().any(|wanted| wanted == problem.reason);
        (selector.is_empty()
            || *self.labels.entry(record.labels).or_insert_with(|| selector.matches(&node.labels)))
            && (problems.is_empty() || node.problems(self.now).iter().any(is_wanted))
            && search.as_ref().is_none_or(|part| node.name.as_str().contains(part.as_str()))
    }
}

impl Default for Query {
    fn default() -> Self {
        Self {
            search: None,
            types: Vec::new(),
            states: Vec::new(),
            problems: Vec::new(),
            sharing: Vec::new(),
            layouts: Vec::new(),
            layout_states: Vec::new(),
            selector: Selector::default(),
            sort: Sort::default(),
            limit: DEFAULT_LIMIT,
            after: None,
        }
    }
}

impl SortKey {
    /// All sort keys.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Value in the parameter.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl Sort {
    /// Returns whether this is the order in which the fleet stores its nodes.
    fn is_natural(self) -> bool {
        self == Self::default()
    }
}

/// Formats the parameter's value: `free`, and `-free` for descending order.
impl fmt::Display for Sort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.descending { "-" } else { "" };
        write!(f, "{sign}{}", self.key.as_str())
    }
}

#[cfg(test)]
mod tests;
