//! State of budgets: the cost of the month so far, and a forecast.
//!
//! The forecast is the cost so far plus, for each remaining day of the month, the mean daily cost of the last seven complete days.

use std::ops::Range;

use jiff::{Timestamp, ToSpan};
use octavo_fleet::budget::{Budget, BudgetScope};
use octavo_fleet::price::{Amount, Currency};
use octavo_model::tone::Tone;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use strum::{Display, IntoStaticStr};
use utoipa::ToSchema;

use crate::interval::Day;
use crate::report::{CostReport, DECIMALS, Usage};
use crate::usage::Dimension;

/// Maximum number of complete days that a forecast is based on.
const FORECAST_DAYS: i32 = 7;

/// State of budgets in a month.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BudgetReport {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `BudgetReport`.
    pub kind: String,
    /// Month in UTC, such as `2026-11`.
    pub month: String,
    /// Time of the report.
    #[schema(value_type = String)]
    pub at: Timestamp,
    /// State of each budget.
    pub items: Vec<BudgetStatus>,
    /// Notes on missing data.
    pub notes: Vec<String>,
}

/// State of a budget.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BudgetStatus {
    /// Pods whose cost counts.
    #[serde(flatten)]
    pub scope: BudgetScope,
    /// The budget for the month.
    #[schema(value_type = String)]
    pub amount: Amount,
    /// Three-letter code of the currency.
    #[schema(value_type = String)]
    pub currency: Currency,
    /// Cost so far.
    #[schema(value_type = String)]
    pub spent: Amount,
    /// Expected cost at the end of the month; absent while the ledger has no complete day.
    #[schema(value_type = Option<String>)]
    pub forecast: Option<Amount>,
    /// Its state.
    pub state: BudgetState,
}

/// State of a budget.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Display, IntoStaticStr, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum BudgetState {
    /// The forecast is within the budget.
    Ok,
    /// The forecast exceeds the budget.
    AtRisk,
    /// The cost so far exceeds the budget.
    Exceeded,
    /// The cost so far is within the budget, and there is no forecast.
    Unknown,
}

/// Times from which the state of budgets follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetPeriod {
    /// The month.
    pub month: Range<Timestamp>,
    /// The current time.
    pub now: Timestamp,
    /// The last complete days; `None` if there is none.
    pub recent: Option<Range<Timestamp>>,
}

/// Costs by one property, in the times of a [`BudgetPeriod`].
#[derive(Debug)]
pub struct BudgetCosts {
    /// The property.
    pub by: Dimension,
    /// From the start of the month until now.
    pub month: CostReport,
    /// In the last complete days.
    pub recent: Option<CostReport>,
}

impl BudgetPeriod {
    /// The period at a time. `begins` is the first day in the ledger, which is not complete.
    pub fn new(now: Timestamp, begins: Option<Day>) -> Self {
        let today = Day::of(now.as_second());
        let start = today.first_of_month();
        let end = Day::from_date(start.date().saturating_add(1.month()));
        let first = today.0.saturating_sub(FORECAST_DAYS);
        let first = begins.map(|begins| Day(first.max(begins.0.saturating_add(1))));
        let recent = first.filter(|first| *first < today);
        Self {
            month: start.start_time()..end.start_time(),
            now,
            recent: recent.map(|first| first.start_time()..today.start_time()),
        }
    }

    /// The state of these budgets.
    pub fn report<'b>(
        &self,
        budgets: impl IntoIterator<Item = &'b Budget>,
        costs: &[BudgetCosts],
    ) -> BudgetReport {
        let mut items = Vec::new();
        let mut notes = Vec::new();
        for budget in budgets {
            let by = Dimension::from(&budget.scope);
            if let Some(costs) = costs.iter().find(|costs| costs.by == by) {
                let usage = usage(&costs.month, &budget.scope);
                notes.extend(usage.and_then(|usage| excluded(budget, usage)));
                items.push(self.status(budget, costs));
            }
        }
        BudgetReport {
            api_version: octavo_model::API_VERSION.to_owned(),
            kind: "BudgetReport".to_owned(),
            month: self.month.start.strftime("%Y-%m").to_string(),
            at: self.now,
            items,
            notes,
        }
    }

    fn status(&self, budget: &Budget, costs: &BudgetCosts) -> BudgetStatus {
        let cost = |report| cost(usage(report, &budget.scope), &budget.currency);
        let spent = cost(&costs.month);
        let recent = costs.recent.as_ref().map(cost);
        let forecast = recent.and_then(|recent| self.forecast(spent, recent));
        let state = match forecast {
            _ if spent > budget.amount => BudgetState::Exceeded,
            Some(forecast) if forecast > budget.amount => BudgetState::AtRisk,
            Some(_) => BudgetState::Ok,
            None => BudgetState::Unknown,
        };
        BudgetStatus {
            scope: budget.scope.clone(),
            amount: budget.amount,
            currency: budget.currency.clone(),
            spent,
            forecast,
            state,
        }
    }

    /// The cost at the end of the month, after this cost so far and in the recent days.
    fn forecast(&self, spent: Amount, recent: Amount) -> Option<Amount> {
        let recent_time = self.recent.as_ref()?;
        let seconds = |from: Timestamp, until: Timestamp| {
            Decimal::from(until.as_second().saturating_sub(from.as_second()))
        };
        let rest = seconds(self.now, self.month.end);
        let rest = rest.checked_div(seconds(recent_time.start, recent_time.end))?;
        Some(spent.checked_add(recent.checked_mul(rest)?)?.rounded(DECIMALS))
    }
}

impl BudgetState {
    /// Its color.
    pub fn tone(self) -> Tone {
        match self {
            Self::Ok => Tone::Good,
            Self::AtRisk => Tone::Warning,
            Self::Exceeded => Tone::Bad,
            Self::Unknown => Tone::Neutral,
        }
    }
}

impl BudgetStatus {
    /// Cost so far as a ratio of the budget.
    pub fn spent_ratio(&self) -> Option<f64> {
        self.spent.ratio(self.amount)
    }

    /// Forecast as a ratio of the budget.
    pub fn forecast_ratio(&self) -> Option<f64> {
        self.forecast?.ratio(self.amount)
    }
}

/// Usage in the scope of a budget, from a report by its property.
fn usage<'r>(report: &'r CostReport, scope: &BudgetScope) -> Option<&'r Usage> {
    let (by, name) = (Dimension::from(scope), scope.name());
    let item = report.items.iter().find(|item| item.group.get(&by).is_some_and(|one| one == name));
    item.map(|item| &item.usage)
}

fn cost(usage: Option<&Usage>, currency: &Currency) -> Amount {
    let mut costs = usage.into_iter().flat_map(|usage| &usage.costs);
    let cost = costs.find(|cost| cost.currency == *currency);
    cost.map_or(Amount::ZERO, |cost| cost.total).rounded(DECIMALS)
}

/// Note on usage that does not count towards a budget.
fn excluded(budget: &Budget, usage: &Usage) -> Option<String> {
    let others = usage.costs.iter().filter(|cost| cost.currency != budget.currency);
    let others = others.map(|cost| cost.total.shown_with(&cost.currency));
    let hours = Some(usage.unpriced_hours).filter(|hours| *hours > 0.0);
    let hours = hours.map(|hours| format!("{hours:.1} device hours without a price"));
    let all: Vec<String> = others.chain(hours).collect();
    let scope = &budget.scope;
    (!all.is_empty())
        .then(|| format!("the budget of {scope} does not include {}", all.join(" and ")))
}
