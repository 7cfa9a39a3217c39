//! Report of usage and cost: the document of the REST API.

mod builder;
mod order;

use std::collections::BTreeMap;

use jiff::Timestamp;
use octavo_fleet::price::{Amount, Currency, ExactCost, PriceBook, UnitPrice};
use octavo_model::id::TypeName;
use octavo_model::text::group_thousands;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

pub use self::builder::{GroupLimit, ReportBuilder};
pub use self::order::CostOrder;
use crate::compare::{Alternative, ComparedPrice, ComparisonError};
pub use crate::cost::Cost;
use crate::cost::shown_costs;
use crate::interval::Day;
use crate::part::{PPM, UsageState};
use crate::usage::{Dimension, UsageQuery, UsageSum};

/// Decimals of a cost in a report.
pub(crate) const DECIMALS: u32 = 4;
/// Decimals of hours in a report.
const HOUR_DECIMALS: f64 = 1e6;

/// Usage and cost of devices in a time range.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CostReport {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `CostReport`.
    pub kind: String,
    /// Start of the time range.
    #[schema(value_type = String)]
    pub from: Timestamp,
    /// End of the time range, exclusive.
    #[schema(value_type = String)]
    pub until: Timestamp,
    /// First day in the ledger; absent if it is empty. Nothing is known about the time before it.
    pub begins: Option<String>,
    /// Properties by which the usage is grouped.
    pub by: Vec<Dimension>,
    /// Usage of each group, in descending order of cost and then of device hours, unless another order is requested; in the order of time
    /// if the groups are days.
    pub items: Vec<CostItem>,
    /// Number of groups that are not in `items`, but are in `total`.
    pub omitted_items: u64,
    /// Usage of the groups that are not in `items`, so that both add up to `total` apart from rounding: one element, or one for each value
    /// of the property in `limitBy`. Of more than 1,000 values, the last element has the groups of the further ones.
    #[serde(default)]
    pub omitted: Vec<OmittedGroups>,
    /// Usage of all groups.
    pub total: Usage,
    /// Notes on missing data.
    pub notes: Vec<String>,
}

/// Usage and cost of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CostItem {
    /// Value of each property. Parts without the property, such as the namespace of an unallocated device, have none.
    #[schema(value_type = std::collections::BTreeMap<String, String>)]
    pub group: BTreeMap<Dimension, String>,
    /// Its usage.
    #[serde(flatten)]
    pub usage: Usage,
}

/// Usage and cost of the groups that are not listed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OmittedGroups {
    /// Value of the property in `limitBy`, if there is one.
    #[schema(value_type = std::collections::BTreeMap<String, String>)]
    pub group: BTreeMap<Dimension, String>,
    /// True for the groups of further values of the property in `limitBy`, which have no elements of their own. `group` is empty.
    #[serde(default)]
    pub further_values: bool,
    /// Number of groups.
    pub groups: u64,
    /// Their usage.
    #[serde(flatten)]
    pub usage: Usage,
}

/// Device hours and costs. The hours of a partitioned device are the sum of its parts.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = GroupUsage)]
pub struct Usage {
    /// Device hours by state.
    pub device_hours: Hours,
    /// Device hours that no report covers, but which follow from the reports before and after them. They are included in
    /// `deviceHours`.
    pub inferred_hours: f64,
    /// Device hours without a price, which have no cost.
    pub unpriced_hours: f64,
    /// Mean utilization of the allocated device hours in which it is known, in percent.
    pub utilization_percent: Option<f64>,
    /// Costs, one for each currency.
    pub costs: Vec<Cost>,
    /// Cost of the same device hours on the compared types.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<Alternative>,
}

/// Device hours by state.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DeviceHours)]
pub struct Hours {
    /// Allocated to containers with processes, or whose processes are not reported.
    pub used: f64,
    /// Allocated to containers without processes.
    pub idle: f64,
    /// Not allocated.
    pub unallocated: f64,
    /// Not reported.
    pub unknown: f64,
    /// Sum of all.
    pub total: f64,
}

/// Exact sums.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Sums {
    ppm_seconds: BTreeMap<UsageState, i64>,
    inferred: i64,
    unpriced: i64,
    percent_seconds: i64,
    measured_seconds: i64,
    costs: CostSums,
    /// For each compared type.
    alternatives: Vec<AlternativeSums>,
}

