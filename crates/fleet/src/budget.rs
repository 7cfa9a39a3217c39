//! Budgets of namespaces and teams for each calendar month in UTC, as configured by the administrator.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::price::{Amount, Currency};

/// Pods whose cost counts towards a budget.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum BudgetScope {
    /// Pods in this namespace.
    Namespace(String),
    /// Pods of this team.
    Team(String),
}

/// A budget for each calendar month.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    /// Pods whose cost counts.
    pub scope: BudgetScope,
    /// Greater than zero.
    pub amount: Amount,
    /// Currency of the amount. Costs in other currencies do not count.
    pub currency: Currency,
}

impl BudgetScope {
    /// The name of the namespace or team.
    pub fn name(&self) -> &str {
        match self {
            Self::Namespace(name) | Self::Team(name) => name,
        }
    }
}

/// Formats the scope: `namespace team-a`.
impl fmt::Display for BudgetScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace(name) => write!(f, "namespace {name}"),
            Self::Team(name) => write!(f, "team {name}"),
        }
    }
}
