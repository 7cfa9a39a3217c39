//! Creation of a report, with the memory of the groups that it lists.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;

use octavo_fleet::price::{Currency, ExactCost, PriceBook};
use octavo_model::id::TypeName;

use super::order::CostOrder;
use super::{CostItem, CostReport, OmittedGroups, Sums, price_of};
use crate::compare::Comparison;
use crate::part::UsageState;
use crate::usage::{Dimension, UsageQuery, UsageSum};

/// Maximum number of listed groups, if their number is limited for each value of a property. A group has a sum in memory for each
/// compared type, so comparisons lower the number.
const MAX_LISTED: usize = 25_000;
/// Maximum number of values whose groups that are not listed have sums of their own.
const MAX_OMITTED: usize = 1_000;

/// Groups that a report lists: the first in an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupLimit {
    /// Order in which the groups are selected and listed.
    pub order: CostOrder,
    /// Maximum number of groups.
    pub groups: usize,
    /// True if the number applies to the groups of each value of the first property.
    pub is_per_value: bool,
}

/// Creates a report from sums. It has the listed groups in memory, and those that it compares with them.
#[derive(Debug)]
pub struct ReportBuilder<'a> {
    query: &'a UsageQuery,
    prices: Option<&'a PriceBook>,
    compare: &'a [TypeName],
    comparison: Comparison<'a>,
    /// The group of the last sums.
    current: Option<(Vec<Option<String>>, Sums)>,
    listed: ListedGroups,
    total: Sums,
}

/// A group with its place in the order.
#[derive(Debug)]
struct RankedGroup {
    rank: Rank,
    values: Vec<Option<String>>,
    sums: Sums,
}

/// Costs above zero in ascending order of their currencies, and parts of seconds. A report begins with the highest.
type Rank = (Vec<(Reverse<Currency>, ExactCost)>, i64);

/// Groups that may be listed, and the sums of those that are not.
#[derive(Debug)]
struct ListedGroups {
    limit: GroupLimit,
    /// Maximum number of all groups, if the limit applies to the groups of a value.
    max_listed: usize,
    groups: Vec<RankedGroup>,
    /// Index of the first group to which the limit applies.
    first: usize,
    omitted: OmittedSums,
}

/// Groups that are not listed and are summed up together.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum OmittedKey {
    /// Groups with this value of the first property; all groups without it if the limit applies to all groups.
    Values(Vec<Option<String>>),
    /// Groups of all further values.
    FurtherValues,
}

/// Number and sums of groups.
type OmittedSums = BTreeMap<OmittedKey, (u64, Sums)>;

impl GroupLimit {
    /// The most expensive groups.
    pub fn most_expensive(groups: usize) -> Self {
        Self { order: CostOrder::Cost, groups, is_per_value: false }
    }
}

impl<'a> ReportBuilder<'a> {
    /// Creates a report on a query without usage. Its groups have the cost of their usage on the types in `compare` too.
    pub fn new(
        query: &'a UsageQuery,
        prices: Option<&'a PriceBook>,
        compare: &'a [TypeName],
        limit: GroupLimit,
    ) -> Self {
        Self {
            query,
            prices,
            compare,
            comparison: Comparison::new(query, prices, compare),
            current: None,
            listed: ListedGroups::new(limit, compare.len()),
            total: Sums::default(),
        }
    }

    /// Adds usage. The sums of a group come one after the other, and so do the groups of a value of the first property.
    pub fn add(&mut self, sum: &UsageSum) {
        let price = price_of(self.query, sum, self.prices);
        let alternatives = self.comparison.prices(sum);
        self.total.add(sum, price.as_ref());
        self.total.compare(sum, alternatives);
        let is_known = self.current.as_ref().is_some_and(|(values, _)| *values == sum.values);
        if !is_known && let Some((values, sums)) = self.current.take() {
            self.listed.add(values, sums);
        }
        let (_, sums) = self.current.get_or_insert_with(|| (sum.values.clone(), Sums::default()));
        sums.add(sum, price.as_ref());
        sums.compare(sum, alternatives);
    }

    /// The report on the added usage.
    pub fn finish(mut self) -> CostReport {
        if let Some((values, sums)) = self.current.take() {
            self.listed.add(values, sums);
        }
        let Self { query, compare, .. } = self;
        let named = |values: Vec<Option<String>>| {
            query.by.iter().zip(values).filter_map(|(by, value)| Some((*by, value?))).collect()
        };
        let (groups, omitted) = self.listed.finish(query.by.first() == Some(&Dimension::Day));
        let item = |group: RankedGroup| CostItem {
            group: named(group.values),
            usage: group.sums.usage(compare),
        };
        let omitted = omitted.into_iter().map(|(key, (groups, sums))| {
            let (values, further_values) = match key {
                OmittedKey::Values(values) => (values, false),
                OmittedKey::FurtherValues => (Vec::new(), true),
            };
            let usage = sums.usage(compare);
            OmittedGroups { group: named(values), further_values, groups, usage }
        });
        let omitted: Vec<OmittedGroups> = omitted.collect();
        CostReport {
            api_version: octavo_model::API_VERSION.to_owned(),
            kind: "CostReport".to_owned(),
            from: query.from,
            until: query.until,
            begins: None,
            by: query.by.clone(),
            items: groups.into_iter().map(item).collect(),
            omitted_items: omitted.iter().fold(0, |sum, one| sum.saturating_add(one.groups)),
            omitted,
            total: self.total.usage(compare),
            notes: Vec::new(),
        }
    }
}