/// Exact costs by currency and state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct CostSums(BTreeMap<Currency, BTreeMap<UsageState, ExactCost>>);

/// Exact costs on a compared type.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct AlternativeSums {
    costs: CostSums,
    reason: Option<ComparisonError>,
}

/// Times in the days of a range at which a price changes. A change within a day applies to the whole day, because the ledger
/// sums up days.
pub fn price_changes(prices: &PriceBook, from: Timestamp, until: Timestamp) -> Vec<Timestamp> {
    let from = Day::of(from.as_second()).start_time();
    let until = Day::of(until.as_second().saturating_sub(1)).end_time();
    let bounds = prices.entries().flat_map(|entry| [entry.validity.from, entry.validity.until]);
    let mut bounds: Vec<Timestamp> =
        bounds.flatten().filter(|at| from < *at && *at < until).collect();
    bounds.sort_unstable();
    bounds.dedup();
    bounds
}

/// Creates the report for a query from its sums. It lists the most expensive groups, at most `limit`, with the cost of their usage on the
/// types in `compare`.
pub fn report(
    query: &UsageQuery,
    mut sums: Vec<UsageSum>,
    prices: Option<&PriceBook>,
    compare: &[TypeName],
    limit: usize,
) -> CostReport {
    sums.sort_by(|one, two| one.values.cmp(&two.values));
    let limit = GroupLimit::most_expensive(limit);
    let mut builder = ReportBuilder::new(query, prices, compare, limit);
    for sum in &sums {
        builder.add(sum);
    }
    builder.finish()
}

/// The price of usage.
pub(crate) fn price_of(
    query: &UsageQuery,
    sum: &UsageSum,
    prices: Option<&PriceBook>,
) -> Option<UnitPrice> {
    query.price(sum.period, sum.price_key.as_ref()?, prices?)
}

impl OmittedGroups {
    /// Text for the row of these groups in a report by these properties: `other: 1,200 workloads`, or `other: 1,200 workloads of further
    /// teams`.
    pub fn label(&self, by: &[Dimension]) -> String {
        let noun = match by {
            [one] | [_, one @ (Dimension::Workload | Dimension::Pod)] => one.noun(self.groups),
            _ if self.groups == 1 => "group",
            _ => "groups",
        };
        let further = by.first().filter(|_| self.further_values);
        let further = further.map(|first| format!(" of further {}", first.noun(2)));
        let groups = group_thousands(&self.groups.to_string());
        format!("other: {groups} {noun}{}", further.unwrap_or_default())
    }
}

impl Usage {
    /// Formats an amount in all currencies, as in `1,234.50 USD + 3.00 EUR`; `-` without a price.
    pub fn shown_costs(&self, amount: impl Fn(&Cost) -> Amount) -> String {
        shown_costs(&self.costs, amount)
    }
}

impl Sums {
    fn add(&mut self, sum: &UsageSum, price: Option<&UnitPrice>) {
        let seconds = self.ppm_seconds.entry(sum.state).or_default();
        *seconds = seconds.saturating_add(sum.ppm_seconds);
        if sum.inferred {
            self.inferred = self.inferred.saturating_add(sum.ppm_seconds);
        }
        if matches!(sum.state, UsageState::Used | UsageState::Idle) {
            self.percent_seconds = self.percent_seconds.saturating_add(sum.percent_seconds);
            self.measured_seconds = self.measured_seconds.saturating_add(sum.measured_seconds);
        }
        if price.and_then(|price| self.costs.add(sum, price)).is_none() {
            self.unpriced = self.unpriced.saturating_add(sum.ppm_seconds);
        }
    }

    /// Adds the costs on the compared types.
    fn compare(&mut self, sum: &UsageSum, prices: &[ComparedPrice]) {
        self.alternatives.resize_with(prices.len(), AlternativeSums::default);
        for (sums, price) in self.alternatives.iter_mut().zip(prices) {
            let added = price
                .as_ref()
                .map_err(|reason| *reason)
                .and_then(|price| sums.costs.add(sum, price).ok_or(ComparisonError::NoPrice));
            sums.reason = sums.reason.into_iter().chain(added.err()).min();
        }
    }

