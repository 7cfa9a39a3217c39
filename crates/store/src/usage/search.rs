//! Search for a page of usage rows that reads as few nodes as possible, in small steps.
//!
//! The sort keys of each node's rows are known without decoding ([`UsageRank`](octavo_fleet::summary::UsageRank)), so
//! nodes are read in the order of their first matching row. The page is complete once all remaining rows sort after it.
//! Of names, only the hashes of pods are known before decoding: if few rows of a namespace match, a page ends before it is full, and the
//! next one continues from there.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use octavo_fleet::usage::{UsageRow, rows};
use octavo_model::id::NodeName;
use octavo_stream::protocol::PartKey;
use octavo_stream::status;

use super::token::{Position, position};
use super::{ContinueToken, Page, Query, Sort};
use crate::clock::Moment;
use crate::fleet::{Fleet, Node};

/// Bytes of parts decoded per step: about thirty nodes, a few milliseconds.
pub(super) const BYTES_PER_STEP: usize = 128 * 1024;
/// Bytes of parts decoded per page: about four thousand nodes.
pub(super) const MAX_BYTES_READ: usize = 16 * 1024 * 1024;

/// Search in progress. Pure: the caller yields between the steps.
#[derive(Debug)]
pub struct Search<'a> {
    query: &'a Query,
    now: Moment,
    /// Nodes that may have rows of the page, ordered by name.
    nodes: Vec<&'a Arc<Node>>,
    /// Nodes to read, by the rank of their first matching row and their index in `nodes`.
    left: BinaryHeap<Reverse<(u64, usize)>>,
    /// Best rows found so far, one more than the page needs. Ties are distinguished by the order in which they were
    /// found.
    found: BTreeMap<(Position, usize), UsageRow>,
    /// Number of rows found, bytes read, and the limit of bytes.
    count: usize,
    read: usize,
    most: usize,
}

impl<'a> Search<'a> {
    /// Prepares the search for the page of `fleet` that `query` requests, without reading.
    pub fn new(fleet: &'a Fleet, query: &'a Query, now: Moment) -> Self {
        Self::within(fleet, query, now, MAX_BYTES_READ)
    }

    /// Like [`new`](Self::new), with a limit of bytes to read.
    pub(super) fn within(fleet: &'a Fleet, query: &'a Query, now: Moment, most: usize) -> Self {
        let mut search = Self {
            query,
            now,
            nodes: Vec::new(),
            left: BinaryHeap::new(),
            found: BTreeMap::new(),
            count: 0,
            read: 0,
            most,
        };
        match &query.node {
            Some(name) => {
                let name = name.parse::<NodeName>().ok();
                search.consider(name.and_then(|name| fleet.nodes.get(&name)));
            }
            None => search.consider(fleet.nodes.iter()),
        }
        search
    }

    fn consider(&mut self, nodes: impl IntoIterator<Item = &'a Arc<Node>>) {
        let mut left = Vec::new();
        for node in nodes {
            if let Some(rank) = first_rank(node, self.query) {
                left.push(Reverse((rank, self.nodes.len())));
                self.nodes.push(node);
            }
        }
        self.left = left.into();
    }

    /// Reads some nodes; returns whether more have to be read for this page.
    pub fn step(&mut self) -> bool {
        let pause = self.read.saturating_add(BYTES_PER_STEP);
        while self.read < pause {
            if self.is_whole() || self.read >= self.most {
                return false;
            }
            let Some(Reverse((_, at))) = self.left.pop() else {
                return false;
            };
            if let Some(node) = self.nodes.get(at) {
                self.add_node(node);
            }
        }
        true
    }

    /// Returns the page as read so far.
    pub fn page(mut self) -> Page {
        let is_whole = self.is_whole();
        let goes_on = self.next().map(|(rank, name)| (rank, name.to_owned(), String::new()));
        let goes_on = goes_on.filter(|_| !is_whole);
        if let Some(place) = &goes_on {
            // Rows that sort after an unread node belong to a later page and will be found again.
            self.found.split_off(&(place.clone(), 0));
        }
        let more = self.found.len() > self.query.limit;
        if more {
            self.found.pop_last();
        }
        let last = self.found.keys().next_back();
        let last = last.filter(|_| more).map(|(place, _)| place.clone());
        Page {
            next: last.or(goes_on).map(|place| ContinueToken::new(self.query, place)),
            items: self.found.into_values().collect(),
        }
    }

    /// Earliest possible position of an unread row.
    fn next(&self) -> Option<(u64, &'a str)> {
        let Reverse((rank, at)) = self.left.peek()?;
        let node: &'a Arc<Node> = self.nodes.get(*at)?;
        Some((*rank, node.name.as_str()))
    }

    /// Returns whether no unread row can sort before the found ones.
    fn is_whole(&self) -> bool {
        if self.found.len() <= self.query.limit {
            return false;
        }
        let last = self.found.keys().next_back();
        let last = last.map(|((rank, node, _), _)| (*rank, node.as_str()));
        self.next().is_none_or(|next| last < Some(next))
    }

    /// Adds the rows of a node. The store accepts decodable parts only.
    fn add_node(&mut self, node: &Node) {
        let Some(part) = node.parts.get(PartKey::USAGE) else {
            return;
        };
        self.read = self.read.saturating_add(part.bytes().len());
        let Ok(usage) = status::decode_usage(part) else {
            return;
        };
        let stale = node.freshness.is_stale(self.now);
        for row in rows(node.name.as_str(), stale, &usage) {
            let place = position(self.query.sort, &row);
            let after = self.query.after.as_ref();
            let comes = after.is_none_or(|after| *after.last() < place);
            if comes && self.query.matches(&row) {
                self.count = self.count.saturating_add(1);
                self.found.insert((place, self.count), row);
                if self.found.len() > self.query.limit.saturating_add(1) {
                    self.found.pop_last();
                }
            }
        }
    }
}

/// Rank of the first row of `node` that can match; `None` if there is none.
fn first_rank(node: &Node, query: &Query) -> Option<u64> {
    if query.pod.as_ref().is_some_and(|pod| !node.usage.may_have_pod(pod)) {
        return None;
    }
    let name = node.name.as_str();
    let after = query.after.as_ref().map(ContinueToken::last);
    match (query.sort, after) {
        (Sort::Node, Some((_, last, _))) if name < last.as_str() => None,
        (Sort::Node, _) => node.usage.first(query.over, u64::MAX).map(|_| 0),
        (Sort::Memory, after) => {
            let most = match after {
                None => u64::MAX,
                // Ties are ordered by node, so nodes before the last one have already returned rows of that rank.
                Some((rank, last, _)) => {
                    let memory = u64::MAX.saturating_sub(*rank);
                    let returned = u64::from(name < last.as_str());
                    memory.checked_sub(returned)?
                }
            };
            let memory = node.usage.first(query.over, most)?;
            Some(u64::MAX.saturating_sub(memory))
        }
    }
}