impl RankedGroup {
    fn new(order: CostOrder, values: Vec<Option<String>>, sums: Sums) -> Self {
        let idle = |costs: &BTreeMap<UsageState, ExactCost>| costs.get(&UsageState::Idle).copied();
        let costs = sums.costs.0.iter().filter_map(|(currency, costs)| {
            let cost = match order {
                CostOrder::Idle => idle(costs),
                CostOrder::Cost | CostOrder::Hours => {
                    costs.values().try_fold(ExactCost::default(), |sum, one| sum.checked_add(*one))
                }
            };
            // A group without such a cost must not precede groups in other currencies or without a price.
            let cost = cost.filter(|cost| *cost > ExactCost::default())?;
            Some((Reverse(currency.clone()), cost))
        });
        let costs = if order == CostOrder::Hours { Vec::new() } else { costs.collect() };
        let seconds = match order {
            CostOrder::Idle => sums.ppm_seconds.get(&UsageState::Idle).copied().unwrap_or_default(),
            CostOrder::Cost | CostOrder::Hours => sums.total(),
        };
        Self { rank: (costs, seconds), values, sums }
    }

    /// Order in a report; equal groups are in the order of their values.
    fn order(&self, other: &Self) -> Ordering {
        other.rank.cmp(&self.rank).then_with(|| self.values.cmp(&other.values))
    }
}

impl ListedGroups {
    /// No groups. Each has the costs on this number of compared types.
    fn new(limit: GroupLimit, compared: usize) -> Self {
        let max_listed = MAX_LISTED.checked_div(compared.saturating_add(1)).unwrap_or(MAX_LISTED);
        let groups = if limit.is_per_value { limit.groups.min(max_listed) } else { limit.groups };
        let limit = GroupLimit { groups, ..limit };
        Self { limit, max_listed, groups: Vec::new(), first: 0, omitted: BTreeMap::new() }
    }

    fn add(&mut self, values: Vec<Option<String>>, sums: Sums) {
        let is_first_of_value = self.limit.is_per_value
            && self.groups.last().is_some_and(|last| last.values.first() != values.first());
        if is_first_of_value {
            self.truncate(self.first, self.limit.groups);
            // Also limits the number of all groups.
            if self.groups.len() >= self.max_listed.saturating_mul(2) {
                self.truncate(0, self.max_listed);
            }
            self.first = self.groups.len();
        }
        self.groups.push(RankedGroup::new(self.limit.order, values, sums));
        // Each selection reads all groups, so it removes half of them.
        let compared = self.groups.len().saturating_sub(self.first);
        if compared >= self.limit.groups.saturating_mul(2) {
            self.truncate(self.first, self.limit.groups);
        }
    }

    /// Omits groups from index `first` on, so that `most` of them remain.
    fn truncate(&mut self, first: usize, most: usize) {
        let Some(compared) = self.groups.get_mut(first..).filter(|groups| groups.len() > most)
        else {
            return;
        };
        compared.select_nth_unstable_by(most, RankedGroup::order);
        for mut group in self.groups.drain(first.saturating_add(most)..) {
            group.values.truncate(usize::from(self.limit.is_per_value));
            // Groups without a value remain separate, because readers do not expect them among those of other values.
            let has_value = group.values.first().is_some_and(Option::is_some);
            let is_full = has_value && self.omitted.len() >= MAX_OMITTED;
            let mut key = OmittedKey::Values(group.values);
            if is_full && !self.omitted.contains_key(&key) {
                key = OmittedKey::FurtherValues;
            }
            let (groups, sums) = self.omitted.entry(key).or_default();
            *groups = groups.saturating_add(1);
            sums.merge(group.sums);
        }
    }

    /// The listed groups, and the number and sums of the others.
    fn finish(mut self, by_time: bool) -> (Vec<RankedGroup>, OmittedSums) {
        self.truncate(self.first, self.limit.groups);
        if self.limit.is_per_value {
            self.truncate(0, self.max_listed);
        }
        if by_time {
            self.groups.sort_by(|one, two| one.values.cmp(&two.values));
        } else {
            self.groups.sort_by(RankedGroup::order);
        }
        (self.groups, self.omitted)
    }
}