    /// Adds the sums of other usage.
    fn merge(&mut self, other: Self) {
        for (state, seconds) in other.ppm_seconds {
            let sum = self.ppm_seconds.entry(state).or_default();
            *sum = sum.saturating_add(seconds);
        }
        self.inferred = self.inferred.saturating_add(other.inferred);
        self.unpriced = self.unpriced.saturating_add(other.unpriced);
        self.percent_seconds = self.percent_seconds.saturating_add(other.percent_seconds);
        self.measured_seconds = self.measured_seconds.saturating_add(other.measured_seconds);
        self.costs.merge(other.costs);
        self.alternatives.resize_with(other.alternatives.len(), AlternativeSums::default);
        for (sums, other) in self.alternatives.iter_mut().zip(other.alternatives) {
            sums.costs.merge(other.costs);
            sums.reason = sums.reason.into_iter().chain(other.reason).min();
        }
    }

    fn total(&self) -> i64 {
        self.ppm_seconds.values().fold(0, |sum, one| sum.saturating_add(*one))
    }

    fn usage(self, compare: &[TypeName]) -> Usage {
        let total = hours(self.total());
        let of = |state| hours(self.ppm_seconds.get(&state).copied().unwrap_or_default());
        let percent = (self.measured_seconds > 0).then(|| {
            let mean = float(self.percent_seconds) / float(self.measured_seconds);
            (mean * 10.0).round() / 10.0
        });
        Usage {
            device_hours: Hours {
                used: of(UsageState::Used),
                idle: of(UsageState::Idle),
                unallocated: of(UsageState::Unallocated),
                unknown: of(UsageState::Unknown),
                total,
            },
            inferred_hours: hours(self.inferred),
            unpriced_hours: hours(self.unpriced),
            utilization_percent: percent,
            costs: self.costs.rounded(),
            alternatives: compare
                .iter()
                .zip(self.alternatives)
                .map(|(one, sums)| sums.alternative(one))
                .collect(),
        }
    }
}

impl CostSums {
    /// Adds the cost of usage at this price; `None` if it cannot be represented.
    fn add(&mut self, sum: &UsageSum, price: &UnitPrice) -> Option<()> {
        let cost = price.per_hour.cost_of(u64::try_from(sum.ppm_seconds).ok()?, 1)?;
        let of_currency = self.0.entry(price.currency.clone()).or_default();
        let of_state = of_currency.entry(sum.state).or_default();
        *of_state = of_state.checked_add(cost)?;
        Some(())
    }

    /// Adds other costs; those that cannot be represented are the highest ones.
    fn merge(&mut self, other: Self) {
        for (currency, costs) in other.0 {
            let of_currency = self.0.entry(currency).or_default();
            for (state, cost) in costs {
                let sum = of_currency.entry(state).or_default();
                *sum = sum.checked_add(cost).unwrap_or(*sum);
            }
        }
    }

    fn rounded(self) -> Vec<Cost> {
        self.0.into_iter().filter_map(|(currency, costs)| cost(currency, &costs)).collect()
    }
}

impl AlternativeSums {
    fn alternative(self, type_name: &TypeName) -> Alternative {
        let costs = if self.reason.is_some() { Vec::new() } else { self.costs.rounded() };
        Alternative { type_name: type_name.clone(), costs, reason: self.reason }
    }
}

/// `None` if a cost is too large to be represented.
fn cost(currency: Currency, costs: &BTreeMap<UsageState, ExactCost>) -> Option<Cost> {
    let of = |state| costs.get(&state).copied().unwrap_or_default().rounded(DECIMALS);
    let total = costs.values().try_fold(ExactCost::default(), |sum, one| sum.checked_add(*one))?;
    Some(Cost {
        currency,
        used: of(UsageState::Used)?,
        idle: of(UsageState::Idle)?,
        unallocated: of(UsageState::Unallocated)?,
        unknown: of(UsageState::Unknown)?,
        total: total.rounded(DECIMALS)?,
    })
}

/// Device hours of seconds in parts per million of a device.
fn hours(ppm_seconds: i64) -> f64 {
    let hours = float(ppm_seconds) / (f64::from(PPM) * 3600.0);
    (hours * HOUR_DECIMALS).round() / HOUR_DECIMALS
}

#[expect(clippy::cast_precision_loss, reason = "hours are rounded to six decimals")]
fn float(value: i64) -> f64 {
    value as f64
}
