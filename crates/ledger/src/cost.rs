//! Costs by state, in one currency.

use octavo_fleet::price::{Amount, Currency};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Costs in one currency. Each is rounded to four decimals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = GroupCost)]
pub struct Cost {
    /// Three-letter code of the currency.
    #[schema(value_type = String)]
    pub currency: Currency,
    /// Cost of the used device hours.
    #[schema(value_type = String)]
    pub used: Amount,
    /// Cost of the idle device hours.
    #[schema(value_type = String)]
    pub idle: Amount,
    /// Cost of the device hours that were not allocated.
    #[schema(value_type = String)]
    pub unallocated: Amount,
    /// Cost of the device hours that were not reported.
    #[schema(value_type = String)]
    pub unknown: Amount,
    /// Sum of all.
    #[schema(value_type = String)]
    pub total: Amount,
}

/// Formats an amount in all currencies; `-` without a cost.
pub(crate) fn shown_costs(costs: &[Cost], amount: impl Fn(&Cost) -> Amount) -> String {
    let shown = |cost: &Cost| amount(cost).shown_with(&cost.currency);
    let costs: Vec<String> = costs.iter().map(shown).collect();
    if costs.is_empty() { "-".to_owned() } else { costs.join(" + ") }
}
