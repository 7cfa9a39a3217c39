//! Asking the fleet for nodes: filter, order, page. Pure.
//!
//! A page ends with a [`Token`] that says which node was last, and by what it was ordered. The next page begins after that
//! place whatever has happened meanwhile, so a node that stayed where it was in the order is neither repeated nor lost.
//! Called by the REST API and by the pages, which take the same parameters.

mod error;
mod group;
mod parse;
mod selector;
mod token;

use std::fmt;
use std::sync::Arc;

pub use error::{Parameter, QueryError};
pub use group::{Grouped, grouped};
pub use parse::NO_STATE;
pub use selector::{Selector, SelectorError};
pub use token::{Token, TokenError};

use super::clock::Moment;
use super::fleet::{Fleet, Node};
use crate::domain::fleet::{NodeState, Sharing};
use crate::domain::id::TypeName;
use crate::domain::labels::LabelSet;
use token::{Last, Rank};

/// Nodes on a page, where nothing else is asked for.
pub const DEFAULT_LIMIT: usize = 500;

/// Nodes on a page, at most.
pub const MAX_LIMIT: usize = 1000;

/// Which nodes, in which order, how many. All filters must hold; of the values of one filter, any may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// A part of the name, in lower case.
    pub search: Option<String>,
    /// Types of which the node has at least one device; `None` is a device nobody knows. Empty lets all through.
    pub types: Vec<Option<TypeName>>,
    /// How the node is. Empty lets all through.
    pub states: Vec<NodeState>,
    /// How its devices are given out. Empty lets all through.
    pub sharing: Vec<Sharing>,
    /// Names of layouts, of which the node shall have one. Empty lets all through.
    pub layouts: Vec<String>,
    /// How it stands with regard to its layout, in a word; `None` where nothing is asked of any device. Empty lets all through.
    pub layout_states: Vec<Option<&'static str>>,
    /// What its labels must be.
    pub selector: Selector,
    /// The order.
    pub sort: Sort,
    /// Nodes on a page, 1 to [`MAX_LIMIT`].
    pub limit: usize,
    /// Where the page begins; at the start if absent.
    pub after: Option<Token>,
}

/// An order of nodes. Nodes that are equal in it are ordered by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sort {
    /// By what.
    pub key: SortKey,
    /// Whether the greatest comes first.
    pub descending: bool,
}

/// What nodes are ordered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SortKey {
    /// The name.
    #[default]
    Name,
    /// How it is, by gravity.
    State,
    /// How many devices.
    Devices,
    /// How many of them are free.
    Free,
    /// Memory of all devices.
    Memory,
    /// How long ago its agent confirmed what is known. A node that is confirmed between two pages moves in this order.
    Age,
    /// The first of its types; unknown ones last.
    Type,
    /// How its devices are given out.
    Sharing,
}

/// One page.
#[derive(Debug, Clone)]
pub struct Page {
    /// Its nodes, in order.
    pub items: Vec<Arc<Node>>,
    /// How many nodes match, on all pages.
    pub total: usize,
    /// Where the next page begins; `None` on the last.
    pub next: Option<Token>,
}

/// The page of `fleet` that `query` asks for.
pub fn run(fleet: &Fleet, query: &Query, now: Moment) -> Page {
    let mut matching: Vec<Placed<'_>> = Vec::new();
    let mut total: usize = 0;
    let mut filter = Filter::new(query, now);
    let after = query.after.as_ref().map(Token::last);
    for node in fleet.nodes.iter() {
        if !filter.lets_through(node) {
            continue;
        }
        total = total.saturating_add(1);
        // The clock of a node's freshness moves while we look, so what it is ordered by is read once.
        let placed = Placed::new(node, query.sort.key, now);
        let comes = after.is_none_or(|last| placed.is_after(last, query.sort.descending));
        // By name the nodes come in order: what is past the page only counts.
        let wanted = !query.sort.is_natural() || matching.len() <= query.limit;
        if comes && wanted {
            matching.push(placed);
        }
    }
    let more = matching.len() > query.limit;
    order(&mut matching, query);
    let next = matching.last().filter(|_| more);
    Page {
        next: next.map(|last| Token::new(query, last.rank.owned(), last.node.name.clone())),
        items: matching
            .into_iter()
            .map(|placed| Arc::clone(placed.node))
            .collect(),
        total,
    }
}

/// Leaves the first `limit` of `nodes`, in order.
fn order(nodes: &mut Vec<Placed<'_>>, query: &Query) {
    let descending = query.sort.descending;
    if !query.sort.is_natural() {
        if query.limit < nodes.len() {
            nodes.select_nth_unstable_by(query.limit, |a, b| a.compare(b, descending));
            nodes.truncate(query.limit);
        }
        nodes.sort_unstable_by(|a, b| a.compare(b, descending));
    }
    nodes.truncate(query.limit);
}

