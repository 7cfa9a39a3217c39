//! State of budgets, from the ledger.

use std::ops::Range;

use jiff::Timestamp;
use octavo_database::{MAX_SUMS, in_time};
use octavo_fleet::budget::{Budget, BudgetScope};
use octavo_fleet::price::PriceBook;
use octavo_ledger::budget::{BudgetCosts, BudgetPeriod, BudgetReport};
use octavo_ledger::report::{CostReport, GroupLimit};
use octavo_ledger::{Dimension, UsageQuery};

use super::{CostQuery, LedgerError, LedgerReader, READ_TIMEOUT};
use crate::query::QueryError;
use crate::query::parse::set_each;

/// Requested budgets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BudgetQuery {
    /// Only the budget of this namespace.
    pub namespace: Option<String>,
}

impl LedgerReader {
    /// The state of budgets in the current month.
    ///
    /// # Errors
    /// Fails if the database cannot be read, or there are too many namespaces or teams.
    pub async fn budgets(
        &self,
        budgets: impl IntoIterator<Item = &Budget>,
        prices: Option<&PriceBook>,
        now: Timestamp,
    ) -> Result<BudgetReport, LedgerError> {
        let budgets: Vec<&Budget> = budgets.into_iter().collect();
        let begins = in_time(READ_TIMEOUT, self.database().await?.first_day()).await?;
        let period = BudgetPeriod::new(now, begins);
        let mut costs = Vec::new();
        for by in [Dimension::Namespace, Dimension::Team] {
            if !budgets.iter().any(|budget| Dimension::from(&budget.scope) == by) {
                continue;
            }
            let month = self.costs(by, period.month.start..now, prices).await?;
            let recent = match &period.recent {
                Some(recent) => Some(self.costs(by, recent.clone(), prices).await?),
                None => None,
            };
            costs.push(BudgetCosts { by, month, recent });
        }
        Ok(period.report(budgets, &costs))
    }

    /// Costs of all values of a property.
    async fn costs(
        &self,
        by: Dimension,
        range: Range<Timestamp>,
        prices: Option<&PriceBook>,
    ) -> Result<CostReport, LedgerError> {
        let usage = UsageQuery {
            from: range.start,
            until: range.end,
            by: vec![by],
            filters: Vec::new(),
            price_changes: Vec::new(),
        };
        let limit = GroupLimit::most_expensive(MAX_SUMS);
        let report = self.report(&CostQuery { usage, compare: Vec::new(), limit }, prices).await?;
        if report.omitted_items > 0 {
            return Err(LedgerError::TooManyGroups(MAX_SUMS));
        }
        Ok(report)
    }
}

impl BudgetQuery {
    /// Parses the parameters in `pairs`.
    ///
    /// # Errors
    /// Fails with the name of an unknown or invalid parameter.
    pub fn parse(pairs: impl IntoIterator<Item = (String, String)>) -> Result<Self, QueryError> {
        let mut query = Self::default();
        set_each(pairs, &[], |name, value| match name {
            "namespace" => {
                query.namespace = Some(value.to_owned()).filter(|value| !value.is_empty());
                Ok(())
            }
            _ => Err(QueryError::unknown(name, "namespace")),
        })?;
        Ok(query)
    }

    /// Returns whether the budget is requested. The budget of a team is about several namespaces.
    pub fn matches(&self, budget: &Budget) -> bool {
        match (&self.namespace, &budget.scope) {
            (None, _) => true,
            (Some(wanted), BudgetScope::Namespace(name)) => wanted == name,
            (Some(_), BudgetScope::Team(_)) => false,
        }
    }
}
