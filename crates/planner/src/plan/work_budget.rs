//! Work budget of a question.
//!
//! Catalogs and states also arrive over the network, from any client that reports as a node, and any client may request
//! a plan. Therefore all work is counted, and one question has one budget: for all devices, searches, alternatives and
//! feasibility checks.

/// Total budget: about ten to twenty milliseconds (`docs/performance.md`). No existing board comes close to it.
const MAX_WORK: u32 = 4_000_000;

/// Budget for alternatives, which are computed after the answer is already known.
const MAX_ALTERNATIVES_WORK: u32 = 500_000;

/// The work exceeds the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BudgetExceeded;

/// The remaining budget. One unit is about one comparison of a placement with a set of slices.
#[derive(Debug)]
pub(super) struct WorkBudget {
    left: u32,
}

impl WorkBudget {
    pub(super) fn new() -> Self {
        Self { left: MAX_WORK }
    }

    /// Deducts the cost of the next work.
    pub(super) fn spend(&mut self, amount: usize) -> Result<(), BudgetExceeded> {
        let amount = u32::try_from(amount).unwrap_or(u32::MAX);
        let left = self.left.checked_sub(amount);
        self.left = left.unwrap_or(0);
        left.map(|_| ()).ok_or(BudgetExceeded)
    }

    /// Runs `part` with a smaller budget, and deducts what it used.
    pub(super) fn with_reduced_budget<T>(&mut self, part: impl FnOnce(&mut Self) -> T) -> T {
        let mut own = Self { left: self.left.min(MAX_ALTERNATIVES_WORK) };
        let given = own.left;
        let done = part(&mut own);
        self.left = self.left.saturating_sub(given.saturating_sub(own.left));
        done
    }

    #[cfg(test)]
    pub(super) fn used(&self) -> u32 {
        MAX_WORK.saturating_sub(self.left)
    }
}