/// A node and what it is ordered by.
#[derive(Debug)]
struct Placed<'a> {
    rank: Rank<'a>,
    node: &'a Arc<Node>,
}

impl<'a> Placed<'a> {
    fn new(node: &'a Arc<Node>, key: SortKey, now: Moment) -> Self {
        let rank = match key {
            SortKey::Name => Rank::Text(node.name.as_str().into()),
            SortKey::State => {
                let state = node.state(now);
                let gravity = NodeState::ALL.iter().position(|one| *one == state);
                Rank::number(gravity.unwrap_or_default())
            }
            SortKey::Devices => Rank::Number(node.counts(now).total().into()),
            SortKey::Free => Rank::Number(node.counts(now).free.into()),
            SortKey::Memory => Rank::Number(node.summary.memory.get()),
            // The older, the greater.
            SortKey::Age => {
                Rank::Number(u64::MAX.saturating_sub(node.freshness.confirmed().as_millis()))
            }
            SortKey::Type => {
                let first = node.summary.types.first();
                let name = first.and_then(|one| one.type_name.as_ref());
                name.map_or(Rank::Nameless, |name| Rank::Text(name.as_str().into()))
            }
            SortKey::Sharing => {
                let sharing = node.summary.sharing;
                let place = Sharing::ALL.iter().position(|one| *one == sharing);
                Rank::number(place.unwrap_or_default())
            }
        };
        Self { rank, node }
    }

    fn compare(&self, other: &Self, descending: bool) -> std::cmp::Ordering {
        directed(self.rank.cmp(&other.rank), descending)
            .then_with(|| self.node.name.cmp(&other.node.name))
    }

    fn is_after(&self, last: &Last, descending: bool) -> bool {
        directed(self.rank.cmp(&last.rank), descending)
            .then_with(|| self.node.name.cmp(&last.name))
            .is_gt()
    }
}

fn directed(ordering: std::cmp::Ordering, descending: bool) -> std::cmp::Ordering {
    if descending {
        ordering.reverse()
    } else {
        ordering
    }
}

/// The filters of a query, at one moment.
struct Filter<'a> {
    query: &'a Query,
    now: Moment,
    /// The labels that were looked at last and whether they match: nodes share them.
    labels: Option<(*const LabelSet, bool)>,
}

impl<'a> Filter<'a> {
    fn new(query: &'a Query, now: Moment) -> Self {
        Self {
            query,
            now,
            labels: None,
        }
    }

    /// The cheap questions first.
    fn lets_through(&mut self, node: &Node) -> bool {
        let Query {
            search,
            types,
            states,
            sharing,
            layouts,
            layout_states,
            ..
        } = self.query;
        let layout = node.summary.layout.as_ref();
        let name = layout.and_then(|layout| layout.layout.as_deref());
        let stands = layout.and_then(|layout| layout.state.as_deref());
        let has_type = |wanted: &Option<TypeName>| {
            let mut all = node.summary.types.iter();
            all.any(|one| one.type_name == *wanted)
        };
        (sharing.is_empty() || sharing.contains(&node.summary.sharing))
            && (layout_states.is_empty() || layout_states.contains(&stands))
            && (layouts.is_empty() || layouts.iter().any(|wanted| Some(wanted.as_str()) == name))
            && (states.is_empty() || states.contains(&node.state(self.now)))
            && (types.is_empty() || types.iter().any(has_type))
            && search
                .as_ref()
                .is_none_or(|part| node.name.as_str().contains(part.as_str()))
            && self.selects(&node.labels)
    }

    fn selects(&mut self, labels: &Arc<LabelSet>) -> bool {
        if self.query.selector.is_empty() {
            return true;
        }
        let here = Arc::as_ptr(labels);
        if let Some((seen, selected)) = self.labels
            && std::ptr::eq(seen, here)
        {
            return selected;
        }
        let selected = self.query.selector.matches(labels);
        self.labels = Some((here, selected));
        selected
    }
}

impl Default for Query {
    fn default() -> Self {
        Self {
            search: None,
            types: Vec::new(),
            states: Vec::new(),
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
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Name,
        Self::State,
        Self::Devices,
        Self::Free,
        Self::Memory,
        Self::Age,
        Self::Type,
        Self::Sharing,
    ];

    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::State => "state",
            Self::Devices => "devices",
            Self::Free => "free",
            Self::Memory => "memory",
            Self::Age => "age",
            Self::Type => "type",
            Self::Sharing => "sharing",
        }
    }
}

impl Sort {
    /// Whether it is the order in which the fleet keeps its nodes.
    fn is_natural(self) -> bool {
        self == Self::default()
    }
}

/// As the parameter says it: `free`, and `-free` for the greatest first.
impl fmt::Display for Sort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.descending { "-" } else { "" };
        write!(f, "{sign}{}", self.key.as_str())
    }
}

#[cfg(test)]
mod tests;
